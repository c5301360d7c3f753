//! What the footer says of a section that readers can do without: JSON that begins with the number of its format.

use serde::Deserialize;
use serde::de::DeserializeOwned;

#[derive(Deserialize)]
struct FormatRecord {
    format: u32,
}

/// The record of a section, if it is of this format; a reader passes over any other.
pub(super) fn record<R: DeserializeOwned>(text: &str, format: u32) -> Result<Option<R>, serde_json::Error> {
    let found: FormatRecord = serde_json::from_str(text)?;
    if found.format == format { serde_json::from_str(text).map(Some) } else { Ok(None) }
}
