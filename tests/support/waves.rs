//! A store that counts network round trips: concurrent requests are answered together, as one wave.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use object_store::GetRange;

use crate::watched_store::{StoreRequest, Watch};

/// Requests are answered if no other request arrives for this time, which is longer than the work between two requests,
/// even on a busy machine.
const QUIET: Duration = Duration::from_millis(300);

/// A request for a range of an object, and the number of its wave, starting at 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    pub range: Range<u64>,
    pub wave: usize,
}

#[derive(Debug, Default)]
struct WaveState {
    asked: Vec<RangeRequest>,
    wave: usize,
    last: Option<Instant>,
    /// Ranges from this offset cannot be read.
    broken: Option<Range<u64>>,
}

/// The recorded requests of a [`WatchedStore`](crate::watched_store::WatchedStore). Clones share the record.
#[derive(Clone, Debug, Default)]
pub struct Waves(Arc<Mutex<WaveState>>);

impl Waves {
    fn state(&self) -> MutexGuard<'_, WaveState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the requests since the previous call.
    pub fn take_requests(&self) -> Vec<RangeRequest> {
        let mut state = self.state();
        state.wave = 0;
        std::mem::take(&mut state.asked)
    }

    /// Makes requests for these bytes fail.
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
            state.asked.push(RangeRequest { range, wave });
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

/// Returns the number of waves.
pub fn waves(asked: &[RangeRequest]) -> usize {
    asked.iter().map(|asked| asked.wave + 1).max().unwrap_or(0)
}

#[async_trait]
impl Watch for Waves {
    async fn before(&self, request: StoreRequest<'_>) -> object_store::Result<()> {
        match request {
            StoreRequest::Get(options) => match &options.range {
                Some(GetRange::Bounded(range)) => self.pass(range.clone()).await,
                _ => Ok(()),
            },
            StoreRequest::Put | StoreRequest::Upload => Ok(()),
        }
    }
}
