//! The reference implementation, which the integration tests and the fuzz targets share: the rules of
//! docs/reference/query-semantics.md once more, over trees of values and one character at a time. It is written to be
//! obviously right, is slow, and is independent of the code it checks.
//!
//! | Module | Rules of |
//! |---|---|
//! | `value`, `number`, `rules` | entities, numbers, and each step of a read |
//! | `pipeline`, `sample`, `formats`, `types`, `diff` | whole reads, seeded samples, formats, types of columns, diffs |
//! | `unknown`, `links` | what is told beside a read: the paths that it names in vain, the pages beside it |
//! | `query`, `path`, `url`, `headers` | requests: parameters, paths to fields, the address, headers |
//! | `delimited` | CSV and TSV as sources |
//! | `parquet`, `coding` | nothing: they read answers by libraries |
//! | `hostile` | nothing: it generates what to compare over |

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
