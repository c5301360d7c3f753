//! The rules once more, one character at a time: what the targets compare the service with, where the naive reference of the
//! integration tests has nothing.

pub mod delimited;
pub mod headers;
pub mod parquet;
pub mod path;
pub mod query;
pub mod source;
pub mod url;
