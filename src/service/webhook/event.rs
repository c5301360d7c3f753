//! The POST that tells a dataset's owner of a new version: its body, its signature, and how it is sent once.
//!
//! The catalog knows when a POST is due, where it goes, and its outcome. Rules: docs/reference/webhook-delivery.md,
//! Webhooks.

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use hmac::digest::InvalidLength;
use hmac::{Hmac, KeyInit, Mac};
use serde::Serialize;
use sha2::Sha256;
use strata_types::ids::DatasetId;
use strata_types::secret::Secret;
use strata_types::version::VersionNumber;
use utoipa::ToSchema;

/// A refresh that made a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshEvent {
    pub dataset_id: DatasetId,
    pub dataset_name: String,
    pub version: VersionNumber,
    pub entity_count: u64,
    /// When the refresh was complete.
    pub refreshed_at: DateTime<Utc>,
}

impl RefreshEvent {
    /// The event as receivers get it, in compact JSON.
    pub fn to_json(&self) -> Result<Bytes, serde_json::Error> {
        let payload = WebhookPayload {
            dataset_id: self.dataset_id.get(),
            dataset_name: &self.dataset_name,
            version: self.version.get(),
            entity_count: self.entity_count,
            refreshed_at: self.refreshed_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        };
        serde_json::to_vec(&payload).map(Bytes::from)
    }
}

/// The body of the POST that strata sends for each new version.
#[derive(Serialize, ToSchema)]
pub struct WebhookPayload<'a> {
    /// The ID of the dataset.
    dataset_id: u64,
    /// The name of the dataset.
    dataset_name: &'a str,
    /// The number of the new version.
    version: u64,
    /// The number of entities in the new version.
    entity_count: u64,
    /// When the refresh ended.
    #[schema(format = DateTime)]
    refreshed_at: String,
}

/// The signature shows a receiver that a POST comes from this service and arrived complete.
pub const SIGNATURE_HEADER: &str = "x-service-signature";

/// The HMAC-SHA256 (RFC 2104) of a body, keyed with the secret's bytes, in lower-case hexadecimal digits.
/// Never fails: HMAC takes keys of any length.
pub fn sign(secret: &Secret, body: &[u8]) -> Result<String, InvalidLength> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())?;
    mac.update(body);
    Ok(hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        let check = |key: &str, data: &str, expected: &str| {
            let signature = sign(&Secret::from_stored(key.to_owned()), data.as_bytes());
            assert_eq!(signature.as_deref(), Ok(expected));
        };
        // Test cases 1 and 2, whose keys are text.
        check(&"\u{b}".repeat(20), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        check(
            "Jefe",
            "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
    }
}
