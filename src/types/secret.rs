//! Keys and tokens: how they are made from random bytes, compared and hashed.
//!
//! Everything here is pure: the caller draws the bytes from a cryptographically secure generator.

use std::fmt;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub const SECRET_BYTES: usize = 32;

/// A key or token that gives access to its holder. `Debug` does not show it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub const API_TOKEN_PREFIX: &'static str = "strata_";

    /// The key for reading a private dataset: `sk_` and 64 hexadecimal digits.
    pub fn private_key(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("sk_", random)
    }

    /// The token in a dataset's ping URL: `ping_` and 64 hexadecimal digits.
    pub fn ping_token(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("ping_", random)
    }

    /// A user's API token: `strata_` and 64 hexadecimal digits.
    pub fn api_token(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix(Secret::API_TOKEN_PREFIX, random)
    }

    /// The id of a session: 64 hexadecimal digits.
    pub fn session_id(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("", random)
    }

    pub fn is_session_id(text: &str) -> bool {
        text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// An earlier secret, read back from storage.
    pub fn from_stored(text: String) -> Secret {
        Secret(text)
    }

    /// The secret itself, for its owner or for storage.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this secret. Takes the same time for any wrong text of one length. The length is public.
    pub fn matches(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }

    /// The SHA-256 of the secret as lower-case hexadecimal digits, for storage of secrets that the service need not
    /// show again. A plain hash is enough, because 256 random bits cannot be guessed from it.
    pub fn hash(&self) -> String {
        hex::encode(Sha256::digest(self.0.as_bytes()))
    }

    fn with_prefix(prefix: &str, random: [u8; SECRET_BYTES]) -> Secret {
        Secret(format!("{prefix}{}", hex::encode(random)))
    }
}

impl PartialEq for Secret {
    /// As [`Secret::matches`], so that no comparison of secrets tells more.
    fn eq(&self, other: &Secret) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_its_prefix_and_the_bytes_in_hexadecimal() {
        let random = [0xab; SECRET_BYTES];
        let digits = "ab".repeat(SECRET_BYTES);
        for (secret, prefix) in [
            (Secret::private_key(random), "sk_"),
            (Secret::ping_token(random), "ping_"),
            (Secret::api_token(random), "strata_"),
        ] {
            assert_eq!(secret.expose(), format!("{prefix}{digits}"));
        }
    }

    #[test]
    fn session_id_has_its_own_form() {
        let id = Secret::session_id([0xab; SECRET_BYTES]);
        assert!(Secret::is_session_id(id.expose()));
        let id = id.expose();
        for other in ["", &id[1..], &id.to_uppercase(), &format!("{id}0"), &format!("{}g", &id[1..])] {
            assert!(!Secret::is_session_id(other), "{other:?}");
        }
    }

    #[test]
    fn only_the_same_text_matches() {
        let secret = Secret::from_stored("sk_00ff".to_owned());
        assert!(secret.matches("sk_00ff"));
        for other in ["", "sk_00fe", "Sk_00ff", "sk_00f", "sk_00ff0", " sk_00ff", "xk_00ff"] {
            assert!(!secret.matches(other), "{other:?}");
        }
    }

    #[test]
    fn the_hash_is_sha_256() {
        assert_eq!(
            Secret::from_stored("abc".to_owned()).hash(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn debug_does_not_show_it() {
        let secret = Secret::private_key([1; SECRET_BYTES]);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
