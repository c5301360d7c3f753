//! The body of the POST.

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::Serialize;

use crate::model::ids::DatasetId;
use crate::model::version::VersionNumber;

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

/// The event as receivers get it; the order of the fields is that of docs/semantics.md, Webhooks.
#[derive(Serialize)]
struct Payload<'a> {
    dataset_id: u64,
    dataset_name: &'a str,
    version: u64,
    entity_count: u64,
    refreshed_at: String,
}

impl RefreshEvent {
    /// The event as compact JSON, the time in RFC 3339, UTC, to the millisecond.
    pub fn to_json(&self) -> Result<Bytes, serde_json::Error> {
        let payload = Payload {
            dataset_id: self.dataset_id.get(),
            dataset_name: &self.dataset_name,
            version: self.version.get(),
            entity_count: self.entity_count,
            refreshed_at: self.refreshed_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        };
        serde_json::to_vec(&payload).map(Bytes::from)
    }
}
