//! `count=true`: one JSON object in place of the entities (docs/semantics.md, count).

use crate::model::ids::DatasetId;
use crate::model::version::VersionNumber;

/// `{"count":…,"dataset_id":…,"version":N,"alt":…}`, indented when `pretty`.
pub fn count(count: u64, dataset: DatasetId, version: VersionNumber, alt: bool, pretty: bool) -> String {
    if pretty {
        format!(
            "{{\n  \"count\": {count},\n  \"dataset_id\": {dataset},\n  \"version\": {version},\n  \"alt\": {alt}\n}}"
        )
    } else {
        format!("{{\"count\":{count},\"dataset_id\":{dataset},\"version\":{version},\"alt\":{alt}}}")
    }
}
