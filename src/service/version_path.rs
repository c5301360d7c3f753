//! Names version files in the store, for example `versions/0123456789abcdef0123456789abcdef.parquet`.

use object_store::path::Path as ObjectPath;
use strata_config::VERSIONS_FOLDER;

const RANDOM_PATH_BYTES: usize = 16;

/// Returns a random path for a new version file. No earlier file had this path.
pub(crate) fn new_version_path() -> ObjectPath {
    ObjectPath::from(format!("{VERSIONS_FOLDER}/{}.parquet", hex::encode(rand::random::<[u8; RANDOM_PATH_BYTES]>())))
}

/// Returns true if `path` has the form of the paths from [`new_version_path`].
pub(crate) fn is_version_path(path: &str) -> bool {
    let name = path.strip_prefix(VERSIONS_FOLDER).and_then(|name| name.strip_prefix('/')?.strip_suffix(".parquet"));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.is_some_and(|name| name.len() == 2 * RANDOM_PATH_BYTES && name.bytes().all(is_digit))
}
