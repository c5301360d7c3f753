//! Segments, the files of the disk cache: append-only sequences of records with checksums.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::checksums::crc32;

/// First bytes of each cache record. A change of the record format must change them.
const RECORD_MAGIC: [u8; 4] = *b"SDC1";
/// Size of a cache record's header: magic, file ID, start, length, checksum of the content, checksum of the header.
pub(super) const RECORD_HEADER_BYTES: usize = 40;
const SEGMENT_EXTENSION: &str = "ranges";

/// Identifies a version file by a hash of its path and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VersionFileId([u8; 16]);

impl VersionFileId {
    pub fn new(path: &str, size_bytes: u64) -> VersionFileId {
        let digest = Sha256::new().chain_update(size_bytes.to_le_bytes()).chain_update(path).finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        VersionFileId(id)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub(super) file: VersionFileId,
    /// Offset of the range in the version file.
    pub(super) start: u64,
    /// Length of the range in bytes.
    pub(super) length: u32,
    /// CRC-32 of the range.
    pub(super) checksum: u32,
}

impl RecordHeader {
    pub(super) fn encode(&self) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..4].copy_from_slice(&RECORD_MAGIC);
        bytes[4..20].copy_from_slice(&self.file.0);
        bytes[20..28].copy_from_slice(&self.start.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.checksum.to_le_bytes());
        let header_checksum = crc32(&bytes[..36]);
        bytes[36..].copy_from_slice(&header_checksum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Option<RecordHeader> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[..4] != RECORD_MAGIC || number(36) != crc32(&bytes[..36]) {
            return None;
        }
        let mut file = [0; 16];
        file.copy_from_slice(&bytes[4..20]);
        let start = u64::from(number(20)) | u64::from(number(24)) << 32;
        Some(RecordHeader { file: VersionFileId(file), start, length: number(28), checksum: number(32) })
    }
}

/// A record and the offset of its content in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentRecord {
    pub(super) header: RecordHeader,
    pub(super) content_offset: u64,
}

/// The records of a segment, up to the first damaged one.
pub(super) struct SegmentRecords {
    pub(super) records: Vec<SegmentRecord>,
    /// False if damage was found. The rest of the segment is then unknown.
    pub(super) is_complete: bool,
}

/// An open segment. The file remains readable after it has been deleted.
#[derive(Debug)]
pub(super) struct CacheSegment {
    /// Number of the segment, ascending in the order of creation.
    pub(super) number: u64,
    path: PathBuf,
    file: File,
}

impl CacheSegment {
    pub(super) fn create(directory: &Path, number: u64) -> io::Result<CacheSegment> {
        let path = directory.join(format!("{number:016x}.{SEGMENT_EXTENSION}"));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(CacheSegment { number, path, file })
    }

    /// Returns `None` if the name is not that of a segment.
    pub(super) fn open(path: &Path) -> io::Result<Option<CacheSegment>> {
        let number = path.file_stem().and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
        let Some(number) = number.filter(|_| path.extension() == Some(SEGMENT_EXTENSION.as_ref())) else {
            return Ok(None);
        };
        Ok(Some(CacheSegment { number, path: path.to_owned(), file: File::open(path)? }))
    }

    pub(super) fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Writes a record at `end`, the end of the file. After an error, the incomplete record is truncated.
    pub(super) fn append_record(&self, end: u64, header: RecordHeader, content: &[u8]) -> io::Result<SegmentRecord> {
        if let Err(error) = self.file.write_all_at(&[&header.encode()[..], content].concat(), end) {
            // If the file cannot be truncated, the next process detects the incomplete record.
            let _ = self.file.set_len(end);
            return Err(error);
        }
        Ok(SegmentRecord { header, content_offset: end + RECORD_HEADER_BYTES as u64 })
    }

    /// Reads the headers of all records in the first `size_bytes` bytes. The contents are not verified.
    pub(super) fn read_records(&self, size_bytes: u64) -> SegmentRecords {
        let mut records = Vec::new();
        let mut offset = 0;
        let mut bytes = [0; RECORD_HEADER_BYTES];
        while offset < size_bytes {
            let header = self.file.read_exact_at(&mut bytes, offset).ok().and_then(|()| RecordHeader::decode(&bytes));
            let content_offset = offset + RECORD_HEADER_BYTES as u64;
            let end = header.map(|header| content_offset + u64::from(header.length)).filter(|end| *end <= size_bytes);
            let (Some(header), Some(end)) = (header, end) else {
                return SegmentRecords { records, is_complete: false };
            };
            records.push(SegmentRecord { header, content_offset });
            offset = end;
        }
        SegmentRecords { records, is_complete: true }
    }

    /// Returns the content of a record, or `None` if it cannot be read or does not match its checksum.
    pub(super) fn read_record(&self, record: &SegmentRecord) -> Option<Vec<u8>> {
        let mut content = vec![0; record.header.length as usize];
        self.file.read_exact_at(&mut content, record.content_offset).ok()?;
        (crc32(&content) == record.header.checksum).then_some(content)
    }

    pub(super) fn delete_file(&self) {
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
        let header =
            RecordHeader { file: VersionFileId([7; 16]), start: 1 << 40 | 5, length: 9, checksum: 0xdead_beef };
        let written = header.encode();
        assert_eq!(RecordHeader::decode(&written), Some(header));
        for offset in 0..RECORD_HEADER_BYTES {
            let mut damaged = written;
            damaged[offset] ^= 1;
            assert_eq!(RecordHeader::decode(&damaged), None, "byte {offset}");
        }
    }
}
