//! Why a configuration cannot be used.

use std::io;
use std::path::PathBuf;

/// Why a configuration cannot be used. Every text names the place of the value, the key, and what would be right. None
/// shows a secret.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists, or was asked for, and cannot be read.
    #[error("the configuration file {} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("{}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The parser's message with line and column.
        reason: String,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`; {known}")]
    UnknownKey {
        /// The file or the environment variable.
        origin: String,
        /// The key, `section.name` or only `section`.
        key: String,
        /// The keys that there are.
        known: String,
    },
    /// A value of the wrong type, out of range, or not understood.
    #[error("{origin}: `{key}`: {reason}")]
    Value {
        /// The file, the environment variable or the flag.
        origin: String,
        /// The key, `section.name`.
        key: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
}
