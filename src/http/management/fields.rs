//! Fields that endpoints of several modules take.

use serde_json::json;

use super::DATASET_ID as DATASET_ID_NAME;
use crate::http::endpoint::{Field, FieldKind};
use crate::model::source::SourceFormat;

/// One of the caller's datasets.
pub(super) const DATASET_ID: Field =
    Field::required(DATASET_ID_NAME, FieldKind::Id, "One of the caller's datasets.", || json!(1));

/// The name of a new dataset.
pub(super) const NAME: Field = Field::required(
    "name",
    FieldKind::DatasetName,
    "Its name, unique among the caller's, with a letter or digit in it.",
    || json!("World Countries"),
);

/// The name of the member that numbers a version.
pub(super) const VERSION_NAME: &str = "version";

/// A version that must be named by its number.
pub(super) const VERSION: Field =
    Field::required(VERSION_NAME, FieldKind::Id, "The number of one of its versions.", || json!(1));

/// The entities of an alternate.
pub(super) const ENTITIES: Field = Field::required(
    "entities",
    FieldKind::Entities,
    "The entities, in their order.",
    || json!([{ "name": "Aruba", "area": 180 }]),
);

pub(super) fn source_formats() -> Vec<&'static str> {
    SourceFormat::ALL.map(SourceFormat::name).to_vec()
}
