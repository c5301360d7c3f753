//! Working memory that an encoder keeps from one entity to the next, although threads share the encoder.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// More than the threads that encode one answer, so that each has a slot of its own.
const SLOTS: usize = 64;

/// One `T` per thread for up to [`SLOTS`] threads. More threads share.
///
/// The kept data must not change any result. It is buffers, and facts learned about earlier entities. A lock without
/// contention costs some nanoseconds. Unlike thread-local memory, all of it is freed when the answer is complete.
#[derive(Debug)]
pub(super) struct Pool<T>(Box<[Mutex<T>]>);

impl<T: Default> Default for Pool<T> {
    fn default() -> Self {
        Pool((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Pool<T> {
    /// Runs `work` with this thread's `T`, or with another that is free.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let own = slot();
        for turn in 0..SLOTS {
            if let Ok(mut item) = self.0[(own + turn) % SLOTS].try_lock() {
                return work(&mut item);
            }
        }
        work(&mut self.0[own].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The slot that belongs to this thread.
fn slot() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SLOT: usize = THREADS.fetch_add(1, Ordering::Relaxed) % SLOTS;
    }
    SLOT.with(|slot| *slot)
}
