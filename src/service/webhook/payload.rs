//! The body and the signature of a webhook POST; see docs/reference/webhook-delivery.md.

use chrono::{DateTime, SecondsFormat, Utc};
use hmac::digest::InvalidLength;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Serialize, Serializer};
use sha2::Sha256;
use strata_types::secret::Secret;
use utoipa::ToSchema;

/// The body of the POST that strata sends for each new version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WebhookPayload {
    /// The ID of the dataset.
    pub dataset_id: u64,
    /// The name of the dataset.
    pub dataset_name: String,
    /// The number of the new version.
    pub version: u64,
    /// The number of entities in the new version.
    pub entity_count: u64,
    /// When the refresh ended.
    #[serde(serialize_with = "serialize_time")]
    #[schema(value_type = String, format = DateTime)]
    pub refreshed_at: DateTime<Utc>,
}

fn serialize_time<S: Serializer>(time: &DateTime<Utc>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
}

/// The header with the signature, which lets the receiver authenticate the POST.
pub const SIGNATURE_HEADER: &str = "x-service-signature";

/// Returns the HMAC-SHA256 (RFC 2104) of a body in hexadecimal. Never fails, because keys can have any length.
pub fn sign_body(secret: &Secret, body: &[u8]) -> Result<String, InvalidLength> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())?;
    mac.update(body);
    Ok(hex::encode(mac.finalize().into_bytes()))
}
