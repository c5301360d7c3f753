//! Counts wrong passwords in Redis with the rules of `login_limits`. Redis contains no email addresses and no
//! passwords, only hashes of client and email address.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use strata_cluster::redis::{RedisClient, RedisUnavailable};

use crate::ClientNetwork;
use crate::account::login_limits::{ACCOUNT_WINDOW, DELAY_RESET_AFTER, MAX_LOGIN_DELAY};
use crate::rate_limit::shared::{BEGIN_LOGIN_SCRIPT, END_LOGIN_SCRIPT, redis_client_key};

/// Time after a login during which the client is exempt from the hourly limit of the email address.
const KNOWN_CLIENT_TTL: Duration = Duration::from_secs(30 * 24 * 3_600);

pub(crate) struct RedisLoginLimits {
    pub(crate) redis: Arc<RedisClient>,
    /// Number of consecutive wrong passwords without a delay; 0 disables the limit.
    pub(crate) free_failures: u64,
    /// Maximum number of wrong passwords for an email address per window; 0 disables the limit.
    pub(crate) max_per_window: u64,
}

/// A running login attempt, which counts as a wrong password in Redis until it ends.
#[derive(Clone, Debug)]
pub(crate) struct RedisLoginAttempt {
    keys: [String; 3],
}

impl RedisLoginLimits {
    /// Begins a login attempt. The inner error is the time to wait before the next attempt.
    pub(crate) async fn begin_attempt(
        &self,
        client: ClientNetwork,
        email_key: &str,
    ) -> Result<Result<RedisLoginAttempt, Duration>, RedisUnavailable> {
        let attempt = self.attempt_keys(client, email_key);
        let mut call = BEGIN_LOGIN_SCRIPT.prepare_invoke();
        call.key(&attempt.keys).arg(self.free_failures).arg(self.max_per_window);
        call.arg(milliseconds(MAX_LOGIN_DELAY)).arg(milliseconds(DELAY_RESET_AFTER));
        call.arg(milliseconds(ACCOUNT_WINDOW)).arg("");
        let (is_allowed, wait_ms): (bool, u64) = self.redis.call(&call).await?;
        Ok(if is_allowed { Ok(attempt) } else { Err(Duration::from_millis(wait_ms)) })
    }

    /// Ends a login attempt with a right or unchecked password. If Redis does not respond, the attempt expires later.
    pub(crate) async fn end_attempt(&self, attempt: &RedisLoginAttempt, was_password_right: bool) {
        let mut call = END_LOGIN_SCRIPT.prepare_invoke();
        call.key(&attempt.keys).arg(u8::from(was_password_right)).arg(milliseconds(KNOWN_CLIENT_TTL)).arg("");
        let _ = self.redis.call::<()>(&call).await;
    }

    fn attempt_keys(&self, client: ClientNetwork, email_key: &str) -> RedisLoginAttempt {
        let prefix = self.redis.key_prefix();
        let hash = |client: &str| {
            let hash = Sha256::new().chain_update(prefix).chain_update([0]).chain_update(client).chain_update([0]);
            hex::encode(&hash.chain_update(email_key).finalize()[..16])
        };
        let pair = hash(&redis_client_key(client));
        let account = hash("");
        let key = |kind: &str, hash: &str| format!("{prefix}:passwords:{kind}:{hash}");
        RedisLoginAttempt { keys: [key("pair", &pair), key("account", &account), key("known", &pair)] }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
