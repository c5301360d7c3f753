//! The body of the POST.

use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;

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

impl RefreshEvent {
    /// The event as receivers get it, in compact JSON: the order of the fields is that of docs/semantics.md, Webhooks;
    /// the time is in RFC 3339, UTC, to the millisecond.
    pub fn to_json(&self) -> Result<Bytes, serde_json::Error> {
        let payload = json!({
            "dataset_id": self.dataset_id.get(),
            "dataset_name": self.dataset_name,
            "version": self.version.get(),
            "entity_count": self.entity_count,
            "refreshed_at": self.refreshed_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        });
        serde_json::to_vec(&payload).map(Bytes::from)
    }
}
