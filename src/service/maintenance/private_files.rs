//! Whether what lies on the disk is closed to the machine's other users.
//!
//! Files that the service creates are closed (`main.rs` sets the mask). Older files, or changed permissions, may be
//! open: the service reports them at the start and does not change them.

use std::path::{Path, PathBuf};

use strata_config::Config;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OpenToOthers {
    pub path: PathBuf,
    pub mode: u32,
}

/// The data directory, and catalog and store where they are outside of it or it is open itself, as far as others can
/// read or write them.
pub(crate) fn open_to_others(config: &Config) -> Vec<OpenToOthers> {
    let data = &config.data.directory;
    let catalog = config.catalog_file();
    let store = config.store_url();
    let store = match store.strip_prefix("file://") {
        Some(path) => Some(PathBuf::from(path)),
        None if store.contains("://") => None,
        None => Some(PathBuf::from(store)),
    };
    let shields = mode_for_others(data).is_none() && data.exists();
    let mut open = Vec::new();
    for (path, inside) in [
        (Some(data.clone()), false),
        (catalog.clone(), true),
        (catalog.map(|path| PathBuf::from(format!("{}-wal", path.display()))), true),
        (store, true),
    ] {
        let Some(path) = path else { continue };
        if inside && shields && path.starts_with(data) {
            continue;
        }
        if let Some(mode) = mode_for_others(&path) {
            open.push(OpenToOthers { path, mode });
        }
    }
    open
}

/// The permission bits, if there are any for the group or for all.
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

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_open_is_named_unless_the_directory_above_is_closed() {
        let directory = tempfile::tempdir().expect("a directory");
        let data = directory.path().join("data");
        fs::create_dir_all(data.join("store")).expect("made");
        fs::write(data.join("catalog.sqlite"), "").expect("written");
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
        let mut config = Config::default();
        config.data.directory = data.clone();
        set(&data.join("catalog.sqlite"), 0o644);
        set(&data.join("store"), 0o750);
        set(&data, 0o700);
        assert_eq!(open_to_others(&config), []);
        set(&data, 0o755);
        let open = |path: &Path, mode| OpenToOthers { path: path.to_owned(), mode };
        let (catalog, store) = (data.join("catalog.sqlite"), data.join("store"));
        assert_eq!(open_to_others(&config), [open(&data, 0o755), open(&catalog, 0o644), open(&store, 0o750)]);
        config.data.directory = directory.path().join("none");
        assert_eq!(open_to_others(&config), []);
    }
}
