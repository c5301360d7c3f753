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
