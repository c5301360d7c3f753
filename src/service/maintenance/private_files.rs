//! Finds data that the machine's other users can access.
//!
//! Files that the service creates are private (`main.rs` sets the mask). The service warns about older files and
//! changed permissions when it starts, and does not change them. `cli::private_files` in `tests/it` tests the warning.

use std::path::{Path, PathBuf};

use strata_config::Config;

pub(crate) struct AccessiblePath {
    pub path: PathBuf,
    pub mode: u32,
}

/// The data directory, catalog and store, if others can read or write them. A private data directory protects the
/// catalog and the store inside it.
pub(crate) fn accessible_paths(config: &Config) -> Vec<AccessiblePath> {
    let data = &config.data.directory;
    let catalog = config.catalog_file();
    let log = catalog.as_ref().map(|path| PathBuf::from(format!("{}-wal", path.display())));
    let store = config.store_url();
    let store = match store.strip_prefix("file://") {
        Some(path) => Some(PathBuf::from(path)),
        None if store.contains("://") => None,
        None => Some(PathBuf::from(store)),
    };
    let is_protected = mode_for_others(data).is_none() && data.exists();
    let inside = [catalog, log, store].into_iter().flatten().filter(|path| !(is_protected && path.starts_with(data)));
    let paths = std::iter::once(data.clone()).chain(inside);
    paths.filter_map(|path| mode_for_others(&path).map(|mode| AccessiblePath { path, mode })).collect()
}

/// The permissions, if the group or all users have any.
#[cfg(unix)]
fn mode_for_others(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn mode_for_others(_: &Path) -> Option<u32> {
    None
}
