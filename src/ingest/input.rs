//! The bytes of a source: their origin, their count, and the window through which decoders see them.

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
use strata_types::source::Validators;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::DecodeOptions;
use super::error::{SourceError, into_io};
use super::expansion::Expansion;

/// How far the reading of a source has come. Clones share the counter; reading it costs one atomic load.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    pub(super) read_bytes: Arc<AtomicU64>,
    pub(super) total_bytes: Option<u64>,
}

impl Progress {
    /// Bytes taken from the source so far, compressed as they came.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    pub fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    pub(super) fn set(&self, read_bytes: u64) {
        self.read_bytes.store(read_bytes, Ordering::Relaxed);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The bytes of a source and what is known about them before they are read.
pub struct SourceInput {
    pub(super) body: Body,
    pub(super) name: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) progress: Progress,
    /// Whether its bytes were counted when they came.
    pub(super) is_received: bool,
}

/// A file can be read in any order, which Parquet needs; a stream only once.
pub(super) enum Body {
    File(File),
    Stream(Box<dyn Read + Send>),
    /// Still to come; to be received ([`super::Receiver`]), or read from a thread that may block.
    Chunks(Box<Chunks>),
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
            return Ok(Self { name, ..Self::stream(file) });
        }
        let progress = Progress { total_bytes: Some(metadata.len()), ..Progress::default() };
        Ok(Self { name, progress, ..Self::of(Body::File(file)) })
    }

    pub fn stream(reader: impl Read + Send + 'static) -> Self {
        Self::of(Body::Stream(Box::new(reader)))
    }

    /// The body of an answer. One that does not come in time is [`SourceError::Unreachable`].
    pub(super) fn fetched(stream: BoxStream<'static, Result<Bytes, SourceError>>, patience: Patience) -> Self {
        Self::chunks(stream, patience, |reason| SourceError::Unreachable { reason })
    }

    fn chunks(
        stream: BoxStream<'static, Result<Bytes, SourceError>>,
        patience: Patience,
        late: fn(String) -> SourceError,
    ) -> Self {
        let chunks = Chunks { runtime: Handle::current(), stream, patience, least_rate: None, late };
        Self::of(Body::Chunks(Box::new(chunks)))
    }

    fn of(body: Body) -> Self {
        Self { body, name: None, content_type: None, progress: Progress::default(), is_received: false }
    }

    /// The body of a request, to be made within a runtime. One that sends nothing for `idle` is
    /// [`SourceError::Interrupted`].
    pub fn pushed<E>(chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static, idle: Duration) -> Self
    where
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let chunks = chunks.map(|chunk| {
            chunk.map_err(|error| match error.into().downcast::<SourceError>() {
                Ok(error) => *error,
                Err(error) => SourceError::Interrupted { reason: error.to_string() },
            })
        });
        let patience = Patience { idle, until: None };
        Self::chunks(chunks.boxed(), patience, |reason| SourceError::Interrupted { reason })
    }

    /// The same input, given up if it is not complete after that time from now.
    pub fn with_total_timeout(mut self, timeout: Duration) -> Self {
        if let Body::Chunks(chunks) = &mut self.body {
            chunks.patience.until = Instant::now().checked_add(timeout);
        }
        self
    }

    /// The same input, refused when it comes more slowly than `rate`. Only while it is received.
    pub fn with_least_rate(mut self, rate: LeastRate) -> Self {
        if let Body::Chunks(chunks) = &mut self.body {
            chunks.least_rate = Some(rate);
        }
        self
    }

    /// The same input under the name of a file or of a URL's last segment, from which the format is detected.
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// A handle that shows how far the reading has come, to be taken before [`super::open`].
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) idle: Duration,
    pub(super) until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub struct LeastRate {
    /// Bytes per second (`limits.body_min_bytes_per_s`); 0 is none.
    pub bytes_per_s: u64,
    /// The time over which it is measured (`limits.body_rate_window_s`).
    pub window: Duration,
}

#[derive(Debug, Clone)]
pub struct FetchLimits {
    /// For the connection, TLS included (`sources.connect_timeout_s`).
    pub connect_timeout: Duration,
    /// From the request to the head of the answer, redirects included (`sources.answer_timeout_s`).
    pub answer_timeout: Duration,
    /// Between two pieces of the answer (`sources.idle_timeout_s`).
    pub idle_timeout: Duration,
    /// For everything, from the first connection to the body's last byte (`sources.timeout_s`).
    pub total_timeout: Duration,
    /// How many redirects are followed (`sources.redirects`).
    pub redirects_max: usize,
}

impl From<&config::Sources> for FetchLimits {
    fn from(sources: &config::Sources) -> Self {
        Self {
            connect_timeout: Duration::from_secs(sources.connect_timeout_s),
            answer_timeout: Duration::from_secs(sources.answer_timeout_s),
            idle_timeout: Duration::from_secs(sources.idle_timeout_s),
            total_timeout: Duration::from_secs(sources.timeout_s),
            redirects_max: usize::try_from(sources.redirects).unwrap_or(usize::MAX),
        }
    }
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self::from(&config::Sources::default())
    }
}

pub enum Opened {
    Document(Fetched),
    /// The document has not changed since these validators were given. Holds the validators that replace them.
    NotModified(Validators),
}

pub struct Fetched {
    /// The body, with its name, type and length. It must be read on a thread that may block.
    pub input: SourceInput,
    /// The validators for the next time. Keep them only if this document becomes a version. Their URL is where the
    /// answer came from, after redirects, without user name, password and fragment.
    pub validators: Validators,
}

impl Fetched {
    /// The `_source` of entities that have none: the URL, without its query unless that may be published.
    pub fn published_url(&self, with_query: bool) -> String {
        let url = &*self.validators.url;
        let without_query = url.split_once('?').map_or(url, |(without_query, _)| without_query);
        if with_query { url.to_owned() } else { without_query.to_owned() }
    }
}

pub(super) struct Chunks {
    /// The runtime that polls them for a reader that blocks.
    runtime: Handle,
    stream: BoxStream<'static, Result<Bytes, SourceError>>,
    pub(super) patience: Patience,
    pub(super) least_rate: Option<LeastRate>,
    late: fn(String) -> SourceError,
}

impl Chunks {
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
                Err((self.late)(format!("timed out: no data arrived for {} s", self.patience.idle.as_secs())))
            }
            Err(_) => Err((self.late)("timed out: the transfer took too long".to_owned())),
        }
    }
}

/// The chunks as a reader that blocks: a slow decoder slows the sender.
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

/// Counts what passes, retries interruptions, and stops a source that is larger than it may be, or that nobody waits
/// for: that is checked here, because a source of gigabytes may give no entity at all.
pub(super) struct CountingReader<R> {
    inner: R,
    progress: Option<Progress>,
    passed_bytes: u64,
    limit_bytes: u64,
    expansion: Counted,
    cancelled: CancellationToken,
}

pub(super) enum Counted {
    Came(Expansion),
    Became(Expansion),
}

impl<R: Read> CountingReader<R> {
    pub(super) fn new(inner: R, progress: Option<Progress>, expansion: Counted, options: &DecodeOptions) -> Self {
        let cancelled = options.cancelled.clone();
        Self { inner, progress, passed_bytes: 0, limit_bytes: options.source_limit_bytes, expansion, cancelled }
    }
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancelled.is_cancelled() {
            return Err(into_io(SourceError::Interrupted { reason: "the request was canceled".to_owned() }));
        }
        let count = loop {
            match self.inner.read(buffer) {
                Ok(count) => break count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Wrapped here, so that an error of this machine is not taken for one of the document.
                Err(error) => return Err(into_io(SourceError::from(error))),
            }
        };
        self.passed_bytes += count as u64;
        if let Some(progress) = &self.progress {
            progress.add(count as u64);
        }
        check_size(self.passed_bytes, self.limit_bytes).map_err(into_io)?;
        match &self.expansion {
            Counted::Came(expansion) => expansion.came(count as u64),
            Counted::Became(expansion) => expansion.check(self.passed_bytes).map_err(into_io)?,
        }
        Ok(count)
    }
}

/// Checks that a source may have that many bytes (`sources.max_bytes`); 0 is no limit.
pub(super) fn check_size(bytes: u64, limit_bytes: u64) -> Result<(), SourceError> {
    if limit_bytes == 0 || bytes <= limit_bytes {
        return Ok(());
    }
    let reason = format!("the source is larger than sources.max_bytes ({limit_bytes})");
    Err(SourceError::TooLarge { place: None, reason })
}

/// The unread part of a stream as one slice. A decoder consumes it from the front, and lets it grow until it holds a
/// whole item. It never holds more than twice the size to which its owner lets it grow.
pub(super) struct Window {
    source: Box<dyn Read + Send>,
    read_bytes: usize,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether nothing comes after [`Window::unread`].
    pub(super) ended: bool,
}

impl Window {
    /// A window that reads `read_bytes` at a time, or as much again as it holds.
    pub(super) fn new(source: Box<dyn Read + Send>, read_bytes: usize) -> Self {
        Self { source, read_bytes, buffer: Vec::new(), start: 0, end: 0, ended: false }
    }

    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start += count;
    }

    /// Moves the unread bytes to the buffer's front, doubles the buffer if they fill more than half of it, and reads
    /// until it is full. So a decoder that starts its item again after each fill still does work linear in the item's
    /// length. False when nothing more came.
    pub(super) fn fill(&mut self) -> Result<bool, SourceError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end * 2 >= self.buffer.len() {
            let length = (self.buffer.len() * 2).max(self.read_bytes).max(1);
            self.buffer.resize(length, 0);
        }
        let before = self.end;
        while self.end < self.buffer.len() {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.ended = true;
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
