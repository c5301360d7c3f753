//! A file of the cache: records one after another, each with its checksum, written once.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::FileId;
use crate::checksums::checksum;

/// What a record begins with; another layout gets another one.
const MARK: [u8; 4] = *b"SDC1";

/// The bytes of a record before its content: mark, file, start, length, checksum of the content, checksum of all these.
pub(super) const HEADER_BYTES: usize = 40;

const EXTENSION: &str = "ranges";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) file: FileId,
    /// Where the range begins in it.
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
        let (mut records, mut at) = (Vec::new(), 0);
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

    /// Removes it. One that somebody has removed is removed.
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
    fn a_header_is_read_as_it_was_written_or_not_at_all() {
        let header = Header { file: FileId([7; 16]), start: 1 << 40 | 5, length: 9, checksum: 0xdead_beef };
        let written = header.encode();
        assert_eq!(Header::decode(&written), Some(header));
        for at in 0..HEADER_BYTES {
            let mut damaged = written;
            damaged[at] ^= 1;
            assert_eq!(Header::decode(&damaged), None, "byte {at}");
        }
    }

    #[test]
    fn records_end_where_a_writer_was_killed() {
        let folder = tempfile::tempdir().expect("a directory");
        let segment = Segment::create(folder.path(), 3).expect("made");
        let header = |start| Header { file: FileId([1; 16]), start, length: 4, checksum: checksum(b"four") };
        segment.append(0, &header(0), b"four").expect("written");
        segment.append(44, &header(4), b"fo").expect("written");
        let path = folder.path().join("0000000000000003.ranges");
        let found = Segment::open(&path).expect("opened").expect("a segment");
        let size_bytes = found.size_bytes().expect("known");
        assert_eq!((found.number, size_bytes), (3, 86));
        assert_eq!(found.records(size_bytes), (vec![(header(0), 40)], false));
        assert_eq!(found.records(44), (vec![(header(0), 40)], true));
        assert_eq!(found.read(40, 4).expect("read"), b"four");
        found.remove();
        assert!(!path.exists());
        assert_eq!(found.read(40, 4).expect("read"), b"four");
        assert!(Segment::open(&folder.path().join("lock")).expect("not opened").is_none());
    }
}
