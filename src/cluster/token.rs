//! Tokens and keys that are derived from `cluster.secret`, which the nodes of a service share and never send.
//!
//! A token proves that a request comes from another node. It consists of a time, the name of the sender, and the
//! HMAC-SHA256 of both and of the request ([`RequestClaims`]). So a token is valid only for one request to one node,
//! and for at most [`MAX_TOKEN_AGE_S`]. Within that time, an attacker who reads the token can repeat the same request.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use strata_config::Config;
use strata_types::secret::Secret;
use subtle::ConstantTimeEq;

pub const TOKEN_HEADER: &str = "strata-node-token";

/// Maximum age of a token in seconds, by the receiver's clock.
const MAX_TOKEN_AGE_S: u64 = 60;

/// Maximum time in seconds by which the sender's clock can be ahead of the receiver's clock.
const MAX_CLOCK_SKEW_S: u64 = 10;

/// Nodes with another program version might interpret requests, plans and files differently. So their tokens are
/// invalid, and they run no tasks.
pub(crate) const PROGRAM_VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Copy, Debug)]
pub struct RequestClaims<'a> {
    pub receiver: &'a str,
    pub method: &'a str,
    pub target: &'a str,
    pub tenant: &'a str,
}

#[derive(Clone, Debug)]
pub struct NodeSecret(Secret);

impl NodeSecret {
    pub fn new(secret: Secret) -> NodeSecret {
        NodeSecret(secret)
    }

    pub fn from_config(config: &Config) -> Option<NodeSecret> {
        config.cluster.secret.as_ref().map(|secret| NodeSecret(secret.secret().clone()))
    }

    /// Returns a key that is equal on all nodes, and different for each `purpose`.
    pub fn derive_key(&self, purpose: &str) -> Option<[u8; 16]> {
        let code: [u8; 32] = self.compute_mac(&["key", purpose])?.finalize().into_bytes().into();
        code.first_chunk().copied()
    }

    /// Returns a token for a request at `now_s`, in seconds since 1970.
    pub fn create_token(&self, sender: &str, claims: &RequestClaims<'_>, now_s: u64) -> Option<String> {
        let time = now_s.to_string();
        let code = self.token_mac(&time, sender, claims)?;
        Some(format!("{time} {sender} {code}"))
    }

    /// Returns the name of the sender; `None` if the token is not valid for this request at `now_s`.
    pub fn verify_sender<'t>(&self, token: &'t str, claims: &RequestClaims<'_>, now_s: u64) -> Option<&'t str> {
        let mut parts = token.split(' ');
        let time = parts.next()?;
        let sender = parts.next()?;
        let code = parts.next()?;
        let time_s = time.parse::<u64>().ok()?;
        // The authentication codes are compared in constant time, so that the duration does not reveal the correct one.
        let is_authentic = bool::from(self.token_mac(time, sender, claims)?.as_bytes().ct_eq(code.as_bytes()));
        let is_recent =
            now_s.saturating_sub(time_s) <= MAX_TOKEN_AGE_S && time_s.saturating_sub(now_s) <= MAX_CLOCK_SKEW_S;
        (is_authentic && is_recent && parts.next().is_none()).then_some(sender)
    }

    fn token_mac(&self, time: &str, sender: &str, claims: &RequestClaims<'_>) -> Option<String> {
        let RequestClaims { receiver, method, target, tenant } = *claims;
        let code = self.compute_mac(&["token", PROGRAM_VERSION, time, sender, receiver, method, target, tenant])?;
        Some(hex::encode(code.finalize().into_bytes()))
    }

    /// Never returns `None`, because HMAC accepts keys of any length.
    fn compute_mac(&self, parts: &[&str]) -> Option<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes()).ok()?;
        for part in parts {
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part.as_bytes());
        }
        Some(code)
    }
}

pub fn unix_now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
}
