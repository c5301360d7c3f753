//! Files of a store, and ways to damage them.

use std::fs;
use std::path::Path;

/// Returns the files below a directory, except the identity file of the store.
pub fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("failed to read entry").path());
    let paths = paths.filter(|path| !path.ends_with("strata.id"));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Updates the footer checksum of a version file after a change that must remain undetected.
pub fn seal(file: &mut [u8]) {
    const MARK: &[u8] = b"strata.seal:";
    let mark =
        file.windows(MARK.len()).rposition(|window| window == MARK).expect("missing footer checksum") + MARK.len();
    let start = std::str::from_utf8(&file[mark..mark + 16]).expect("invalid digits");
    let start = usize::from_str_radix(start, 16).expect("invalid offset");
    let digits = mark + 17..mark + 25;
    file[digits.clone()].fill(b'0');
    let checksum = crc32fast::hash(&file[start..]);
    file[digits].copy_from_slice(format!("{checksum:08x}").as_bytes());
}

/// Changes a byte of the first document page without changing sizes or the footer.
pub fn damage_documents(file: &Path) {
    let mut bytes = fs::read(file).expect("failed to read file");
    let frame =
        bytes.windows(4).position(|window| window == [0x28, 0xb5, 0x2f, 0xfd]).expect("missing Zstandard frame");
    bytes[frame + 12] ^= 1;
    fs::write(file, bytes).expect("failed to write");
}
