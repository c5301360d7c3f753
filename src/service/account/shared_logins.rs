//! Wrong passwords, counted in Redis: see `login_limits`, which says what is counted and decides the same.
//!
//! Neither addresses nor passwords are in Redis, but a hash of client and address.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use strata_cluster::redis::{NoAnswer, Redis};

use crate::Client;
use crate::account::login_limits::{FORGOTTEN, PAUSE_MAX, WINDOW};
use crate::rate_limit::shared::{BEGIN_LOGIN, END_LOGIN, name_of};

/// For how long a client is known for an e-mail address from its last log-in.
const KNOWN: Duration = Duration::from_secs(30 * 24 * 3_600);

pub(crate) struct SharedLogins {
    pub(crate) redis: Arc<Redis>,
    /// Wrong passwords in a row that are free. 0 switches the bound off.
    pub(crate) free: u64,
    /// Wrong passwords for an address in a window. 0 switches the bound off.
    pub(crate) per_window: u64,
}

/// A log-in under way, which counts as wrong in Redis.
#[derive(Clone, Debug)]
pub(crate) struct SharedAttempt {
    keys: [String; 3],
}

impl SharedLogins {
    /// Begins an attempt, or says how long to wait for the next one.
    pub(crate) async fn begin(
        &self,
        client: Client,
        email_key: &str,
    ) -> Result<Result<SharedAttempt, Duration>, NoAnswer> {
        let attempt = self.attempt(client, email_key);
        let mut call = BEGIN_LOGIN.prepare_invoke();
        call.key(&attempt.keys).arg(self.free).arg(self.per_window);
        call.arg(milliseconds(PAUSE_MAX)).arg(milliseconds(FORGOTTEN)).arg(milliseconds(WINDOW)).arg("");
        let (may, wait_ms): (bool, u64) = self.redis.call(&call).await?;
        Ok(if may { Ok(attempt) } else { Err(Duration::from_millis(wait_ms)) })
    }

    /// The password was right, or was not looked at. Without an answer it stays counted until it is forgotten.
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
        let (pair, account) = (hash(&name_of(client)), hash(""));
        let key = |kind: &str, hash: &str| format!("{prefix}:passwords:{kind}:{hash}");
        SharedAttempt { keys: [key("pair", &pair), key("account", &account), key("known", &pair)] }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
