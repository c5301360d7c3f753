//! What proves that a request is from a node of this service: a time, and its HMAC with the secret that nodes share.
//! The secret itself never leaves a node.

use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::secret::Secret;

/// The header that carries the token.
pub(super) const TOKEN_HEADER: &str = "strata-node-token";

/// How far the clocks of two nodes may be apart, and how long a token is good.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The secret that nodes share.
#[derive(Clone, Debug)]
pub(super) struct NodeSecret(Secret);

impl NodeSecret {
    pub(super) fn new(secret: Secret) -> NodeSecret {
        NodeSecret(secret)
    }

    /// A token of this time, in seconds since 1970, for requests of a version of the program.
    pub(super) fn token(&self, version: &str, now: u64) -> Option<String> {
        Some(format!("{now}.{}", hex::encode(self.mac(version, now)?.finalize().into_bytes())))
    }

    /// Whether a token is good at this time.
    pub(super) fn accepts(&self, token: &str, version: &str, now: u64) -> bool {
        let Some((time, mac)) = token.split_once('.') else { return false };
        let (Ok(time), Ok(mac)) = (time.parse::<u64>(), hex::decode(mac)) else { return false };
        // Takes the same time for all that are wrong.
        let is_ours = self.mac(version, time).is_some_and(|ours| ours.verify_slice(&mac).is_ok());
        is_ours && now.abs_diff(time) <= GOOD_FOR.as_secs()
    }

    /// `None` never: HMAC takes keys of any length. The library's type has an error.
    fn mac(&self, version: &str, time: u64) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes()).ok()?;
        mac.update(format!("strata node {version} {time}").as_bytes());
        Some(mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> NodeSecret {
        NodeSecret::new(Secret::from_stored(text.to_owned()))
    }

    #[test]
    fn a_token_is_good_for_a_while_with_the_secret_and_the_version_that_made_it() {
        let (ours, now) = (secret("sesame"), 1_700_000_000);
        let token = ours.token("1.0.0", now).expect("a token");
        for (time, good) in [(now, true), (now + 60, true), (now - 60, true), (now + 61, false), (now - 61, false)] {
            assert_eq!(ours.accepts(&token, "1.0.0", time), good, "{time}");
        }
        assert!(!secret("another").accepts(&token, "1.0.0", now));
        assert!(!ours.accepts(&token, "1.0.1", now));
    }

    #[test]
    fn texts_that_are_no_tokens_are_refused() {
        let (ours, now) = (secret("sesame"), 1_700_000_000);
        let token = ours.token("1.0.0", now).expect("a token");
        let moved = token.replacen("1700000000", "1700000001", 1);
        let cut = &token[..token.len() - 2];
        for wrong in ["", ".", "1700000000", "1700000000.", "1700000000.zz", "-1.00", "sesame", &moved, cut] {
            assert!(!ours.accepts(wrong, "1.0.0", now), "{wrong:?}");
        }
    }
}
