//! The paths of version files in the store.

use object_store::path::Path as ObjectPath;
use strata_config::VERSIONS_FOLDER;

/// Random bytes of a path.
const PATH_BYTES: usize = 16;

/// A new path, which no file had before.
pub(crate) fn new_path() -> ObjectPath {
    ObjectPath::from(format!("{VERSIONS_FOLDER}/{}.parquet", hex::encode(rand::random::<[u8; PATH_BYTES]>())))
}

/// Whether [`new_path`] can return the path.
pub(crate) fn is_path(path: &str) -> bool {
    let name = path.strip_prefix(VERSIONS_FOLDER).and_then(|name| name.strip_prefix('/')?.strip_suffix(".parquet"));
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    name.is_some_and(|name| name.len() == 2 * PATH_BYTES && name.bytes().all(is_digit))
}
