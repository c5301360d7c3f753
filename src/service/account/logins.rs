//! Verifies passwords on blocking threads, a few at a time, within the limits of `login_limits`.
//!
//! An unknown email address costs the same work and gets the same response as a wrong password, so that responses do
//! not reveal whether an account exists.

use std::sync::Arc;

use argon2::{Argon2, PasswordVerifier};
use strata_cluster::redis::RedisClient;
use strata_config::{FairShareConfig, RequestLimitsConfig};
use strata_limits::{FairLimit, LimitName};
use strata_runtime::blocking::run_blocking;
use strata_types::secret::Secret;
use strata_types::user::{User, normalize_email};
use tokio::sync::OnceCell;

use crate::account::login_limits::{CLIENT_LIMIT_FACTOR, LocalLoginAttempt, LoginLimits};
use crate::account::redis_login_limits::{RedisLoginAttempt, RedisLoginLimits};
use crate::account::session_origin::SessionOrigin;
use crate::account::sessions::{SessionService, session_hash};
use crate::account::{AccountError, PASSWORD_LENGTH_BYTES, check_password, hash_password};
use crate::admission::{Permit, fair_limit};
use crate::management::{ManageError, OwnerWriter, Result};
use crate::rate_limit::memory::ceil_seconds;
use crate::rate_limit::shared::new_limiter;
use crate::rate_limit::{RateLimitBucket, RateLimitClock, RateLimitDecision, RateLimiter, RateLimits, SystemClock};
use crate::{ClientNetwork, Principal, RateLimiterCapacity};

const MAX_PERMIT_WAIT_S: u64 = 10;
const MAX_WAITING_LOGINS: u64 = 1_024;

#[derive(Clone, Debug)]
pub struct AuthenticatedSession {
    pub user: User,
    pub session_id: Secret,
}

pub(crate) struct PasswordChecker {
    local_limits: LoginLimits,
    /// The login limits in Redis, which all processes share.
    redis_limits: Option<RedisLoginLimits>,
    client_limiter: Arc<dyn RateLimiter>,
    clock: SystemClock,
    /// Permits for password verifications, each of which uses a core and 19 MiB for tens of milliseconds.
    permits: FairLimit,
    /// The hash of a random password, against which logins with unknown email addresses are verified.
    dummy_hash: OnceCell<String>,
}

enum LoginAttempt {
    Local(LocalLoginAttempt),
    Redis(RedisLoginAttempt),
}

impl PasswordChecker {
    pub(crate) fn new(
        limits: &RequestLimitsConfig,
        fair: &FairShareConfig,
        redis: Option<&Arc<RedisClient>>,
        threads: usize,
    ) -> PasswordChecker {
        let capacity = RateLimiterCapacity { shards: 16, client_windows: 1_024, shared_windows: 64 };
        let free_failures = limits.logins_per_minute;
        let max_per_window = limits.account_logins_per_hour;
        let client_limits = RateLimits { public: free_failures.saturating_mul(CLIENT_LIMIT_FACTOR), private: 0 };
        let name = LimitName { name: "login", requests: "logins" };
        // No user is known before a login, so permits that are reserved for users would be unused.
        let unreserved = FairShareConfig { user_percent: 0, ..*fair };
        let redis_limits =
            |redis: &Arc<RedisClient>| RedisLoginLimits { redis: redis.clone(), free_failures, max_per_window };
        PasswordChecker {
            local_limits: LoginLimits::new(free_failures, max_per_window),
            redis_limits: redis.map(redis_limits),
            client_limiter: new_limiter(redis, "logins", client_limits, capacity),
            clock: SystemClock::start(),
            permits: fair_limit(name, threads as u64, &unreserved, MAX_WAITING_LOGINS, MAX_PERMIT_WAIT_S),
            dummy_hash: OnceCell::new(),
        }
    }

    async fn begin_attempt(&self, client: ClientNetwork, email_key: &str) -> Result<LoginAttempt> {
        let status = self.client_limiter.count_request(client, RateLimitBucket::Public).await;
        if let Some(RateLimitDecision::Exceeded { retry_after_s }) = status.map(|status| status.decision) {
            return Err(ManageError::TooManyLogins { retry_after_s });
        }
        let attempt = if let Some(limits) = &self.redis_limits
            && let Ok(attempt) = limits.begin_attempt(client, email_key).await
        {
            attempt.map(LoginAttempt::Redis)
        } else {
            let now = self.clock.now().elapsed;
            self.local_limits.begin_attempt(client, email_key, now).map(LoginAttempt::Local)
        };
        attempt.map_err(|wait| ManageError::TooManyLogins { retry_after_s: ceil_seconds(wait).max(1) })
    }

    /// Ends a login attempt whose password was right or not checked. An attempt with a wrong password remains counted.
    async fn end_attempt(&self, attempt: LoginAttempt, was_password_right: bool) {
        match (attempt, &self.redis_limits) {
            (LoginAttempt::Local(attempt), _) if was_password_right => self.local_limits.record_success(attempt),
            (LoginAttempt::Local(attempt), _) => self.local_limits.cancel_attempt(attempt),
            (LoginAttempt::Redis(attempt), Some(limits)) => limits.end_attempt(&attempt, was_password_right).await,
            (LoginAttempt::Redis(_), None) => {}
        }
    }

    /// Verifies a password within the limits of login attempts. An attempt with an unchecked password does not count.
    async fn verify_within_limits(
        &self,
        client: ClientNetwork,
        email: &str,
        hash: impl Future<Output = Result<Option<String>>>,
        password: &str,
    ) -> Result<bool> {
        let attempt = self.begin_attempt(client, &normalize_email(email)).await?;
        let checking = async {
            let hash = hash.await?;
            // A password that is too long is wrong, so hashing it is unnecessary.
            match password.len() > *PASSWORD_LENGTH_BYTES.end() {
                true => Ok(false),
                false => self.verify_hash(client, hash, password.to_owned()).await,
            }
        };
        let matches = checking.await;
        if !matches!(matches, Ok(false)) {
            self.end_attempt(attempt, matches.is_ok()).await;
        }
        matches
    }

    async fn acquire_hash_permit(&self, client: ClientNetwork) -> Result<Permit> {
        self.permits.acquire(Principal::Anonymous(client), 1).await.map_err(|_| ManageError::LoginsBusy)
    }

    async fn verify_hash(&self, client: ClientNetwork, hash: Option<String>, password: String) -> Result<bool> {
        let permit = self.acquire_hash_permit(client).await?;
        // The dummy hash is created at the first login for any address, so that the duration of a login does not reveal
        // whether the address exists.
        let hash_random = || hash_password(Secret::new_api_token(rand::random()).expose().to_owned());
        let dummy_hash = self.dummy_hash.get_or_try_init(hash_random).await.map_err(password_hash_error)?;
        let is_known = hash.is_some();
        let hash = hash.unwrap_or_else(|| dummy_hash.clone());
        let verify = move || {
            // The thread that verifies the password continues after the future is dropped, so it owns the permit.
            let _permit = permit;
            Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok()
        };
        let matches = run_blocking(verify).await;
        Ok(matches.map_err(|error| ManageError::Storage(error.into()))? && is_known)
    }

    async fn hash_new_password(&self, client: ClientNetwork, password: String) -> Result<String> {
        let permit = self.acquire_hash_permit(client).await?;
        let hash = tokio::spawn(async move {
            // The task that hashes the password continues after the future is dropped, so it owns the permit.
            let _permit = permit;
            hash_password(password).await
        });
        let hash = hash.await.map_err(|error| ManageError::Internal(error.to_string()))?;
        hash.map_err(password_hash_error)
    }
}

fn password_hash_error(error: AccountError) -> ManageError {
    match error {
        AccountError::SpawnThread(error) => ManageError::Storage(error.into()),
        other => ManageError::Internal(other.to_string()),
    }
}

pub struct LoginService {
    pub(crate) sessions: Arc<SessionService>,
    pub(crate) owner_writer: Arc<OwnerWriter>,
    pub(crate) password_checker: PasswordChecker,
}

impl LoginService {
    /// Begins a session for the user with this email address and password, and ends the session `previous`.
    pub async fn log_in(
        &self,
        client: ClientNetwork,
        email: &str,
        password: &str,
        origin: &SessionOrigin,
        previous: Option<&str>,
    ) -> Result<AuthenticatedSession> {
        let mut user = None;
        let hash = async {
            user = self.sessions.catalog.user_by_email(email).await.map_err(ManageError::Catalog)?;
            Ok(user.as_ref().map(|user| user.password_hash.clone()))
        };
        let matches = self.password_checker.verify_within_limits(client, email, hash, password).await?;
        let user = user.filter(|_| matches).ok_or(ManageError::WrongCredentials)?;
        let session_id = self.sessions.create_session(&user, origin, previous).await?;
        Ok(AuthenticatedSession { user, session_id })
    }

    /// Replaces a user's password and ends all sessions except `current`. A wrong old password counts as a wrong login.
    pub async fn change_password(
        &self,
        client: ClientNetwork,
        user: &User,
        old: &str,
        new: &str,
        current: Option<&str>,
    ) -> Result<()> {
        check_password(new).map_err(|error| ManageError::InvalidField { field: "new", problem: error.to_string() })?;
        let hash = async { Ok(Some(user.password_hash.clone())) };
        if !self.password_checker.verify_within_limits(client, &user.email, hash, old).await? {
            return Err(ManageError::WrongPassword);
        }
        let new_hash = self.password_checker.hash_new_password(client, new.to_owned()).await?;
        let current = current.and_then(session_hash);
        let change = self.sessions.catalog.change_password(user.id, &user.password_hash, &new_hash, current.as_deref());
        self.owner_writer.run_write(user.id, change).await.map_err(|error| match error {
            // A concurrent request replaced the old password.
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
    async fn dropped_password_check_keeps_permit() {
        let checker = PasswordChecker::new(&RequestLimitsConfig::default(), &FairShareConfig::default(), None, 1);
        let client = ClientNetwork::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let hash = hash_password("right".to_owned()).await.expect("failed to hash password");
        assert!(
            checker
                .verify_hash(client, Some(hash.clone()), "right".to_owned())
                .await
                .expect("failed to verify password")
        );
        assert_eq!(checker.permits.used_units(), 0);
        let mut verification = Box::pin(checker.verify_hash(client, Some(hash), "wrong".to_owned()));
        assert!(futures::poll!(&mut verification).is_pending());
        drop(verification);
        assert_eq!(checker.permits.used_units(), 1, "the thread still hashes the password");
        while checker.permits.used_units() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
