//! A run: the sorted tokens of consecutive rows, on their way to a segment. Runs exist only while a file is written.
//!
//! A run contains the following, with LEB128 integers:
//!
//! 1. For each token, in the order of classes and bytes: its length (not 0), its bytes, and the number of its fields;
//!    for each field: its number, the number of rows, and the rows. Each row is the difference from the row before.
//! 2. A 0.
//! 3. For each class and field with tokens that are stored with their row: 1, the class, the field, the number of rows;
//!    for each row: the difference from the row before, the length of its tokens, and its tokens.
//! 4. A 0.
//! 5. For each field with hashes: 1, the field, the number of [`HashEntry`]s, and the entries in ascending order, with
//!    eight little-endian bytes each.
//! 6. A 0.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use strata_store::spool_quota::SpoolReservation;
use strata_store::{Result, StorageError, temp_file};
use strata_types::leb128;

use super::hash_page::HashEntry;
use super::tokenizer::TokenClass;

const READ_BUFFER_BYTES: usize = 64 << 10;

#[derive(Default)]
pub(super) struct RunEncoder(Vec<u8>);

impl RunEncoder {
    pub(super) fn begin_token(&mut self, bytes: &[u8], fields: usize) {
        leb128::write_varint(bytes.len() as u64, &mut self.0);
        self.0.extend_from_slice(bytes);
        leb128::write_varint(fields as u64, &mut self.0);
    }

    pub(super) fn push_field(&mut self, field: u8, rows: &[u32]) {
        self.0.push(field);
        leb128::write_varint(rows.len() as u64, &mut self.0);
        let mut last = 0;
        for row in rows {
            leb128::write_varint(row - last, &mut self.0);
            last = *row;
        }
    }

    pub(super) fn end_tokens(&mut self) {
        self.0.push(0);
    }

    pub(super) fn push_row_tokens<'a>(
        &mut self,
        class: TokenClass,
        field: u8,
        rows: impl ExactSizeIterator<Item = (u32, &'a [u8])>,
    ) {
        self.0.extend([1, class as u8, field]);
        leb128::write_varint(rows.len() as u64, &mut self.0);
        let mut last = 0;
        for (row, tokens) in rows {
            leb128::write_varint(row - last, &mut self.0);
            leb128::write_varint(tokens.len() as u64, &mut self.0);
            self.0.extend_from_slice(tokens);
            last = row;
        }
    }

    pub(super) fn end_row_tokens(&mut self) {
        self.0.push(0);
    }

    pub(super) fn push_hashes(&mut self, field: u8, entries: &[HashEntry]) {
        self.0.extend([1, field]);
        leb128::write_varint(entries.len() as u64, &mut self.0);
        self.0.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.push(0);
        self.0
    }
}

/// Where runs are stored until they are merged: all but the last one in an unnamed temporary file.
pub struct RunSpace {
    directory: PathBuf,
    reservation: SpoolReservation,
    spool: Option<RunSpool>,
}

struct RunSpool {
    file: Arc<File>,
    bytes: u64,
}

pub(super) enum StoredRun {
    InMemory(Vec<u8>),
    Spooled(SpooledRun),
}

/// The remaining bytes of a run in a temporary file.
pub(super) struct SpooledRun {
    file: Arc<File>,
    start: u64,
    end: u64,
}

impl Read for SpooledRun {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min((self.end - self.start) as usize);
        let read = self.file.read_at(&mut buffer[..length], self.start)?;
        self.start += read as u64;
        Ok(read)
    }
}

impl RunSpace {
    pub fn new(directory: PathBuf, reservation: SpoolReservation) -> RunSpace {
        RunSpace { directory, reservation, spool: None }
    }

    pub(super) fn spool(&mut self, run: &[u8]) -> Result<StoredRun> {
        self.reservation.try_grow(run.len() as u64)?;
        let spool = match &mut self.spool {
            Some(spool) => spool,
            spool => spool.insert(RunSpool { file: Arc::new(temp_file::create_temp_file(&self.directory)?), bytes: 0 }),
        };
        let start = spool.bytes;
        spool.file.write_all_at(run, start)?;
        spool.bytes += run.len() as u64;
        Ok(StoredRun::Spooled(SpooledRun { file: spool.file.clone(), start, end: spool.bytes }))
    }
}

/// Reads a run from its start to its end.
pub(super) struct RunReader {
    bytes: Box<dyn BufRead + Send>,
    /// The number of the run's first row in the segment.
    first_row: u32,
}

impl RunReader {
    pub(super) fn new(run: StoredRun, first_row: u32) -> RunReader {
        let bytes: Box<dyn BufRead + Send> = match run {
            StoredRun::InMemory(bytes) => Box::new(io::Cursor::new(bytes)),
            StoredRun::Spooled(run) => Box::new(BufReader::with_capacity(READ_BUFFER_BYTES, run)),
        };
        RunReader { bytes, first_row }
    }

    /// Replaces `token` by the next token. Returns false at the end of the tokens.
    pub(super) fn read_token(&mut self, token: &mut Vec<u8>) -> Result<bool> {
        let length = self.read_varint()?;
        token.clear();
        token.resize(length as usize, 0);
        self.bytes.read_exact(token)?;
        Ok(length > 0)
    }

    /// Calls `visit` with each field and row of the current token.
    pub(super) fn read_rows(&mut self, mut visit: impl FnMut(u8, u32)) -> Result<()> {
        for _ in 0..self.read_varint()? {
            let field = self.read_byte()?;
            let mut row = self.first_row;
            let mut remaining = self.read_varint()?;
            while remaining > 0 {
                let buffered = self.bytes.fill_buf()?;
                let mut rest = buffered;
                // An integer takes at most five bytes, so it cannot continue after the buffer.
                while remaining > 0 && rest.len() >= 5 {
                    row += leb128::read_varint_u32(&mut rest).ok_or_else(damaged)?;
                    remaining -= 1;
                    visit(field, row);
                }
                let decoded = buffered.len() - rest.len();
                self.bytes.consume(decoded);
                if remaining > 0 {
                    row += self.read_varint()?;
                    remaining -= 1;
                    visit(field, row);
                }
            }
        }
        Ok(())
    }

    /// Returns the class and field of the next row tokens, or `None` at the end of the run.
    pub(super) fn read_row_tokens_key(&mut self) -> Result<Option<(TokenClass, u8)>> {
        if self.read_byte()? == 0 {
            return Ok(None);
        }
        let class = self.read_byte()?;
        let class = TokenClass::ALL.get(usize::from(class)).copied().ok_or_else(damaged)?;
        Ok(Some((class, self.read_byte()?)))
    }

    /// Calls `visit` with each row of the current row tokens, and its tokens.
    pub(super) fn read_row_tokens(&mut self, mut visit: impl FnMut(u32, &[u8]) -> Result<()>) -> Result<()> {
        let mut row = self.first_row;
        let mut tokens = Vec::new();
        for _ in 0..self.read_varint()? {
            row += self.read_varint()?;
            let length = self.read_varint()?;
            tokens.resize(length as usize, 0);
            self.bytes.read_exact(&mut tokens)?;
            visit(row, &tokens)?;
        }
        Ok(())
    }

    /// Returns the next field with hashes and their number, or `None` at the end of the run.
    pub(super) fn read_hashes_key(&mut self) -> Result<Option<(u8, u32)>> {
        if self.read_byte()? == 0 {
            return Ok(None);
        }
        Ok(Some((self.read_byte()?, self.read_varint()?)))
    }

    pub(super) fn read_hash(&mut self) -> Result<HashEntry> {
        let mut bytes = [0; 8];
        self.bytes.read_exact(&mut bytes)?;
        Ok(HashEntry::from_le_bytes(bytes) + u64::from(self.first_row))
    }

    fn read_byte(&mut self) -> Result<u8> {
        let byte = self.bytes.fill_buf()?.first().copied().ok_or_else(damaged)?;
        self.bytes.consume(1);
        Ok(byte)
    }

    fn read_varint(&mut self) -> Result<u32> {
        let buffered = self.bytes.fill_buf()?;
        let mut rest = buffered;
        if let Some(number) = leb128::read_varint_u32(&mut rest) {
            let length = buffered.len() - rest.len();
            self.bytes.consume(length);
            return Ok(number);
        }
        // The integer continues after the buffer.
        let mut bytes = Vec::new();
        while bytes.last().is_none_or(|byte| *byte >= 0x80) && bytes.len() < 5 {
            bytes.push(self.read_byte()?);
        }
        leb128::read_varint_u32(&mut bytes.as_slice()).ok_or_else(damaged)
    }
}

fn damaged() -> StorageError {
    io::Error::other("a temporary file of the keyword index was damaged on disk").into()
}
