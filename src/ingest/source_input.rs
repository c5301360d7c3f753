//! The bytes of a source: where they come from, how many were read, and the window through which decoders read them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use strata_config as config;
use strata_types::source::SourceValidators;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::DecodeOptions;
use super::egress::UrlQuery;
use super::error::{SourceError, into_io_error};
use super::expansion_guard::ExpansionGuard;

/// The progress of reading a source. Clones share the counter.
#[derive(Debug, Clone, Default)]
pub struct ReadProgress {
    pub(super) read_bytes: Arc<AtomicU64>,
    pub(super) total_bytes: Option<u64>,
}

impl ReadProgress {
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    pub(super) fn set_read_bytes(&self, read_bytes: u64) {
        self.read_bytes.store(read_bytes, Ordering::Relaxed);
    }

    pub(super) fn add_read_bytes(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The bytes of a source, and the metadata that is known before reading them.
pub struct SourceInput {
    pub(super) body: SourceBody,
    pub(super) name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) progress: ReadProgress,
    /// Whether `progress` already includes the bytes of the body, because they were counted on arrival.
    pub(super) is_progress_counted: bool,
}

pub(super) enum SourceBody {
    File(File),
    Reader(Box<dyn Read + Send>),
    /// Chunks that are still arriving. A [`super::BodyReceiver`] or a thread that may block reads them.
    Chunks(Box<BodyChunks>),
}

impl SourceInput {
    pub fn open_file(path: &Path) -> Result<Self, SourceError> {
        let file = File::open(path).map_err(SourceError::Io)?;
        let metadata = file.metadata().map_err(SourceError::Io)?;
        if metadata.is_dir() {
            return Err(SourceError::Io(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        if !metadata.is_file() {
            // A pipe or a device has no length and cannot be read twice.
            return Ok(Self { name, ..Self::from_reader(file) });
        }
        let progress = ReadProgress { total_bytes: Some(metadata.len()), ..ReadProgress::default() };
        Ok(Self { name, progress, ..Self::from_body(SourceBody::File(file)) })
    }

    pub fn from_reader(reader: impl Read + Send + 'static) -> Self {
        Self::from_body(SourceBody::Reader(Box::new(reader)))
    }

    /// Returns the body of an HTTP response. Exceeded timeouts are [`SourceError::Unreachable`].
    pub(super) fn from_response(body: BoxStream<'static, Result<Bytes, SourceError>>, timeouts: BodyTimeouts) -> Self {
        Self::from_chunks(body, timeouts, |reason| SourceError::Unreachable { reason })
    }

    fn from_chunks(
        stream: BoxStream<'static, Result<Bytes, SourceError>>,
        timeouts: BodyTimeouts,
        timeout_error: fn(String) -> SourceError,
    ) -> Self {
        let chunks = BodyChunks { runtime: Handle::current(), stream, timeouts, min_rate: None, timeout_error };
        Self::from_body(SourceBody::Chunks(Box::new(chunks)))
    }

    fn from_body(body: SourceBody) -> Self {
        Self { body, name: None, content_type: None, progress: ReadProgress::default(), is_progress_counted: false }
    }

    /// Returns the body of a request. If no data arrives for `idle`, reads return [`SourceError::Interrupted`].
    /// Must be called within a Tokio runtime.
    pub fn from_request_body<E>(chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static, idle: Duration) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let chunks = chunks.map(|chunk| {
            chunk.map_err(|error| match error.into().downcast::<SourceError>() {
                Ok(error) => *error,
                Err(error) => SourceError::Interrupted { reason: error.to_string() },
            })
        });
        let timeouts = BodyTimeouts { idle_timeout: idle, deadline: None };
        Self::from_chunks(chunks.boxed(), timeouts, |reason| SourceError::Interrupted { reason })
    }

    /// Sets a timeout for the whole body, starting now.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        if let SourceBody::Chunks(chunks) = &mut self.body {
            chunks.timeouts.deadline = Instant::now().checked_add(timeout);
        }
        self
    }

    /// Sets the minimum transfer rate, which a [`super::BodyReceiver`] enforces.
    pub fn with_min_rate(mut self, rate: MinTransferRate) -> Self {
        if let SourceBody::Chunks(chunks) = &mut self.body {
            chunks.min_rate = Some(rate);
        }
        self
    }

    /// Sets the name of the file, or the last segment of the URL's path, for format detection.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    pub fn progress(&self) -> ReadProgress {
        self.progress.clone()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BodyTimeouts {
    pub(super) idle_timeout: Duration,
    pub(super) deadline: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub struct MinTransferRate {
    /// The minimum rate in bytes per second (`limits.body_min_bytes_per_s`); 0 means no minimum.
    pub bytes_per_s: u64,
    /// The interval over which the transfer rate is measured (`limits.body_rate_window_s`).
    pub window: Duration,
}

#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// The timeout of connecting, including TLS (`sources.connect_timeout_s`).
    pub connect_timeout: Duration,
    /// The timeout from the request to the response head, including redirects (`sources.answer_timeout_s`).
    pub response_timeout: Duration,
    /// The timeout between two chunks of the body (`sources.idle_timeout_s`).
    pub idle_timeout: Duration,
    /// The timeout from the first connection to the end of the body (`sources.timeout_s`).
    pub total_timeout: Duration,
    /// The maximum number of followed redirects (`sources.redirects`).
    pub max_redirects: usize,
}

impl From<&config::SourceConfig> for FetchLimits {
    fn from(sources: &config::SourceConfig) -> Self {
        Self {
            connect_timeout: Duration::from_secs(sources.connect_timeout_s),
            response_timeout: Duration::from_secs(sources.answer_timeout_s),
            idle_timeout: Duration::from_secs(sources.idle_timeout_s),
            total_timeout: Duration::from_secs(sources.timeout_s),
            max_redirects: usize::try_from(sources.redirects).unwrap_or(usize::MAX),
        }
    }
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self::from(&config::SourceConfig::default())
    }
}

pub enum FetchOutcome {
    Document(FetchedSource),
    /// The document has not changed since the validators of the request. Contains the validators for the next request.
    NotModified(SourceValidators),
}

pub struct FetchedSource {
    /// The body, with its name, type, and length. It must be read on a thread that may block.
    pub input: SourceInput,
    /// The validators for the next request, to be stored only with the version of this document. Their URL is the final
    /// one, without credentials.
    pub validators: SourceValidators,
}

impl FetchedSource {
    /// Returns the final URL, which is the `_source` of entities that have none.
    pub fn published_url(&self, query: UrlQuery) -> String {
        let url = &*self.validators.url;
        match query {
            UrlQuery::Keep => url.to_owned(),
            UrlQuery::Remove => url.split_once('?').map_or(url, |(without_query, _)| without_query).to_owned(),
        }
    }
}

pub(super) struct BodyChunks {
    /// The Tokio runtime that polls the body stream for a blocking reader.
    runtime: Handle,
    stream: BoxStream<'static, Result<Bytes, SourceError>>,
    pub(super) timeouts: BodyTimeouts,
    pub(super) min_rate: Option<MinTransferRate>,
    timeout_error: fn(String) -> SourceError,
}

impl BodyChunks {
    /// Returns the next chunk of a body, `None` at the end, or an empty chunk if none arrives until `pause_until`.
    pub(super) async fn next_chunk(&mut self, pause_until: Option<Instant>) -> Result<Option<Bytes>, SourceError> {
        // A timeout beyond the range of the clock means no limit.
        let idle = Instant::now().checked_add(self.timeouts.idle_timeout);
        let deadline = [idle, self.timeouts.deadline, pause_until].into_iter().flatten().min();
        let Some(deadline) = deadline else { return self.stream.next().await.transpose() };
        match timeout_at(deadline, self.stream.next()).await {
            Ok(next) => next.transpose(),
            Err(_) if pause_until == Some(deadline) => Ok(Some(Bytes::new())),
            Err(_) if idle == Some(deadline) => Err((self.timeout_error)(format!(
                "timed out: no data arrived for {} s",
                self.timeouts.idle_timeout.as_secs()
            ))),
            Err(_) => Err((self.timeout_error)("timed out: the transfer took too long".to_owned())),
        }
    }
}

/// A blocking reader over chunks. Back-pressure slows the sender down to the speed of the decoder.
pub(super) struct BlockingChunkReader {
    pub(super) chunks: Box<BodyChunks>,
    pub(super) current_chunk: Bytes,
}

impl Read for BlockingChunkReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current_chunk.is_empty() {
            match self.chunks.runtime.clone().block_on(self.chunks.next_chunk(None)) {
                Ok(Some(chunk)) => self.current_chunk = chunk,
                Ok(None) => return Ok(0),
                Err(error) => return Err(into_io_error(error)),
            }
        }
        let count = self.current_chunk.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.current_chunk.split_to(count));
        Ok(count)
    }
}

/// A reader that counts the bytes of a source, retries interrupted reads, and enforces size limits and cancellation.
pub(super) struct CountingReader<R> {
    inner: R,
    progress: Option<ReadProgress>,
    total_bytes: u64,
    max_bytes: u64,
    expansion_stage: ExpansionStage,
    cancellation: CancellationToken,
}

pub(super) enum ExpansionStage {
    Received(ExpansionGuard),
    Expanded(ExpansionGuard),
}

impl<R: Read> CountingReader<R> {
    pub(super) fn new(
        inner: R,
        progress: Option<ReadProgress>,
        expansion_stage: ExpansionStage,
        options: &DecodeOptions,
    ) -> Self {
        let cancellation = options.cancellation.clone();
        Self { inner, progress, total_bytes: 0, max_bytes: options.max_source_bytes, expansion_stage, cancellation }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancellation.is_cancelled() {
            return Err(into_io_error(SourceError::Interrupted { reason: "the request was canceled".to_owned() }));
        }
        let count = loop {
            match self.inner.read(buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Read errors are wrapped, to distinguish errors of this machine from errors in the document.
                Err(error) => return Err(into_io_error(SourceError::from(error))),
            }
        };
        self.total_bytes += count as u64;
        if let Some(progress) = &self.progress {
            progress.add_read_bytes(count as u64);
        }
        check_source_size(self.total_bytes, self.max_bytes).map_err(into_io_error)?;
        match &self.expansion_stage {
            ExpansionStage::Received(expansion) => expansion.add_received(count as u64),
            ExpansionStage::Expanded(expansion) => expansion.check_expanded(self.total_bytes).map_err(into_io_error)?,
        }
        Ok(count)
    }
}

/// Returns an error if a source of `bytes` exceeds `sources.max_bytes` (`limit_bytes`); 0 means no limit.
pub(super) fn check_source_size(bytes: u64, limit_bytes: u64) -> Result<(), SourceError> {
    if limit_bytes == 0 || bytes <= limit_bytes {
        return Ok(());
    }
    let reason = format!("the source is larger than sources.max_bytes ({limit_bytes})");
    Err(SourceError::TooLarge { position: None, reason })
}

/// The unread part of a stream as one contiguous slice. A decoder calls [`ReadWindow::fill`] until the slice contains a
/// whole item, and then consumes it. The buffer is at most twice as large as the largest item.
pub(super) struct ReadWindow {
    source: Box<dyn Read + Send>,
    chunk_bytes: usize,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    pub(super) is_at_end: bool,
}

impl ReadWindow {
    pub(super) fn new(source: Box<dyn Read + Send>, read_bytes: usize) -> Self {
        Self { source, chunk_bytes: read_bytes, buffer: Vec::new(), start: 0, end: 0, is_at_end: false }
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Moves the unread bytes to the front, doubles the buffer if they fill more than half of it, and reads until it is
    /// full. Returns `false` at the end. The doubling keeps the total work linear, even if a decoder restarts its item.
    pub(super) fn fill(&mut self) -> Result<bool, SourceError> {
        if self.is_at_end {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end * 2 >= self.buffer.len() {
            let length = (self.buffer.len() * 2).max(self.chunk_bytes).max(1);
            self.buffer.resize(length, 0);
        }
        let before = self.end;
        while self.end < self.buffer.len() {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.is_at_end = true;
                    break;
                }
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SourceError::from(error)),
            }
        }
        Ok(self.end > before)
    }
}
