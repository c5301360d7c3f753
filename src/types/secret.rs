//! Keys and tokens. The caller draws the random bytes from a cryptographically secure generator.

use std::fmt;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub const SECRET_BYTES: usize = 32;

/// A key or token. `Debug` does not show it.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub const API_TOKEN_PREFIX: &'static str = "strata_";

    pub fn new_private_key(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("sk_", random)
    }

    pub fn new_ping_token(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("ping_", random)
    }

    pub fn new_api_token(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix(Secret::API_TOKEN_PREFIX, random)
    }

    pub fn new_session_id(random: [u8; SECRET_BYTES]) -> Secret {
        Secret::with_prefix("", random)
    }

    pub fn is_session_id(text: &str) -> bool {
        text.len() == 2 * SECRET_BYTES && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    }

    pub fn from_stored(text: String) -> Secret {
        Secret(text)
    }

    /// Returns the secret as plain text, for its owner or for storage.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Compares a presented secret in constant time for all texts of one length.
    pub fn constant_time_eq(&self, presented: &str) -> bool {
        self.0.as_bytes().ct_eq(presented.as_bytes()).into()
    }

    /// Returns the SHA-256 hash of the secret in lowercase hexadecimal digits. A plain hash suffices, because 256
    /// random bits cannot be guessed.
    pub fn sha256_hex(&self) -> String {
        hex::encode(Sha256::digest(self.0.as_bytes()))
    }

    fn with_prefix(prefix: &str, random: [u8; SECRET_BYTES]) -> Secret {
        Secret(format!("{prefix}{}", hex::encode(random)))
    }
}

impl PartialEq for Secret {
    /// Compares secrets with [`Secret::constant_time_eq`], so that the duration reveals at most the length.
    fn eq(&self, other: &Secret) -> bool {
        self.constant_time_eq(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(..)")
    }
}
