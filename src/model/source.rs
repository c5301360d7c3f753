//! What a source is made of: the format its entities are written in and the compression around it.
//!
//! Both are names that users give (`--format`, the `format` key of a dataset) and that records keep, so
//! they parse and print as one lower-case word each (decisions section 6).

use std::fmt;
use std::str::FromStr;

/// The formats a source can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceFormat {
    /// One JSON array of objects, or an object that holds such an array at a given path.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated cells with a header line (RFC 4180).
    Csv,
    /// Tab-separated cells with a header line, quoted as in CSV.
    Tsv,
    /// Apache Parquet, one entity per row.
    Parquet,
}

impl SourceFormat {
    /// Every format, in the order in which documentation and messages list them.
    pub const ALL: [SourceFormat; 5] =
        [SourceFormat::Json, SourceFormat::Jsonl, SourceFormat::Csv, SourceFormat::Tsv, SourceFormat::Parquet];

    /// The format's name: `json`, `jsonl`, `csv`, `tsv` or `parquet`.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::Json => "json",
            SourceFormat::Jsonl => "jsonl",
            SourceFormat::Csv => "csv",
            SourceFormat::Tsv => "tsv",
            SourceFormat::Parquet => "parquet",
        }
    }
}

impl fmt::Display for SourceFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A word that names no source format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a source format; valid are json, jsonl, csv, tsv, parquet")]
pub struct UnknownSourceFormat(pub String);

impl FromStr for SourceFormat {
    type Err = UnknownSourceFormat;

    /// Parses a format's exact, lower-case name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        SourceFormat::ALL
            .into_iter()
            .find(|format| format.name() == text)
            .ok_or_else(|| UnknownSourceFormat(text.to_owned()))
    }
}

/// The compression around a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compression {
    /// The bytes are the format's own.
    None,
    /// One gzip member or several, one after the other (RFC 1952).
    Gzip,
    /// One Zstandard frame or several, one after the other (RFC 8878).
    Zstd,
}

impl Compression {
    /// The compression's name: `none`, `gzip` or `zstd`.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }

    /// The compression that a stream's first bytes announce; four bytes are enough. No source format
    /// starts with either magic number, so what looks compressed is.
    pub fn detect(first_bytes: &[u8]) -> Compression {
        match first_bytes {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A skippable frame, with which parallel compressors begin.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
