//! `[data]`: where the service keeps what it needs on local disk.

use std::path::PathBuf;

use super::option::section;

section! {
    /// Where the service keeps what it needs on local disk.
    Data in "data" {
        /// The data directory, created when missing. A relative path starts at the current directory. The directory
        /// holds temporary files. It also holds the catalog and the store, unless `catalog.url` and `store.url` name
        /// others.
        directory: PathBuf = PathBuf::from("./strata-data");
    }
}

/// The SQLite catalog in the data directory, unless `catalog.url` names another.
pub const CATALOG_FILE: &str = "catalog.sqlite";

/// The store in the data directory, unless `store.url` names another.
pub const STORE_FOLDER: &str = "store";
