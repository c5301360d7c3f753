//! Finds data that other users of the machine can access, so that the service can warn about it at startup.
//!
//! New files of the service are private, because `main.rs` sets the umask. Existing permissions are never changed.

use std::path::{Path, PathBuf};

use strata_config::Config;

pub(crate) struct ExposedPath {
    pub path: PathBuf,
    pub mode: u32,
}

/// Returns the paths of the data directory, catalog and store that other users of the machine can access. A private
/// data directory protects the catalog and the store inside it.
pub(crate) fn find_exposed_paths(config: &Config) -> Vec<ExposedPath> {
    let data = &config.data.directory;
    let catalog = config.catalog_file();
    let log = catalog.as_ref().map(|path| PathBuf::from(format!("{}-wal", path.display())));
    let store = config.store_url();
    let store = match store.strip_prefix("file://") {
        Some(path) => Some(PathBuf::from(path)),
        None if store.contains("://") => None,
        None => Some(PathBuf::from(store)),
    };
    let is_protected = mode_if_exposed(data).is_none() && data.exists();
    let unprotected =
        [catalog, log, store].into_iter().flatten().filter(|path| !(is_protected && path.starts_with(data)));
    let paths = std::iter::once(data.clone()).chain(unprotected);
    paths.filter_map(|path| mode_if_exposed(&path).map(|mode| ExposedPath { path, mode })).collect()
}

/// Returns the permission bits if the group or all users have any permission.
#[cfg(unix)]
fn mode_if_exposed(path: &Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt;

    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

#[cfg(not(unix))]
fn mode_if_exposed(_: &Path) -> Option<u32> {
    None
}
