//! A store over a network, as far as waiting goes: requests that are made at the same time are answered together.

use std::fmt::{Debug, Display, Formatter};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetRange, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult,
};

/// Requests are answered when nobody has made another one for so long. Work between two requests takes less, on a busy
/// machine, too.
const QUIET: Duration = Duration::from_millis(300);

/// A request for a range of an object, and the wave that it was answered with, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub range: Range<u64>,
    pub wave: usize,
}

#[derive(Debug, Default)]
struct State {
    asked: Vec<Asked>,
    wave: usize,
    last: Option<Instant>,
    /// Ranges from here on cannot be read.
    broken: Option<Range<u64>>,
}

/// The store. Clones share everything.
#[derive(Clone, Debug)]
pub struct Waves {
    inner: Arc<dyn ObjectStore>,
    state: Arc<Mutex<State>>,
}

impl Waves {
    pub fn new(inner: Arc<dyn ObjectStore>) -> Waves {
        Waves { inner, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was asked for since this was called last.
    pub fn asked(&self) -> Vec<Asked> {
        let mut state = self.state();
        state.wave = 0;
        std::mem::take(&mut state.asked)
    }

    /// From now on requests that touch these bytes fail.
    pub fn break_bytes(&self, range: Option<Range<u64>>) {
        self.state().broken = range;
    }

    async fn pass(&self, range: Range<u64>) -> object_store::Result<()> {
        let (mine, broken) = {
            let mut state = self.state();
            let wave = state.wave;
            state.last = Some(Instant::now());
            let broken =
                state.broken.as_ref().is_some_and(|broken| broken.start < range.end && range.start < broken.end);
            state.asked.push(Asked { range, wave });
            (wave, broken)
        };
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let mut state = self.state();
            if state.wave == mine && state.last.is_none_or(|last| last.elapsed() >= QUIET) {
                state.wave += 1;
            }
            if state.wave > mine {
                break;
            }
        }
        match broken {
            true => Err(object_store::Error::Generic { store: "waves", source: "these bytes are broken".into() }),
            false => Ok(()),
        }
    }
}

/// How many waves there were.
pub fn waves(asked: &[Asked]) -> usize {
    asked.iter().map(|asked| asked.wave + 1).max().unwrap_or(0)
}

impl Display for Waves {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Waves")
    }
}

#[async_trait]
impl ObjectStore for Waves {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> object_store::Result<GetResult> {
        if let Some(GetRange::Bounded(range)) = &options.range {
            self.pass(range.clone()).await?;
        }
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<ObjectPath>>,
    ) -> BoxStream<'static, object_store::Result<ObjectPath>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
