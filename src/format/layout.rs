//! The columns of a version file, and their description in the file's metadata.
//!
//! A version file is a Parquet file with one row for each entity, in the order of the version, except for entities in
//! the bases of a delta file ([`super::overlay`]):
//!
//! | Column | Type | Content |
//! |---|---|---|
//! | `document` | UTF-8 | canonical text of the entity; small pages, no dictionary |
//! | `hash` | 16 bytes | canonical hash: start of the SHA-256 of the entity without `_source` |
//! | `leaf.N.text` | bytes (UTF-8) | text of the scalar; null for `null`, missing scalars, and [omitted integers] |
//! | `leaf.N.kind` | integer | [`ShreddedKind`] of the scalar |
//! | `leaf.N.number` | double | nearest double of a number, except for [`ShreddedKind::LongInteger`] |
//! | `leaf.N.remainder` | integer | difference between an integer and this double, if not 0 |
//!
//! If the path of an indexed column fans out, its parts are lists with one element per scalar, in document order.
//! Columns without values are omitted. The key-value metadata of the file contains a [`FileLayout`] as JSON under
//! [`LAYOUT_KEY`], and the location of the profile, which is between the row groups and the footer
//! ([`super::profile::PROFILE_KEY`]).
//!
//! [omitted integers]: ShreddedColumn::omits_integer_texts

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use strata_json::EntityHash;
use strata_store::{Result, StorageError};
use strata_types::index_settings::IndexSettings;

use super::overlay::Overlay;

pub const LAYOUT_KEY: &str = "strata";
pub const FORMAT_VERSION: u32 = 1;
/// Separator of scalars in the full text of an entity, and of tokens. The byte does not occur in UTF-8.
pub const TEXT_SEPARATOR: u8 = 0xFF;
pub const DOCUMENT_COLUMN_NAME: &str = "document";
pub const HASH_COLUMN_NAME: &str = "hash";
pub const DOCUMENT_COLUMN_INDEX: usize = 0;
pub const HASH_COLUMN_INDEX: usize = 1;
const FIXED_COLUMN_COUNT: usize = 2;

/// Kind of the value of an indexed column in one entity, or of one element if the path fans out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ShreddedKind {
    /// The value is `null`. The lowest kind, so that the minimum of a chunk shows whether `null` occurs.
    Null = 0,
    Missing = 1,
    Boolean = 2,
    String = 3,
    Number = 4,
    /// An integer whose difference from its nearest double does not fit into the remainder. Equality needs the text of
    /// the integer, and the order needs the document.
    LongInteger = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShreddedPart {
    Text,
    Kind,
    Number,
    Remainder,
}

impl ShreddedPart {
    pub const ALL: [ShreddedPart; 4] =
        [ShreddedPart::Text, ShreddedPart::Kind, ShreddedPart::Number, ShreddedPart::Remainder];

    pub fn column_name(self, shredded: usize) -> String {
        let suffix = match self {
            ShreddedPart::Text => "text",
            ShreddedPart::Kind => "kind",
            ShreddedPart::Number => "number",
            ShreddedPart::Remainder => "remainder",
        };
        format!("leaf.{shredded}.{suffix}")
    }

    pub fn data_type(self) -> DataType {
        match self {
            // Strings are stored as binary values, so that readers need not validate UTF-8.
            ShreddedPart::Text => DataType::Binary,
            ShreddedPart::Kind => DataType::UInt8,
            ShreddedPart::Number => DataType::Float64,
            ShreddedPart::Remainder => DataType::Int64,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShreddedColumn {
    pub keys: Vec<String>,
    /// Whether the path leads through an array in an entity. The parts of the column are then lists.
    pub fans_out: bool,
    /// Whether the column has few distinct strings, so that readers decode them to a dictionary.
    pub dictionary: bool,
    /// Whether a text can differ from its case-folded form, so that readers must fold the texts to compare them.
    pub needs_folding: bool,
    pub has_numbers: bool,
    /// Whether a delta added values that this indexed column cannot represent. Readers must then ignore the column.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
}

impl ShreddedColumn {
    /// Whether the texts of 64-bit integers without a fraction or exponent, except `-0`, are null, because readers can
    /// derive them from the number and the remainder. In a dictionary, they take little space.
    pub fn omits_integer_texts(&self) -> bool {
        self.has_numbers && !self.dictionary
    }

    pub fn has_part(&self, part: ShreddedPart) -> bool {
        match part {
            ShreddedPart::Text | ShreddedPart::Kind => true,
            ShreddedPart::Number | ShreddedPart::Remainder => self.has_numbers,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    pub format_version: u32,
    pub entity_count: u64,
    pub document_bytes: u64,
    /// Hexadecimal SHA-256 of all documents of the version, in order, each followed by a line feed. For an edited
    /// version, [`Overlay::content_sha256`].
    pub content_sha256: String,
    #[serde(default, skip_serializing_if = "IndexSettings::is_empty")]
    pub index: IndexSettings,
    #[serde(rename = "leaves")]
    pub shredded_columns: Vec<ShreddedColumn>,
    /// Set in a delta file. All other fields then describe the whole version, including the entities in the bases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<Overlay>,
}

impl FileLayout {
    pub fn schema(&self) -> SchemaRef {
        self.schema_with_types(|_, part| part.data_type())
    }

    pub(super) fn schema_with_types(&self, data_type: impl Fn(&ShreddedColumn, ShreddedPart) -> DataType) -> SchemaRef {
        let shredded_field = |(number, part): (usize, ShreddedPart)| {
            let shredded = &self.shredded_columns[number];
            // A missing scalar has the kind `Missing`, so `kind` is never null.
            let nullable = part != ShreddedPart::Kind;
            let data_type = data_type(shredded, part);
            if !shredded.fans_out {
                return Field::new(part.column_name(number), data_type, nullable);
            }
            Field::new_list(part.column_name(number), Field::new("element", data_type, nullable), false)
        };
        let fields = [
            Field::new(DOCUMENT_COLUMN_NAME, DataType::Utf8, false),
            Field::new(HASH_COLUMN_NAME, DataType::FixedSizeBinary(size_of::<EntityHash>() as i32), false),
        ];
        Arc::new(Schema::new(fields.into_iter().chain(self.shredded_parts().map(shredded_field)).collect::<Vec<_>>()))
    }

    fn shredded_parts(&self) -> impl Iterator<Item = (usize, ShreddedPart)> {
        self.shredded_columns.iter().enumerate().flat_map(|(number, shredded)| {
            ShreddedPart::ALL.into_iter().filter(move |part| shredded.has_part(*part)).map(move |part| (number, part))
        })
    }

    pub fn column_index(&self, shredded: usize, column: ShreddedPart) -> Option<usize> {
        self.shredded_parts().position(|part| part == (shredded, column)).map(|index| FIXED_COLUMN_COUNT + index)
    }

    pub fn find_shredded(&self, keys: &[String]) -> Option<usize> {
        self.shredded_columns.iter().position(|shredded| shredded.keys == keys && !shredded.retired)
    }

    pub fn stored_row_count(&self) -> u64 {
        self.overlay.as_ref().map_or(self.entity_count, Overlay::own_entity_count)
    }

    pub fn parse(text: &str) -> Result<FileLayout> {
        let layout: FileLayout = serde_json::from_str(text)
            .map_err(|error| StorageError::InvalidFile(format!("invalid metadata: {error}")))?;
        let version = layout.format_version;
        if version != FORMAT_VERSION {
            let cause = format!("it has format {version}, but this build supports only format {FORMAT_VERSION}");
            return Err(StorageError::InvalidFile(cause));
        }
        if layout.overlay.as_ref().is_some_and(|overlay| layout.entity_count != overlay.entity_count()) {
            return Err(StorageError::InvalidFile("its metadata is inconsistent".to_owned()));
        }
        Ok(layout)
    }
}

pub(super) fn to_json_string(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StorageError::InvalidFile(error.to_string()))
}

/// Parses a JSON record of an optional section. Returns `None` for another format, which readers ignore.
pub(super) fn parse_if_format<R: DeserializeOwned>(text: &str, format: u32) -> Result<Option<R>, serde_json::Error> {
    #[derive(Deserialize)]
    struct FormatRecord {
        format: u32,
    }
    let record: FormatRecord = serde_json::from_str(text)?;
    if record.format == format { serde_json::from_str(text).map(Some) } else { Ok(None) }
}
