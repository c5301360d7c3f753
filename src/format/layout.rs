//! The columns of a version file, and what its metadata says about them.
//!
//! A version file is one Parquet file with a row per entity, in the version's order:
//!
//! | Column | Type | Holds |
//! |---|---|---|
//! | `document` | UTF-8 | the entity's canonical compact JSON text, exact; small pages, no dictionary |
//! | `search` | bytes | every scalar's text, folded, each after a byte `0xFF`, and one more at the end |
//! | `hash` | 32 bytes | SHA-256 of the canonical form without `_source` |
//! | `leaf.N.text` | bytes (UTF-8) | folded text of the scalar that the path of shredded column N reaches; null for null and nothing |
//! | `leaf.N.exact` | bytes (UTF-8) | its exact text, only where folding changed it |
//! | `leaf.N.kind` | integer | its [`ShreddedKind`] |
//! | `leaf.N.number` | double | the nearest double of a number, but for [`ShreddedKind::LongInteger`] |
//! | `leaf.N.remainder` | integer | an integer less that double, where that is not 0 |
//!
//! The five parts of a shredded column whose path fans out are lists: one element per scalar, in document order.
//! Columns that would be empty throughout are left out. The file's key-value metadata holds a [`Layout`] as
//! JSON under [`METADATA_KEY`], and the location of the version's profile, which is between the row groups and the
//! footer ([`super::profile::PROFILE_KEY`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strata_store::{Result, StorageError};
use strata_types::index::IndexSettings;

use super::overlay::Edit;

pub const METADATA_KEY: &str = "strata";

/// The format of version files. A reader refuses any other.
pub const FORMAT_VERSION: u32 = 1;

/// The separator in the search text: a byte that no UTF-8 text holds.
pub const SEPARATOR: u8 = 0xFF;

pub const DOCUMENT: &str = "document";
pub const SEARCH: &str = "search";
pub const HASH: &str = "hash";

/// The places of these columns in every file.
pub const DOCUMENT_COLUMN: usize = 0;
pub const SEARCH_COLUMN: usize = 1;
pub const HASH_COLUMN: usize = 2;

/// Shredded columns come after these.
const FIXED_COLUMNS: usize = 3;

/// What stands at a shredded column's path in one entity, or is one element of a fanned-out shredded column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ShreddedKind {
    /// The path reaches `null`. The lowest, so that a chunk's minimum tells whether it holds any.
    Null = 0,
    Nothing = 1,
    Boolean = 2,
    String = 3,
    /// A number whose double and remainder are its value.
    Number = 4,
    /// An integer whose remainder does not fit: it equals only what has its text, and the document decides its order.
    LongInteger = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShreddedPart {
    Text,
    Exact,
    Kind,
    Number,
    Remainder,
}

impl ShreddedPart {
    pub const ALL: [ShreddedPart; 5] =
        [ShreddedPart::Text, ShreddedPart::Exact, ShreddedPart::Kind, ShreddedPart::Number, ShreddedPart::Remainder];

    pub fn name(self, shredded: usize) -> String {
        let suffix = match self {
            ShreddedPart::Text => "text",
            ShreddedPart::Exact => "exact",
            ShreddedPart::Kind => "kind",
            ShreddedPart::Number => "number",
            ShreddedPart::Remainder => "remainder",
        };
        format!("leaf.{shredded}.{suffix}")
    }

    pub fn data_type(self) -> DataType {
        match self {
            // Bytes, so that readers need not validate what the writer knows to be UTF-8.
            ShreddedPart::Text | ShreddedPart::Exact => DataType::Binary,
            ShreddedPart::Kind => DataType::UInt8,
            ShreddedPart::Number => DataType::Float64,
            ShreddedPart::Remainder => DataType::Int64,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShreddedColumn {
    pub keys: Vec<String>,
    /// Whether the path goes through an array in some entity: the columns are lists.
    pub fans_out: bool,
    /// Whether few distinct texts occur, so that readers keep codes into a dictionary.
    pub dictionary: bool,
    /// Whether folding changes some text: there is an `exact` column.
    pub has_exact: bool,
    /// Whether numbers occur: there are `number` and `remainder` columns.
    pub has_numbers: bool,
    /// Whether an edit brought values that these columns cannot hold, so that nobody may ask them any more: the columns
    /// of the base say nothing of what came, and those of an edited file say nothing at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

impl ShreddedColumn {
    pub fn has(&self, column: ShreddedPart) -> bool {
        match column {
            ShreddedPart::Text | ShreddedPart::Kind => true,
            ShreddedPart::Exact => self.has_exact,
            ShreddedPart::Number | ShreddedPart::Remainder => self.has_numbers,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    pub format_version: u32,
    pub entity_count: u64,
    pub document_bytes: u64,
    /// Hex SHA-256 over every document, in order, each followed by a line feed.
    pub content_sha256: String,
    #[serde(default, skip_serializing_if = "IndexSettings::is_empty")]
    pub index: IndexSettings,
    /// The shredded paths. A shredded column's number is its place here.
    #[serde(rename = "leaves")]
    pub shredded_columns: Vec<ShreddedColumn>,
    /// Of an edited file: what makes its list. All other fields are about the list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<Edit>,
}

impl Layout {
    pub fn schema(&self) -> SchemaRef {
        self.schema_with(|_, part| part.data_type())
    }

    /// The same with other types of the parts of shredded columns, or of their elements.
    pub(super) fn schema_with(&self, data_type: impl Fn(&ShreddedColumn, ShreddedPart) -> DataType) -> SchemaRef {
        let shredded_field = |(number, part): (usize, ShreddedPart)| {
            let shredded = &self.shredded_columns[number];
            // `kind` says `Nothing` where a scalar shredded column has no value, so it is never null itself.
            let nullable = part != ShreddedPart::Kind;
            match shredded.fans_out {
                true => {
                    let element = Field::new("element", data_type(shredded, part), nullable);
                    Field::new_list(part.name(number), element, false)
                }
                false => Field::new(part.name(number), data_type(shredded, part), nullable),
            }
        };
        let fields = [
            Field::new(DOCUMENT, DataType::Utf8, false),
            Field::new(SEARCH, DataType::Binary, false),
            Field::new(HASH, DataType::FixedSizeBinary(32), false),
        ];
        Arc::new(Schema::new(fields.into_iter().chain(self.parts().map(shredded_field)).collect::<Vec<_>>()))
    }

    /// The parts of shredded columns, each with its column's number, in the order of the file's columns.
    fn parts(&self) -> impl Iterator<Item = (usize, ShreddedPart)> {
        self.shredded_columns.iter().enumerate().flat_map(|(number, shredded)| {
            ShreddedPart::ALL.into_iter().filter(move |part| shredded.has(*part)).map(move |part| (number, part))
        })
    }

    /// The column's place among the fields of [`Layout::schema`], and so its root in the Parquet schema.
    pub fn column_index(&self, shredded: usize, column: ShreddedPart) -> Option<usize> {
        self.parts().position(|part| part == (shredded, column)).map(|place| FIXED_COLUMNS + place)
    }

    pub fn shredded(&self, keys: &[String]) -> Option<usize> {
        self.shredded_columns.iter().position(|shredded| shredded.keys == keys && !shredded.retired)
    }

    pub fn own_entities(&self) -> u64 {
        self.edit.as_ref().map_or(self.entity_count, Edit::own_entities)
    }

    pub fn parse(text: &str) -> Result<Layout> {
        let layout: Layout =
            serde_json::from_str(text).map_err(|error| StorageError::Layout(format!("invalid metadata: {error}")))?;
        if layout.format_version != FORMAT_VERSION {
            let version = layout.format_version;
            return Err(StorageError::Layout(format!(
                "it has format {version}, but this build supports only format {FORMAT_VERSION}"
            )));
        }
        let is_consistent = layout.edit.as_ref().is_none_or(|edit| {
            layout.entity_count == edit.entity_count() && layout.content_sha256 == edit.content_sha256()
        });
        if is_consistent { Ok(layout) } else { Err(StorageError::Layout("its metadata is inconsistent".to_owned())) }
    }
}

pub(super) fn json_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StorageError::Layout(error.to_string()))
}

/// What the footer says of a section that readers can do without, if it is of this format; a reader passes over any
/// other. It is JSON that begins with the number of its format.
pub(super) fn section_record<R: DeserializeOwned>(text: &str, format: u32) -> Result<Option<R>, serde_json::Error> {
    #[derive(Deserialize)]
    struct FormatRecord {
        format: u32,
    }
    let found: FormatRecord = serde_json::from_str(text)?;
    if found.format == format { serde_json::from_str(text).map(Some) } else { Ok(None) }
}
