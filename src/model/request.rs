//! What one read asks for, after parsing and before anything is resolved: plain data, no I/O.

use super::path::Path;

/// The serialization of a response (specification, "Response formats").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One array of entities, `application/json`.
    Json,
    /// One compact entity per line, `application/x-ndjson`.
    Jsonl,
}

impl Format {
    /// Every format, in the order in which documentation lists them.
    pub const ALL: [Format; 2] = [Format::Json, Format::Jsonl];

    /// The name in a URL, which is also the file name extension.
    pub fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Jsonl => "jsonl",
        }
    }

    /// The `Content-Type` of a body, exactly as the specification writes it.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Jsonl => "application/x-ndjson",
        }
    }
}

/// A path and the text it is compared with (`filter`, `filter_contains`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathValue {
    /// Where to look.
    pub path: Path,
    /// The value as it came, not folded.
    pub value: String,
}

/// The parameters of a read, with defaults applied. Fields stand in the specification's processing order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// `filter`: all must match.
    pub filters: Vec<PathValue>,
    /// `filter_contains`: all must match.
    pub filters_contain: Vec<PathValue>,
    /// `offset`: entities skipped.
    pub offset: u64,
    /// `limit`: most entities returned; `None` is all.
    pub limit: Option<u64>,
    /// `format`.
    pub format: Format,
    /// `pretty`: indented JSON.
    pub pretty: bool,
    /// `count`: answer only the number of entities.
    pub count: bool,
    /// `alt`, or the path suffix `/alt/`.
    pub alt: bool,
}

impl Default for ReadRequest {
    fn default() -> Self {
        ReadRequest {
            filters: Vec::new(),
            filters_contain: Vec::new(),
            offset: 0,
            limit: None,
            format: Format::Json,
            pretty: true,
            count: false,
            alt: false,
        }
    }
}
