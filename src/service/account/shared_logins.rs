//! Counts wrong passwords in Redis, and decides as `login_limits` does. Redis contains no email addresses and no
//! passwords, only hashes of client and address.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use strata_cluster::redis::{NoAnswer, Redis};

use crate::Client;
use crate::account::login_limits::{FORGOTTEN, MAX_PAUSE, WINDOW};
use crate::rate_limit::shared::{BEGIN_LOGIN, END_LOGIN, name_of};

/// The time after a login for which a client is known for an email address.
const KNOWN: Duration = Duration::from_secs(30 * 24 * 3_600);

pub(crate) struct SharedLogins {
    pub(crate) redis: Arc<Redis>,
    /// Free wrong passwords in a row. 0 disables the limit.
    pub(crate) free: u64,
    /// Wrong passwords for an address in a window. 0 disables the limit.
    pub(crate) per_window: u64,
}

/// A running login, which counts as wrong in Redis.
#[derive(Clone, Debug)]
pub(crate) struct SharedAttempt {
    keys: [String; 3],
}

impl SharedLogins {
    /// Begins an attempt. The inner error is the time to wait before the next attempt.
    pub(crate) async fn begin(
        &self,
        client: Client,
        email_key: &str,
    ) -> Result<Result<SharedAttempt, Duration>, NoAnswer> {
        let attempt = self.attempt(client, email_key);
        let mut call = BEGIN_LOGIN.prepare_invoke();
        call.key(&attempt.keys).arg(self.free).arg(self.per_window);
        call.arg(milliseconds(MAX_PAUSE)).arg(milliseconds(FORGOTTEN)).arg(milliseconds(WINDOW)).arg("");
        let (may, wait_ms): (bool, u64) = self.redis.call(&call).await?;
        Ok(if may { Ok(attempt) } else { Err(Duration::from_millis(wait_ms)) })
    }

    /// The password was right, or was not checked. If Redis does not respond, the attempt stays counted until it
    /// expires.
    pub(crate) async fn end(&self, attempt: &SharedAttempt, was_right: bool) {
        let mut call = END_LOGIN.prepare_invoke();
        call.key(&attempt.keys).arg(u8::from(was_right)).arg(milliseconds(KNOWN)).arg("");
        let _ = self.redis.call::<()>(&call).await;
    }

    fn attempt(&self, client: Client, email_key: &str) -> SharedAttempt {
        let prefix = self.redis.prefix();
        let hash = |client: &str| {
            let hash = Sha256::new().chain_update(prefix).chain_update([0]).chain_update(client).chain_update([0]);
            hex::encode(&hash.chain_update(email_key).finalize()[..16])
        };
        let pair = hash(&name_of(client));
        let account = hash("");
        let key = |kind: &str, hash: &str| format!("{prefix}:passwords:{kind}:{hash}");
        SharedAttempt { keys: [key("pair", &pair), key("account", &account), key("known", &pair)] }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
