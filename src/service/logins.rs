//! Log-ins: passwords are checked off the threads that answer requests, a few at a time, and no more often than
//! `login_limits` lets them be guessed.
//!
//! An address that no user has costs the same work as a wrong password and gets the same answer, so that nobody learns
//! who has an account.

use std::time::Duration;

use argon2::{Argon2, PasswordVerifier};
use tokio::sync::{OnceCell, Semaphore};

use super::accounts::hash_password;
use super::login_limits::{Attempt, CLIENT_FACTOR, LoginLimits, Refused};
use super::manage::ManageError;
use super::rate::{Bucket, Client, Clock, RateLimiter, RateLimits, SystemClock, Verdict};
use super::rate_memory::{MemoryRateLimiter, RateCapacity};
use super::{AccountError, App};
use crate::config::Limits;
use crate::model::limits;
use crate::model::secret::Secret;
use crate::model::user::{User, email_key};

/// How long a log-in waits for its turn.
const TURN: Duration = Duration::from_secs(10);

/// Passwords longer than any user's are wrong without being hashed.
const PASSWORD_BYTES_MAX: usize = limits::PASSWORD_BYTES;

/// Somebody has logged in.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// Who.
    pub user: User,
    /// The id of the session that began.
    pub session_id: Secret,
}

/// What log-ins share.
pub(super) struct Logins {
    limits: LoginLimits,
    /// How many each client tries in all.
    clients: MemoryRateLimiter<SystemClock>,
    clock: SystemClock,
    /// Each check takes a core, and 19 MiB, for some tens of milliseconds.
    turns: Semaphore,
    /// A hash that no password has, for addresses that no user has.
    nobody: OnceCell<String>,
}

impl Logins {
    pub fn new(limits: &Limits, threads: usize) -> Logins {
        let all = RateLimits { public: limits.logins_per_minute.saturating_mul(CLIENT_FACTOR), private: 0 };
        let capacity = RateCapacity { shards: 16, own_windows: 1_024, shared_windows: 64 };
        let clock = SystemClock::start();
        Logins {
            limits: LoginLimits::new(limits.logins_per_minute, limits.account_logins_per_hour),
            clients: MemoryRateLimiter::new(all, capacity, clock),
            clock,
            turns: Semaphore::new(threads.max(1)),
            nobody: OnceCell::new(),
        }
    }

    async fn begin(&self, client: Client, email_key: &str) -> Result<Attempt, ManageError> {
        match self.clients.count(client, Bucket::Public).await.map(|standing| standing.verdict) {
            Some(Verdict::Exceeded { retry_after_s }) => return Err(ManageError::TooManyLogins { retry_after_s }),
            Some(Verdict::Within) | None => {}
        }
        let begun = self.limits.begin(client, email_key, self.clock.now().elapsed);
        begun.map_err(|Refused { retry_after_s }| ManageError::TooManyLogins { retry_after_s })
    }

    async fn verify(&self, hash: Option<String>, password: String) -> Result<bool, ManageError> {
        let turn = tokio::time::timeout(TURN, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else { return Err(ManageError::LoginsBusy) };
        // Made at the first log-in of either kind, so that it does not tell them apart.
        let nobody =
            self.nobody.get_or_try_init(|| hash_password(Secret::api_token(rand::random()).expose().to_owned()));
        let nobody = nobody.await.map_err(|error: AccountError| ManageError::Failed(error.to_string()))?;
        let known = hash.is_some();
        let hash = hash.unwrap_or_else(|| nobody.clone());
        let verify = move || Argon2::default().verify_password(password.as_bytes(), hash.as_str()).is_ok();
        let matches = tokio::task::spawn_blocking(verify).await;
        Ok(matches.map_err(|error| ManageError::Failed(error.to_string()))? && known)
    }
}

impl App {
    /// Begins a session for the user with this address and password; the session `before`, if any, ends.
    ///
    /// # Errors
    /// [`ManageError::TooManyLogins`], [`ManageError::LoginsBusy`], [`ManageError::WrongCredentials`].
    pub async fn log_in(
        &self,
        client: Client,
        email: &str,
        password: &str,
        before: Option<&str>,
    ) -> Result<LoggedIn, ManageError> {
        let logins = self.logins();
        let attempt = logins.begin(client, &email_key(email)).await?;
        let verified = async {
            let user = self.catalog().user_by_email(email).await.map_err(ManageError::Catalog)?;
            if password.len() > PASSWORD_BYTES_MAX {
                return Err(ManageError::WrongCredentials);
            }
            let hash = user.as_ref().map(|user| user.password_hash.clone());
            let matches = logins.verify(hash, password.to_owned()).await?;
            user.filter(|_| matches).ok_or(ManageError::WrongCredentials)
        };
        let user = match verified.await {
            Ok(user) => user,
            Err(ManageError::WrongCredentials) => return Err(ManageError::WrongCredentials),
            Err(error) => {
                logins.limits.not_tried(attempt);
                return Err(error);
            }
        };
        logins.limits.succeeded(attempt);
        let session_id = self.begin_session(user.id, before).await?;
        Ok(LoggedIn { user, session_id })
    }
}
