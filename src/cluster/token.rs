//! Tokens and keys from the secret that the servers of a service share (`cluster.secret`), which never leaves a server.
//!
//! A token proves to a server that a request is from another one. It is a time, the name of the sender, and the
//! HMAC-SHA256 of these and of the request. So it is valid for that request at that server, and for a while. Whoever
//! sees it may send the same request there once more meanwhile.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use strata_config::Config;
use strata_types::secret::Secret;
use subtle::ConstantTimeEq;

pub const TOKEN_HEADER: &str = "strata-node-token";

/// How old a token may be, in seconds, by the clock of who is asked.
const GOOD_FOR_S: u64 = 60;

/// How far the caller's clock may be ahead of the server's, in seconds.
const AHEAD_S: u64 = 10;

/// The version of the program. What servers of another one ask may mean something else.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub receiver: &'a str,
    pub method: &'a str,
    pub target: &'a str,
    /// What else counts: for whom the server works, and what is meant.
    pub said: &'a str,
}

#[derive(Clone, Debug)]
pub struct NodeSecret(Secret);

impl NodeSecret {
    pub fn new(secret: Secret) -> NodeSecret {
        NodeSecret(secret)
    }

    pub fn of(config: &Config) -> Option<NodeSecret> {
        config.cluster.secret.as_ref().map(|secret| NodeSecret(secret.secret().clone()))
    }

    /// A key for what servers must compute alike, another one for each.
    pub fn key(&self, what: &str) -> Option<[u8; 16]> {
        let code: [u8; 32] = self.of_parts(&["key", what])?.finalize().into_bytes().into();
        code.first_chunk().copied()
    }

    /// A token of this time, in seconds since 1970.
    pub fn token(&self, sender: &str, claim: &Claim<'_>, now_s: u64) -> Option<String> {
        let time = now_s.to_string();
        let code = self.code(&time, sender, claim)?;
        Some(format!("{time} {sender} {code}"))
    }

    /// Who sent a token with a request that is this, at this time; `None` unless it was made for it.
    pub fn sender<'t>(&self, token: &'t str, claim: &Claim<'_>, now_s: u64) -> Option<&'t str> {
        let mut parts = token.split(' ');
        let time = parts.next()?;
        let sender = parts.next()?;
        let sent = parts.next()?;
        let time_s = time.parse::<u64>().ok()?;
        // Takes the same time for all that are wrong.
        let is_ours = bool::from(self.code(time, sender, claim)?.as_bytes().ct_eq(sent.as_bytes()));
        let is_new = now_s.saturating_sub(time_s) <= GOOD_FOR_S && time_s.saturating_sub(now_s) <= AHEAD_S;
        (is_ours && is_new && parts.next().is_none()).then_some(sender)
    }

    fn code(&self, time: &str, sender: &str, claim: &Claim<'_>) -> Option<String> {
        let Claim { receiver, method, target, said } = *claim;
        let code = self.of_parts(&["token", VERSION, time, sender, receiver, method, target, said])?;
        Some(hex::encode(code.finalize().into_bytes()))
    }

    /// `None` never: HMAC takes keys of any length. The library's type has an error.
    fn of_parts(&self, parts: &[&str]) -> Option<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes()).ok()?;
        for part in parts {
            // The lengths separate the parts.
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part.as_bytes());
        }
        Some(code)
    }
}

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
