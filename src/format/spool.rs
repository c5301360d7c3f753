//! Spool: an unnamed temporary file with entities between the two passes of a write, which compute the profile and
//! write the version file. Each canonical document is followed by a line feed. A checksum detects damage.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crc32fast::Hasher;
use sha2::{Digest, Sha256};
use strata_store::spool_quota::SpoolReservation;
use strata_store::{Result, StorageError, temp_file};

use super::keywords::RunSpace;
use super::profile::ProfileBuilder;

const SPOOL_BUFFER_BYTES: usize = 1 << 20;

pub struct SpoolWriter {
    directory: PathBuf,
    reservation: SpoolReservation,
    file: BufWriter<File>,
    profile: ProfileBuilder,
    content_hasher: Sha256,
    crc_hasher: Hasher,
}

pub struct FinishedSpool {
    directory: PathBuf,
    reservation: SpoolReservation,
    file: File,
    pub profile: ProfileBuilder,
    pub content_sha256: String,
    checksum: u32,
}

impl SpoolWriter {
    pub fn create(directory: &Path, reservation: SpoolReservation) -> Result<SpoolWriter> {
        let file = temp_file::create_temp_file(directory)?;
        Ok(SpoolWriter {
            directory: directory.to_owned(),
            reservation,
            file: BufWriter::with_capacity(SPOOL_BUFFER_BYTES, file),
            profile: ProfileBuilder::default(),
            content_hasher: Sha256::new(),
            crc_hasher: Hasher::new(),
        })
    }

    pub fn add_lines(&mut self, lines: &[u8]) -> Result<()> {
        self.content_hasher.update(lines);
        self.add_lines_without_hashing(lines)
    }

    /// Like [`SpoolWriter::add_lines`], but the caller hashes the lines for [`SpoolWriter::finish_with_hash`].
    pub fn add_lines_without_hashing(&mut self, lines: &[u8]) -> Result<()> {
        self.reservation.try_grow(lines.len() as u64)?;
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', lines) {
            self.profile.add(&lines[start..end]);
            start = end + 1;
        }
        self.crc_hasher.update(lines);
        self.file.write_all(lines)?;
        Ok(())
    }

    pub fn entities(&self) -> u64 {
        self.profile.entities
    }

    pub fn finish(mut self) -> Result<FinishedSpool> {
        let content = std::mem::take(&mut self.content_hasher);
        self.finish_with_hash(content)
    }

    pub fn finish_with_hash(self, content_hasher: Sha256) -> Result<FinishedSpool> {
        let mut file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.seek(SeekFrom::Start(0))?;
        Ok(FinishedSpool {
            directory: self.directory,
            reservation: self.reservation,
            file,
            profile: self.profile,
            content_sha256: hex::encode(content_hasher.finalize()),
            checksum: self.crc_hasher.finalize(),
        })
    }
}

impl FinishedSpool {
    /// Creates another spool in the same directory, charged to the same principal.
    pub fn new_writer(&self) -> Result<SpoolWriter> {
        SpoolWriter::create(&self.directory, self.reservation.quota().new_reservation())
    }

    /// Returns space for the keyword index of the version, charged to the same principal.
    pub fn run_space(&self) -> RunSpace {
        RunSpace::new(self.directory.clone(), self.reservation.quota().new_reservation())
    }

    /// Calls `each` with every document, in order, until it fails. The second pass of the write verifies the checksum.
    pub fn for_each_document<E: From<StorageError>>(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.rewind()?;
        let mut file = BufReader::with_capacity(SPOOL_BUFFER_BYTES, &self.file);
        let mut document = Vec::new();
        let mut read = || {
            while file.read_until(b'\n', &mut document).map_err(StorageError::Io)? > 0 {
                document.pop();
                each(&document)?;
                document.clear();
            }
            Ok(())
        };
        let result = read();
        // Also after a failure of `each`, because the whole list can still be written.
        self.rewind()?;
        result
    }

    fn rewind(&mut self) -> Result<()> {
        self.file.seek(SeekFrom::Start(0))?;
        Ok(())
    }

    pub fn into_reader(self) -> SpoolReader {
        let file = BufReader::with_capacity(SPOOL_BUFFER_BYTES, self.file);
        SpoolReader { _reservation: self.reservation, file, expected_checksum: self.checksum, hasher: Hasher::new() }
    }
}

pub struct SpoolReader {
    _reservation: SpoolReservation,
    file: BufReader<File>,
    expected_checksum: u32,
    hasher: Hasher,
}

impl SpoolReader {
    /// Appends the spool's next document without line feed and returns its length. At the end, verifies the checksum.
    pub fn read_document_into(&mut self, out: &mut Vec<u8>) -> Result<Option<usize>> {
        let start = out.len();
        let read = self.file.read_until(b'\n', out)?;
        if read == 0 {
            let is_intact = self.hasher.clone().finalize() == self.expected_checksum;
            return if is_intact { Ok(None) } else { Err(std::io::Error::other("it was damaged on disk").into()) };
        }
        self.hasher.update(&out[start..]);
        out.pop();
        Ok(Some(read - 1))
    }
}
