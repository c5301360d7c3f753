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

/// How long a stream may take.
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
    pub(super) runtime: Handle,
    pub(super) stream: BoxStream<'static, Result<Bytes, SourceError>>,
    pub(super) patience: Patience,
    pub(super) least_rate: Option<LeastRate>,
    /// Makes the error for a stream that takes too long.
    pub(super) late: fn(String) -> SourceError,
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
}

/// Reads a stream from a thread that may block.
pub(super) struct StreamReader {
    runtime: Handle,
    chunks: BoxStream<'static, Result<Bytes, SourceError>>,
    patience: Patience,
    late: fn(String) -> SourceError,
    chunk: Bytes,
}

impl StreamReader {
    pub(super) fn new(chunks: Chunks) -> Self {
        let Chunks { runtime, stream, patience, late, .. } = chunks;
        Self { runtime, chunks: stream, patience, late, chunk: Bytes::new() }
    }

    fn next_chunk(&mut self) -> Result<Option<Bytes>, SourceError> {
        let now = Instant::now();
        // A wait beyond the clock's end is no limit.
        let idle = now.checked_add(self.patience.idle);
        let until = [idle, self.patience.until].into_iter().flatten().min();
        let (chunks, runtime) = (&mut self.chunks, &self.runtime);
        let next = match until {
            None => runtime.block_on(chunks.next()),
            Some(until) => {
                let next = runtime.block_on(async { timeout_at(until, chunks.next()).await });
                next.map_err(|_| {
                    let waited = until.saturating_duration_since(now).as_secs();
                    (self.late)(match idle {
                        Some(idle) if idle == until => format!("timed out: nothing came for {waited} s"),
                        _ => "timed out: it took too long in all".to_owned(),
                    })
                })?
            }
        };
        next.transpose()
    }
}

impl Read for StreamReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.chunk.is_empty() {
            match self.next_chunk() {
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
