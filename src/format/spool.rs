//! Entities on local disk between the two passes of a write.
//!
//! The first pass learns the profile, the second writes with it. The spool is the canonical documents with a
//! line feed after each (canonical text holds none), in a temporary file that the system removes by itself. A checksum
//! tells whether the second pass reads what the first wrote.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use crc32fast::Hasher;
use sha2::{Digest, Sha256};
use strata_store::budget::SpoolCharge;
use strata_store::{Result, temporary};

use super::profile::ProfileBuilder;

const BUFFER_BYTES: usize = 1 << 20;

pub struct Spool {
    charge: SpoolCharge,
    file: BufWriter<File>,
    profile: ProfileBuilder,
    content: Sha256,
    checksum: Hasher,
}

/// A finished spool: its profile, and the entities to be read once more.
pub struct Spooled {
    charge: SpoolCharge,
    file: File,
    pub profile: ProfileBuilder,
    /// Of all lines, in hexadecimal digits.
    pub content_sha256: String,
    checksum: u32,
}

impl Spool {
    /// An empty spool in `directory`, which is made when missing ([`temporary`]). Its bytes are added to `charge`.
    pub fn create(directory: &Path, charge: SpoolCharge) -> Result<Spool> {
        let file = temporary::file_in(directory)?;
        Ok(Spool {
            charge,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            profile: ProfileBuilder::default(),
            content: Sha256::new(),
            checksum: Hasher::new(),
        })
    }

    /// Adds a block of canonical documents, each followed by a line feed.
    pub fn add_lines(&mut self, lines: &[u8]) -> Result<()> {
        self.content.update(lines);
        self.add_hashed_lines(lines)
    }

    /// As [`Spool::add_lines`], where another thread hashes the lines: [`Spool::finish_with`] takes the hash.
    pub fn add_hashed_lines(&mut self, lines: &[u8]) -> Result<()> {
        self.charge.add(lines.len() as u64)?;
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            self.profile.add(&lines[start..end]);
            start = end + 1;
        }
        self.checksum.update(lines);
        self.file.write_all(lines)?;
        Ok(())
    }

    pub fn entities(&self) -> u64 {
        self.profile.entities
    }

    pub fn finish(mut self) -> Result<Spooled> {
        let content = std::mem::take(&mut self.content);
        self.finish_with(content)
    }

    /// As [`Spool::finish`], with the hash of all lines.
    pub fn finish_with(self, content: Sha256) -> Result<Spooled> {
        let mut file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(Spooled {
            charge: self.charge,
            file,
            profile: self.profile,
            content_sha256: hex::encode(content.finalize()),
            checksum: self.checksum.finalize(),
        })
    }
}

impl Spooled {
    pub fn into_lines(self) -> Lines {
        let file = BufReader::with_capacity(BUFFER_BYTES, self.file);
        Lines { _charge: self.charge, file, written: self.checksum, read: Hasher::new() }
    }
}

pub struct Lines {
    _charge: SpoolCharge,
    file: BufReader<File>,
    written: u32,
    read: Hasher,
}

impl Lines {
    /// Appends the next document to `out`, without its line feed; its length, or `None` at the end.
    ///
    /// # Errors
    /// When the disk fails; at the end, when it gave other bytes than it was given.
    pub fn next_into(&mut self, out: &mut Vec<u8>) -> Result<Option<usize>> {
        let start = out.len();
        let read = self.file.read_until(b'\n', out)?;
        if read == 0 {
            return match self.read.clone().finalize() == self.written {
                true => Ok(None),
                false => Err(std::io::Error::other("it was damaged on disk").into()),
            };
        }
        self.read.update(&out[start..]);
        out.pop();
        Ok(Some(read - 1))
    }
}
