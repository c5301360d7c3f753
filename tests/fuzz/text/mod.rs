//! Fuzz targets of pure functions, one file for each target.

mod decoding;
mod delimited;
mod document;
mod encode;
mod headers;
mod json;
mod keywords;
mod number;
mod parquet;
mod path;
mod push;
mod query;
#[path = "../../support/keywords.rs"]
mod segments;
mod source;
mod url;

use crate::harness::Target;

/// Every target of this binary.
pub const ALL: &[Target] = &[
    ("delimited", delimited::check),
    ("document", document::check),
    ("encode", encode::check),
    ("headers", headers::check),
    ("json", json::check),
    ("keywords", keywords::check),
    ("number", number::check),
    ("parquet", parquet::check),
    ("path", path::check),
    ("push", push::check),
    ("query", query::check),
    ("source", source::check),
    ("url", url::check),
];
