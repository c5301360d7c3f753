//! Receives a whole document before it is decoded, so that a slow sender occupies only its own connection. Up to
//! [`MAX_MEMORY_BYTES`] are buffered in memory. Longer documents are written to a temporary file, which is charged to
//! the user. Dropping a [`BodyReceiver`] aborts the transfer and deletes the data.

use std::io::{self, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use strata_store::spool_quota::{SpoolQuota, SpoolReservation};
use strata_store::temp_file;
use strata_types::ids::UserId;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use tokio::time::Instant;

use super::error::SourceError;
use super::source_input::{BodyChunks, MinTransferRate, ReadProgress, SourceBody, SourceInput, check_source_size};

const MAX_MEMORY_BYTES: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error("failed to receive the document: {0}")]
    Io(#[from] io::Error),
}

pub struct BodyReceiver {
    input: SourceInput,
    /// The chunks that have not arrived yet; `None` after the whole body has arrived.
    chunks: Option<BodyChunks>,
    head: BytesMut,
    file: Option<tokio::fs::File>,
    disk_reservation: SpoolReservation,
    directory: PathBuf,
    max_bytes: u64,
    /// The time waited for the sender in the current interval in which the transfer rate is measured. `window_bytes` is
    /// the number of bytes received in this interval.
    window_elapsed: Duration,
    window_bytes: u64,
}

pub struct ReceivedBody {
    pub input: SourceInput,
    pub disk_reservation: SpoolReservation,
}

impl BodyReceiver {
    /// Creates a receiver for at most `max_bytes` (`sources.max_bytes`), which writes to `directory`.
    pub fn new(mut input: SourceInput, max_bytes: u64, quota: &SpoolQuota, user: UserId, directory: &Path) -> Self {
        let chunks = match std::mem::replace(&mut input.body, SourceBody::Reader(Box::new(io::empty()))) {
            SourceBody::Chunks(chunks) => Some(*chunks),
            // The body of a file or a reader has already arrived.
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
            disk_reservation: quota.reservation_for_user(user),
            directory: directory.to_owned(),
            max_bytes,
            window_elapsed: Duration::ZERO,
            window_bytes: 0,
        }
    }

    /// Receives up to `bytes` (at most 256 KiB) into memory. Returns whether the document has ended. Cancel safe.
    pub async fn receive_head_and_check_end(&mut self, bytes: usize) -> Result<bool, ReceiveError> {
        while self.chunks.is_some() && self.head.len() < bytes.min(MAX_MEMORY_BYTES) && self.file.is_none() {
            self.receive_chunk().await?;
        }
        Ok(self.chunks.is_none())
    }

    pub fn progress(&self) -> ReadProgress {
        self.input.progress()
    }

    pub fn head(&self) -> &[u8] {
        &self.head
    }

    pub async fn receive(mut self) -> Result<ReceivedBody, ReceiveError> {
        let is_local = self.chunks.is_none() && self.head.is_empty() && self.file.is_none();
        while self.chunks.is_some() {
            self.receive_chunk().await?;
        }
        let mut input = self.input;
        if let Some(mut file) = self.file {
            file.write_all(&std::mem::take(&mut self.head)).await?;
            // Flushing a Tokio file waits for pending writes and reports their errors.
            file.flush().await?;
            file.seek(SeekFrom::Start(0)).await?;
            input.body = SourceBody::File(file.into_std().await);
            input.is_progress_counted = true;
        } else if !is_local {
            input.body = SourceBody::Reader(Box::new(io::Cursor::new(self.head.freeze())));
            input.is_progress_counted = true;
        }
        Ok(ReceivedBody { input, disk_reservation: self.disk_reservation })
    }

    async fn receive_chunk(&mut self) -> Result<(), ReceiveError> {
        let Some(chunk) = self.next_chunk().await? else {
            self.chunks = None;
            return Ok(());
        };
        let length = chunk.len() as u64;
        self.window_bytes += length;
        self.input.progress.add_read_bytes(length);
        check_source_size(self.input.progress.read_bytes(), self.max_bytes)?;
        self.disk_reservation.try_grow(length).map_err(SourceError::from)?;
        self.head.extend_from_slice(&chunk);
        if self.head.len() > MAX_MEMORY_BYTES {
            let file = match &mut self.file {
                Some(file) => file,
                None => {
                    let file = temp_file::create_temp_file(&self.directory)?;
                    self.file.insert(tokio::fs::File::from_std(file))
                }
            };
            file.write_all(&self.head.split()).await?;
        }
        Ok(())
    }

    async fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let Some(chunks) = &mut self.chunks else { return Ok(None) };
        let started_at = Instant::now();
        let rate = chunks.min_rate.filter(|rate| rate.bytes_per_s > 0);
        let window_end = rate.and_then(|rate| started_at.checked_add(rate.window.saturating_sub(self.window_elapsed)));
        let next = chunks.next_chunk(window_end).await?;
        if let Some(MinTransferRate { bytes_per_s, window }) = rate {
            self.window_elapsed += started_at.elapsed();
            if self.window_elapsed >= window {
                let seconds = window.as_secs();
                let received = self.window_bytes + next.as_ref().map_or(0, Bytes::len) as u64;
                if received < bytes_per_s.saturating_mul(seconds) && next.is_some() {
                    return Err(SourceError::TooSlow { bytes_per_s, seconds });
                }
                self.window_elapsed = Duration::ZERO;
                self.window_bytes = 0;
            }
        }
        Ok(next)
    }
}
