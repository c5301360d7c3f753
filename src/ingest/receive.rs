//! Receives a whole document before it is decoded. So a slow sender holds only its own connection.
//!
//! The first [`MEMORY_BYTES`] are kept in memory. A longer document goes to a temporary file, charged to its user.
//! Dropping a [`Receiver`] ends the receiving and removes the received bytes.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use strata_store::budget::{SpoolBudget, SpoolCharge};
use strata_store::temporary;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::Instant;

use super::error::SourceError;
use super::input::{Body, Chunks, LeastRate, Progress, SourceInput, check_size};

const MEMORY_BYTES: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("failed to receive the document: {0}")]
    Io(#[from] io::Error),
}

pub struct Receiver {
    input: SourceInput,
    /// `None` once the body has come.
    chunks: Option<Chunks>,
    head: BytesMut,
    file: Option<tokio::fs::File>,
    charge: SpoolCharge,
    directory: PathBuf,
    limit_bytes: u64,
    /// The time that the sender took since the last measurement of the rate, and the bytes of that time.
    waited: Duration,
    brought_bytes: u64,
}

/// A complete document, and the disk that it takes.
pub struct Received {
    pub input: SourceInput,
    pub charge: SpoolCharge,
}

impl Receiver {
    /// Begins to receive `input` into `directory`, at most `limit_bytes` (`sources.max_bytes`), charged to `user`.
    pub fn new(mut input: SourceInput, limit_bytes: u64, budget: &SpoolBudget, user: u64, directory: &Path) -> Self {
        let chunks = match std::mem::replace(&mut input.body, Body::Stream(Box::new(io::empty()))) {
            Body::Chunks(chunks) => Some(*chunks),
            // Any other body needs no receiving.
            body => {
                input.body = body;
                None
            }
        };
        Self {
            input,
            chunks,
            head: BytesMut::new(),
            file: None,
            charge: budget.charge(user),
            directory: directory.to_owned(),
            limit_bytes,
            waited: Duration::ZERO,
            brought_bytes: 0,
        }
    }

    /// Receives that many bytes, at most `MEMORY_BYTES`; true if the document has ended. Cancel safe.
    pub async fn receive_head(&mut self, bytes: usize) -> Result<bool, ReceiveError> {
        while self.chunks.is_some() && self.head.len() < bytes.min(MEMORY_BYTES) && self.file.is_none() {
            self.receive_chunk().await?;
        }
        Ok(self.chunks.is_none())
    }

    pub fn progress(&self) -> Progress {
        self.input.progress()
    }

    /// The bytes received so far, while they are in memory.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub async fn receive(mut self) -> Result<Received, ReceiveError> {
        let has_come = self.chunks.is_none() && self.head.is_empty() && self.file.is_none();
        while self.chunks.is_some() {
            self.receive_chunk().await?;
        }
        let mut input = self.input;
        if let Some(mut file) = self.file {
            file.write_all(&std::mem::take(&mut self.head)).await?;
            // Waits for running writes, and reports their errors.
            file.flush().await?;
            file.seek(SeekFrom::Start(0)).await?;
            input.body = Body::File(file.into_std().await);
            input.is_received = true;
        } else if !has_come {
            input.body = Body::Stream(Box::new(io::Cursor::new(self.head.freeze())));
            input.is_received = true;
        }
        Ok(Received { input, charge: self.charge })
    }

    async fn receive_chunk(&mut self) -> Result<(), ReceiveError> {
        let Some(chunk) = self.next_chunk().await? else {
            self.chunks = None;
            return Ok(());
        };
        let length = chunk.len() as u64;
        self.brought_bytes += length;
        self.input.progress.add(length);
        check_size(self.input.progress.read_bytes(), self.limit_bytes)?;
        self.charge.add(length).map_err(SourceError::from)?;
        self.head.extend_from_slice(&chunk);
        if self.head.len() > MEMORY_BYTES {
            let file = match &mut self.file {
                Some(file) => file,
                None => {
                    let file = temporary::file_in(&self.directory)?;
                    self.file.insert(tokio::fs::File::from_std(file))
                }
            };
            file.write_all(&self.head.split()).await?;
        }
        Ok(())
    }

    /// The next chunk, if it comes in time and the sender is not too slow.
    async fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let Some(chunks) = &mut self.chunks else { return Ok(None) };
        let began = Instant::now();
        let rate = chunks.least_rate.filter(|rate| rate.bytes_per_s > 0);
        let window_end = rate.and_then(|rate| began.checked_add(rate.window.saturating_sub(self.waited)));
        let next = chunks.next(window_end).await?;
        if let Some(LeastRate { bytes_per_s, window }) = rate {
            self.waited += began.elapsed();
            if self.waited >= window {
                let seconds = window.as_secs();
                let came = self.brought_bytes + next.as_ref().map_or(0, Bytes::len) as u64;
                if came < bytes_per_s.saturating_mul(seconds) && next.is_some() {
                    return Err(SourceError::TooSlow { bytes_per_s, seconds });
                }
                self.waited = Duration::ZERO;
                self.brought_bytes = 0;
            }
        }
        Ok(next)
    }
}
