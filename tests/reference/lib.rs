//! The reference implementation of docs/reference/query-semantics.md for the integration tests and fuzz targets. The
//! code works on trees of values, one character at a time. It is slow but obviously correct, and independent of the
//! code under test.
//!
//! | Module | Rules of |
//! |---|---|
//! | `value`, `number`, `rules` | entities, numbers, and each step of a read |
//! | `pipeline`, `sample`, `formats`, `types` | whole reads, seeded samples, formats, types of columns |
//! | `diff`, `changes` | diffs, changes between versions |
//! | `unknown`, `links` | unknown fields and page links of a response |
//! | `query`, `path`, `url`, `headers` | requests: parameters, paths to fields, the address, headers |
//! | `delimited` | CSV and TSV as sources |
//! | `parquet`, `coding` | none; read responses with libraries |
//! | `hostile` | none; generates test data |

pub mod changes;
pub mod checks;
pub mod coding;
pub mod delimited;
pub mod diff;
pub mod formats;
pub mod headers;
pub mod hostile;
pub mod links;
pub mod number;
pub mod parquet;
pub mod path;
pub mod pipeline;
pub mod query;
pub mod rules;
pub mod sample;
pub mod types;
pub mod unknown;
pub mod url;
pub mod value;

pub use value::Value;
