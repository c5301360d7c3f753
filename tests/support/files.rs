//! Files of a store: which there are, and damage to them.

use std::fs;
use std::path::Path;

/// The files below a directory, but the one that says whose store it is.
pub fn files(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| !path.ends_with("strata.id"));
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Seals the end of a version file anew, after a change that is to pass for what was written.
pub fn seal(file: &mut [u8]) {
    const MARK: &[u8] = b"strata.seal:";
    let mark = file.windows(MARK.len()).rposition(|window| window == MARK).expect("a seal") + MARK.len();
    let start = std::str::from_utf8(&file[mark..mark + 16]).expect("digits");
    let start = usize::from_str_radix(start, 16).expect("an offset");
    let digits = mark + 17..mark + 25;
    file[digits.clone()].fill(b'0');
    let checksum = crc32fast::hash(&file[start..]);
    file[digits].copy_from_slice(format!("{checksum:08x}").as_bytes());
}

/// Changes a byte of the first page of documents; sizes and footer stay.
pub fn damage_documents(file: &Path) {
    let mut bytes = fs::read(file).expect("the file");
    let frame = bytes.windows(4).position(|window| window == [0x28, 0xb5, 0x2f, 0xfd]).expect("a Zstandard frame");
    bytes[frame + 12] ^= 1;
    fs::write(file, bytes).expect("written");
}
