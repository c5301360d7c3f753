//! Logins: passwords are verified on threads for blocking calls, a few at a time, within the limits of `login_limits`.
//!
//! An unknown email address costs the same work and gets the same response as a wrong password, so that responses do
//! not show who has an account.

use std::sync::Arc;

use argon2::{Argon2, PasswordVerifier};
use strata_cluster::redis::Redis;
use strata_config::{Fair, Limits};
use strata_limits::{FairLimit, LimitName};
use strata_runtime::blocking::blocking;
use strata_types::secret::Secret;
use strata_types::user::{User, email_key};
use tokio::sync::OnceCell;

use crate::account::login_limits::{Attempt, CLIENT_FACTOR, LoginLimits};
use crate::account::session_origin::SessionOrigin;
use crate::account::sessions::{Sessions, session_hash};
use crate::account::shared_logins::{SharedAttempt, SharedLogins};
use crate::account::{AccountError, PASSWORD_BYTES, check_password, hash_password};
use crate::admission::{Permit, fair_limit};
use crate::manage::{ManageError, OwnerWrites};
use crate::rate_limit::memory::whole_seconds;
use crate::rate_limit::shared::limiter;
use crate::rate_limit::{Bucket, Clock, RateLimitDecision, RateLimiter, RateLimits, SystemClock};
use crate::{Client, Principal, RateCapacity};

/// The time that a login waits for its permit.
const MAX_WAIT_S: u64 = 10;

/// The maximum number of logins that wait.
const MAX_WAITING: u64 = 1_024;

#[derive(Clone, Debug)]
pub struct LoggedIn {
    pub user: User,
    pub session_id: Secret,
}

pub(crate) struct PasswordChecks {
    limits: LoginLimits,
    /// The same counts, shared by all processes.
    shared: Option<SharedLogins>,
    clients: Arc<dyn RateLimiter>,
    clock: SystemClock,
    /// A verification takes a core and 19 MiB for tens of milliseconds.
    permits: FairLimit,
    /// A hash that no password has, for unknown email addresses.
    unmatched_hash: OnceCell<String>,
}

enum Begun {
    Local(Attempt),
    Shared(SharedAttempt),
}

impl PasswordChecks {
    pub(crate) fn new(limits: &Limits, fair: &Fair, redis: Option<&Arc<Redis>>, threads: usize) -> PasswordChecks {
        let capacity = RateCapacity { shards: 16, own_windows: 1_024, shared_windows: 64 };
        let free = limits.logins_per_minute;
        let per_window = limits.account_logins_per_hour;
        let all = RateLimits { public: free.saturating_mul(CLIENT_FACTOR), private: 0 };
        let name = LimitName { name: "login", what: "logins" };
        // Before a login, no principal is a user for whom anything could be reserved.
        let unreserved = Fair { user_percent: 0, ..*fair };
        PasswordChecks {
            limits: LoginLimits::new(free, per_window),
            shared: redis.map(|redis| SharedLogins { redis: redis.clone(), free, per_window }),
            clients: limiter(redis, "logins", all, capacity),
            clock: SystemClock::start(),
            permits: fair_limit(name, threads as u64, &unreserved, MAX_WAITING, MAX_WAIT_S),
            unmatched_hash: OnceCell::new(),
        }
    }

    async fn begin(&self, client: Client, email_key: &str) -> Result<Begun, ManageError> {
        match self.clients.count(client, Bucket::Public).await.map(|status| status.decision) {
            Some(RateLimitDecision::Exceeded { retry_after_s }) => {
                return Err(ManageError::TooManyLogins { retry_after_s });
            }
            Some(RateLimitDecision::Within) | None => {}
        }
        let shared = match &self.shared {
            Some(shared) => shared.begin(client, email_key).await.ok(),
            None => None,
        };
        let begun = match shared {
            Some(begun) => begun.map(Begun::Shared),
            None => self.limits.begin(client, email_key, self.clock.now().elapsed).map(Begun::Local),
        };
        begun.map_err(|wait| ManageError::TooManyLogins { retry_after_s: whole_seconds(wait).max(1) })
    }

    /// The password was right, or was not checked. A wrong one stays counted.
    async fn end(&self, begun: Begun, was_right: bool) {
        match (begun, &self.shared) {
            (Begun::Local(attempt), _) if was_right => self.limits.succeeded(attempt),
            (Begun::Local(attempt), _) => self.limits.not_tried(attempt),
            (Begun::Shared(attempt), Some(shared)) => shared.end(&attempt, was_right).await,
            (Begun::Shared(_), None) => {}
        }
    }

    /// Whether a password has a hash, within the limits of attempts. A password that was not checked does not count.
    async fn check(
        &self,
        client: Client,
        email: &str,
        hash: impl Future<Output = Result<Option<String>, ManageError>>,
        password: &str,
    ) -> Result<bool, ManageError> {
        let attempt = self.begin(client, &email_key(email)).await?;
        let checking = async {
            let hash = hash.await?;
            // A password that is longer than allowed is wrong without being hashed.
            match password.len() > *PASSWORD_BYTES.end() {
                true => Ok(false),
                false => self.verify(client, hash, password.to_owned()).await,
            }
        };
        let matches = checking.await;
        if !matches!(matches, Ok(false)) {
            self.end(attempt, matches.is_ok()).await;
        }
        matches
    }

    async fn permit(&self, client: Client) -> Result<Permit, ManageError> {
        self.permits.acquire(Principal::Anonymous(client), 1).await.map_err(|_| ManageError::LoginsBusy)
    }

    async fn verify(&self, client: Client, hash: Option<String>, password: String) -> Result<bool, ManageError> {
        let permit = self.permit(client).await?;
        // Created at the first login with a known or unknown address, so that its time does not tell them apart.
        let random = || hash_password(Secret::api_token(rand::random()).expose().to_owned());
        let unmatched = self.unmatched_hash.get_or_try_init(random).await.map_err(unhashed)?;
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| unmatched.clone());
        let verify = move || {
            // Verification continues when its client has left.
            let _permit = permit;
            Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok()
        };
        let matches = blocking(verify).await;
        Ok(matches.map_err(|error| ManageError::Storage(error.into()))? && known)
    }

    async fn hash(&self, client: Client, password: String) -> Result<String, ManageError> {
        let permit = self.permit(client).await?;
        let hash = tokio::spawn(async move {
            // Hashing continues when its client has left.
            let _permit = permit;
            hash_password(password).await
        });
        let hash = hash.await.map_err(|error| ManageError::Failed(error.to_string()))?;
        hash.map_err(unhashed)
    }
}

fn unhashed(error: AccountError) -> ManageError {
    match error {
        AccountError::Threads(error) => ManageError::Storage(error.into()),
        other => ManageError::Failed(other.to_string()),
    }
}

pub struct Logins {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) writes: Arc<OwnerWrites>,
    pub(crate) checks: PasswordChecks,
}

impl Logins {
    /// Begins a session from `origin` for the user with this email address and password, and ends the session `before`.
    pub async fn log_in(
        &self,
        client: Client,
        email: &str,
        password: &str,
        origin: &SessionOrigin,
        before: Option<&str>,
    ) -> Result<LoggedIn, ManageError> {
        let mut user = None;
        let hash = async {
            user = self.sessions.catalog.user_by_email(email).await.map_err(ManageError::Catalog)?;
            Ok(user.as_ref().map(|user| user.password_hash.clone()))
        };
        let matches = self.checks.check(client, email, hash, password).await?;
        let user = user.filter(|_| matches).ok_or(ManageError::WrongCredentials)?;
        let session_id = self.sessions.begin(&user, origin, before).await?;
        Ok(LoggedIn { user, session_id })
    }

    /// Replaces the password of a user who knows the old one, and ends the user's sessions except for `current`, the id
    /// of the session of the call. API tokens stay. A wrong old password counts and costs as much as a wrong login.
    pub async fn change_password(
        &self,
        client: Client,
        user: &User,
        old: &str,
        new: &str,
        current: Option<&str>,
    ) -> Result<(), ManageError> {
        check_password(new).map_err(|error| ManageError::Invalid { field: "new", problem: error.to_string() })?;
        let hash = async { Ok(Some(user.password_hash.clone())) };
        if !self.checks.check(client, &user.email, hash, old).await? {
            return Err(ManageError::WrongPassword);
        }
        let new_hash = self.checks.hash(client, new.to_owned()).await?;
        let kept = current.and_then(session_hash);
        let change = self.sessions.catalog.change_password(user.id, &user.password_hash, &new_hash, kept.as_deref());
        self.writes.run(user.id, change).await.map_err(|error| match error {
            // Another change was faster.
            ManageError::Stale => ManageError::WrongPassword,
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_check_keeps_its_turn_when_its_client_leaves() {
        let logins = PasswordChecks::new(&Limits::default(), &Fair::default(), None, 1);
        let client = Client::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let hash = hash_password("right".to_owned()).await.expect("a hash");
        assert!(logins.verify(client, Some(hash.clone()), "right".to_owned()).await.expect("checked"));
        assert_eq!(logins.permits.used_units(), 0);
        let mut leaving = Box::pin(logins.verify(client, Some(hash), "wrong".to_owned()));
        assert!(futures::poll!(&mut leaving).is_pending());
        drop(leaving);
        assert_eq!(logins.permits.used_units(), 1, "its password is still hashed");
        while logins.permits.used_units() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
