//! Log-ins: passwords are checked off the threads that answer requests, a few at a time, and no more often than
//! `login_limits` lets them be guessed.
//!
//! An address that no user has costs the same work as a wrong password and gets the same answer, so that nobody learns
//! who has an account.

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
use crate::admission::fair_limit;
use crate::manage::{ManageError, OwnerWrites};
use crate::rate_limit::memory::whole_seconds;
use crate::rate_limit::shared::limiter;
use crate::rate_limit::{Bucket, Clock, RateLimitDecision, RateLimiter, RateLimits, SystemClock};
use crate::{Client, Principal, RateCapacity};

/// Seconds that a log-in waits for its permit.
const TURN_S: u64 = 10;

const QUEUE: u64 = 1_024;

#[derive(Clone, Debug)]
pub struct LoggedIn {
    pub user: User,
    pub session_id: Secret,
}

pub(crate) struct PasswordChecks {
    limits: LoginLimits,
    /// The same counts, of all processes together.
    shared: Option<SharedLogins>,
    clients: Arc<dyn RateLimiter>,
    clock: SystemClock,
    /// Each check takes a core, and 19 MiB, for some tens of milliseconds.
    permits: FairLimit,
    /// A hash that no password has, for addresses that no user has.
    nobody: OnceCell<String>,
}

enum Begun {
    Alone(Attempt),
    Shared(SharedAttempt),
}

impl PasswordChecks {
    pub(crate) fn new(limits: &Limits, fair: &Fair, redis: Option<&Arc<Redis>>, threads: usize) -> PasswordChecks {
        let all = RateLimits { public: limits.logins_per_minute.saturating_mul(CLIENT_FACTOR), private: 0 };
        let capacity = RateCapacity { shards: 16, own_windows: 1_024, shared_windows: 64 };
        let (free, per_window) = (limits.logins_per_minute, limits.account_logins_per_hour);
        let name = LimitName { name: "login", what: "logins" };
        // Before a login, no principal is a user for whom anything could be reserved.
        let unreserved = Fair { user_percent: 0, ..*fair };
        PasswordChecks {
            limits: LoginLimits::new(free, per_window),
            shared: redis.map(|redis| SharedLogins { redis: redis.clone(), free, per_window }),
            clients: limiter(redis, "logins", all, capacity),
            clock: SystemClock::start(),
            permits: fair_limit(name, threads as u64, &unreserved, QUEUE, TURN_S),
            nobody: OnceCell::new(),
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
            None => self.limits.begin(client, email_key, self.clock.now().elapsed).map(Begun::Alone),
        };
        begun.map_err(|wait| ManageError::TooManyLogins { retry_after_s: whole_seconds(wait).max(1) })
    }

    /// The password was right, or was not looked at. A wrong one stays counted.
    async fn end(&self, begun: Begun, was_right: bool) {
        match (begun, &self.shared) {
            (Begun::Alone(attempt), _) if was_right => self.limits.succeeded(attempt),
            (Begun::Alone(attempt), _) => self.limits.not_tried(attempt),
            (Begun::Shared(attempt), Some(shared)) => shared.end(&attempt, was_right).await,
            (Begun::Shared(_), None) => {}
        }
    }

    async fn verify(&self, client: Client, hash: Option<String>, password: String) -> Result<bool, ManageError> {
        let permit =
            self.permits.acquire(Principal::Anonymous(client), 1).await.map_err(|_| ManageError::LoginsBusy)?;
        // Made at the first log-in of either kind, so that it does not tell them apart.
        let nobody =
            self.nobody.get_or_try_init(|| hash_password(Secret::api_token(rand::random()).expose().to_owned()));
        let nobody = nobody.await.map_err(unhashed)?;
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| nobody.clone());
        let verify = move || {
            // A check goes on when its client has left.
            let _permit = permit;
            Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok()
        };
        let matches = blocking(verify).await;
        Ok(matches.map_err(|error| ManageError::Storage(error.into()))? && known)
    }

    async fn hash(&self, client: Client, password: String) -> Result<String, ManageError> {
        let permit =
            self.permits.acquire(Principal::Anonymous(client), 1).await.map_err(|_| ManageError::LoginsBusy)?;
        let hash = tokio::spawn(async move {
            // As of a check.
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
    /// Begins a session for the user with this address and password, from `origin`; the session `before`, if any, ends.
    pub async fn log_in(
        &self,
        client: Client,
        (email, password): (&str, &str),
        origin: &SessionOrigin,
        before: Option<&str>,
    ) -> Result<LoggedIn, ManageError> {
        let attempt = self.checks.begin(client, &email_key(email)).await?;
        let verified = async {
            let user = self.sessions.catalog.user_by_email(email).await.map_err(ManageError::Catalog)?;
            // Longer than any user's: wrong without being hashed.
            if password.len() > *PASSWORD_BYTES.end() {
                return Err(ManageError::WrongCredentials);
            }
            let hash = user.as_ref().map(|user| user.password_hash.clone());
            let matches = self.checks.verify(client, hash, password.to_owned()).await?;
            user.filter(|_| matches).ok_or(ManageError::WrongCredentials)
        };
        let user = match verified.await {
            Ok(user) => user,
            Err(ManageError::WrongCredentials) => return Err(ManageError::WrongCredentials),
            Err(error) => {
                self.checks.end(attempt, false).await;
                return Err(error);
            }
        };
        self.checks.end(attempt, true).await;
        let session_id = self.sessions.begin(&user, origin, before).await?;
        Ok(LoggedIn { user, session_id })
    }

    /// Replaces the password of a user who knows it, and ends the user's sessions but `current`, the id of the session
    /// of the call. API tokens stay. A wrong old password counts as one at a log-in, and costs as much.
    pub async fn change_password(
        &self,
        client: Client,
        user: &User,
        old: &str,
        new: &str,
        current: Option<&str>,
    ) -> Result<(), ManageError> {
        check_password(new).map_err(|error| ManageError::Invalid { field: "new", problem: error.to_string() })?;
        let attempt = self.checks.begin(client, &email_key(&user.email)).await?;
        let matches = match old.len() > *PASSWORD_BYTES.end() {
            true => Ok(false),
            false => self.checks.verify(client, Some(user.password_hash.clone()), old.to_owned()).await,
        };
        match matches {
            Ok(true) => self.checks.end(attempt, true).await,
            Ok(false) => return Err(ManageError::WrongPassword),
            Err(error) => {
                self.checks.end(attempt, false).await;
                return Err(error);
            }
        }
        let new_hash = self.checks.hash(client, new.to_owned()).await?;
        let kept = current.and_then(session_hash);
        let change = self.sessions.catalog.change_password(user.id, &user.password_hash, &new_hash, kept.as_deref());
        self.writes.run(user.id, change).await.map_err(|error| match error {
            // Somebody else was faster.
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
