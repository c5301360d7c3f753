//! A stream of chunks as a plain reader, for the decoders.
//!
//! Decoders run on a thread that may block, and pull one chunk after the other. So a slow decoder slows the sender, and
//! nothing piles up.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::error::{SourceError, into_io};

#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) idle: Duration,
    /// For everything: no chunk is awaited after this moment.
    pub(super) until: Option<Instant>,
}

/// The least rate at which a body must come.
#[derive(Debug, Clone, Copy)]
pub struct LeastRate {
    /// Bytes per second (`limits.body_min_bytes_per_s`); 0 is none.
    pub bytes_per_s: u64,
    /// The time over which it is measured (`limits.body_rate_window_s`).
    pub window: Duration,
}

/// Chunks of a document that are still to come.
pub(super) struct Chunks {
    /// The runtime that polls them for a reader that blocks.
    runtime: Handle,
    stream: BoxStream<'static, Result<Bytes, SourceError>>,
    pub(super) patience: Patience,
    pub(super) least_rate: Option<LeastRate>,
    /// Makes the error for a stream that takes too long.
    late: fn(String) -> SourceError,
}

impl Chunks {
    /// To be made within a runtime.
    pub(super) fn new(
        stream: BoxStream<'static, Result<Bytes, SourceError>>,
        patience: Patience,
        late: fn(String) -> SourceError,
    ) -> Self {
        Self { runtime: Handle::current(), stream, patience, least_rate: None, late }
    }

    /// The next chunk, if it comes in time; an empty one at `pause` if none came before.
    pub(super) async fn next(&mut self, pause: Option<Instant>) -> Result<Option<Bytes>, SourceError> {
        // A wait beyond the clock's end is no limit.
        let idle = Instant::now().checked_add(self.patience.idle);
        let until = [idle, self.patience.until, pause].into_iter().flatten().min();
        let Some(until) = until else { return self.stream.next().await.transpose() };
        match timeout_at(until, self.stream.next()).await {
            Ok(next) => next.transpose(),
            Err(_) if pause == Some(until) => Ok(Some(Bytes::new())),
            Err(_) if idle == Some(until) => {
                Err((self.late)(format!("timed out: nothing came for {} s", self.patience.idle.as_secs())))
            }
            Err(_) => Err((self.late)("timed out: it took too long in all".to_owned())),
        }
    }
}

pub(super) struct StreamReader {
    pub(super) chunks: Chunks,
    pub(super) chunk: Bytes,
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.chunks.runtime.clone().block_on(self.chunks.next(None)) {
                Ok(Some(chunk)) => self.chunk = chunk,
                Ok(None) => return Ok(0),
                Err(error) => return Err(into_io(error)),
            }
        }
        let count = self.chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}
