//! A file of the cache: records one after another, each with its checksum, written once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::checksums::checksum;

/// What a record begins with; another layout gets another one.
const MARK: [u8; 4] = *b"SDC1";

/// The bytes of a record before its content: mark, file, start, length, checksum of the content, checksum of all these.
pub(super) const HEADER_BYTES: usize = 40;

const EXTENSION: &str = "ranges";

/// Which version file: its path and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId([u8; 16]);

impl FileId {
    pub fn new(path: &str, size_bytes: u64) -> FileId {
        let digest = Sha256::new().chain_update(size_bytes.to_le_bytes()).chain_update(path).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        FileId(id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) file: FileId,
    pub(super) start: u64,
    pub(super) length: u32,
    pub(super) checksum: u32,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MARK);
        bytes[4..20].copy_from_slice(&self.file.0);
        bytes[20..28].copy_from_slice(&self.start.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let own = checksum(&bytes[..36]);
        bytes[36..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// What was written; `None` where it is none, or is damaged.
    pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != MARK || number(36) != checksum(&bytes[..36]) {
            return None;
        }
        let mut file = [0; 16];
        file.copy_from_slice(&bytes[4..20]);
        let start = u64::from(number(20)) | u64::from(number(24)) << 32;
        Some(Header { file: FileId(file), start, length: number(28), checksum: number(32) })
    }
}

/// An opened file. It can be read when it has been removed, too.
#[derive(Debug)]
pub(super) struct Segment {
    /// Later ones have greater numbers.
    pub(super) number: u64,
    path: PathBuf,
    file: File,
}

impl Segment {
    pub(super) fn create(folder: &Path, number: u64) -> io::Result<Segment> {
        let path = folder.join(format!("{number:016x}.{EXTENSION}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(Segment { number, path, file })
    }

    /// One that an earlier process wrote; `None` where the name is that of no segment.
    pub(super) fn open(path: &Path) -> io::Result<Option<Segment>> {
        let number = path.file_stem().and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
        let Some(number) = number.filter(|_| path.extension() == Some(EXTENSION.as_ref())) else { return Ok(None) };
        Ok(Some(Segment { number, path: path.to_owned(), file: File::open(path)? }))
    }

    pub(super) fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Writes a record at its end, which the caller knows; what could not be written whole is cut off again.
    pub(super) fn append(&self, end: u64, header: &Header, content: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(&[&header.encode()[..], content].concat(), end);
        if written.is_err() {
            // Else the next process finds that it is no record.
            let _ = self.file.set_len(end);
        }
        written
    }

    /// The records, with the places of their contents, up to the first that is none; and whether that was the end.
    pub(super) fn records(&self, size_bytes: u64) -> (Vec<(Header, u64)>, bool) {
        let mut records = Vec::new();
        let mut at = 0;
        let mut bytes = [0; HEADER_BYTES];
        while at < size_bytes {
            let header = self.file.read_exact_at(&mut bytes, at).ok().and_then(|()| Header::decode(&bytes));
            let content = at + HEADER_BYTES as u64;
            let end = header.map(|header| content + u64::from(header.length)).filter(|end| *end <= size_bytes);
            let (Some(header), Some(end)) = (header, end) else { return (records, false) };
            records.push((header, content));
            at = end;
        }
        (records, true)
    }

    pub(super) fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %self.path.display(), "failed to remove disk cache file");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_is_decoded_only_if_undamaged() {
        let header = Header { file: FileId([7; 16]), start: 1 << 40 | 5, length: 9, checksum: 0xdead_beef };
        let written = header.encode();
        assert_eq!(Header::decode(&written), Some(header));
        for at in 0..HEADER_BYTES {
            let mut damaged = written;
            damaged[at] ^= 1;
            assert_eq!(Header::decode(&damaged), None, "byte {at}");
        }
    }
}
