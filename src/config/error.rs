//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a configuration cannot be used. Every text names the place of the value, the key, and what would be right. None
/// shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists, or was asked for, and cannot be read.
    #[error("the configuration file {} cannot be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {reason}", path.display())]
    Syntax {
        path: PathBuf,
        /// The parser's message with line and column.
        reason: String,
    },
    #[error("{origin}: unknown key `{key}`; {known}")]
    UnknownKey {
        origin: String,
        /// The key, `section.name` or only `section`.
        key: String,
        known: String,
    },
    /// A value of the wrong type, out of range, or not understood.
    #[error("{origin}: `{key}`: {reason}")]
    Value { origin: String, key: String, reason: String },
}
