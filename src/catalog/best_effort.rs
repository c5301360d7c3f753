//! Writes that a reader should not have to wait for: when a token was last used, that a session goes on.
//!
//! One such write runs at a time. The reader waits a moment for it, so that usually the next call sees it. If it takes
//! longer or fails, the reader still gets its answer, and no other write is tried for some time. The first failure in a
//! row is logged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::{Catalog, CatalogError};

/// How long a reader waits for such a write. A commit takes milliseconds.
const PATIENCE: Duration = Duration::from_millis(250);

const PAUSE: Duration = Duration::from_secs(10);

/// The state that all clones of a catalog share.
#[derive(Clone, Debug)]
pub(super) struct BestEffort(Arc<State>);

#[derive(Debug)]
struct State {
    turn: Arc<Semaphore>,
    not_before: Mutex<Option<Instant>>,
    failing: AtomicBool,
}

impl BestEffort {
    pub(super) fn new() -> BestEffort {
        BestEffort(Arc::new(State {
            turn: Arc::new(Semaphore::new(1)),
            not_before: Mutex::new(None),
            failing: AtomicBool::new(false),
        }))
    }
}

impl State {
    fn not_before(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // A panic under the lock leaves a complete value.
        self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Catalog {
    /// Begins a write, and returns when it is done or late. A late write goes on. No write begins while another runs,
    /// and for [`PAUSE`] after a failed one.
    pub(super) async fn try_write<F, W>(&self, what: &'static str, write: F)
    where
        F: FnOnce(Catalog) -> W,
        W: Future<Output = Result<(), CatalogError>> + Send + 'static,
    {
        let BestEffort(state) = self.best_effort.clone();
        let Ok(turn) = state.turn.clone().try_acquire_owned() else { return };
        if state.not_before().is_some_and(|until| Instant::now() < until) {
            return;
        }
        let write = write(self.clone());
        let begun = Instant::now();
        let task = tokio::spawn(async move {
            let outcome = write.await;
            let late = begun.elapsed() > PATIENCE;
            match outcome {
                Ok(()) if state.failing.swap(false, Ordering::SeqCst) => tracing::info!(what, "recorded again"),
                Ok(()) => {}
                Err(error) if !state.failing.swap(true, Ordering::SeqCst) => {
                    tracing::warn!(what, cause = ?error, "not recorded; requests are answered all the same");
                }
                Err(_) => {}
            }
            let pauses = late || state.failing.load(Ordering::SeqCst);
            *state.not_before() = pauses.then(|| Instant::now() + PAUSE);
            drop(turn);
        });
        // The task goes on when nobody waits for it any more.
        let _ = tokio::time::timeout(PATIENCE, task).await;
    }
}
