//! Working memory that an encoder keeps from one entity to the next, although threads share the encoder.

use std::sync::{Mutex, PoisonError};

/// More than the threads that encode one answer, so that each finds one that is free.
const SLOTS: usize = 64;

/// As many `T` as threads use it at once, at most [`SLOTS`]. More threads share.
///
/// The kept data must not change any result. It is buffers, and facts learned about earlier entities. A lock without
/// contention costs some nanoseconds. Unlike thread-local memory, all of it is freed when the answer is complete. It
/// belongs to no thread: the units of an answer are encoded by ever other threads of many, and each would keep one.
#[derive(Debug)]
pub(super) struct Pool<T>(Box<[Mutex<T>]>);

impl<T: Default> Default for Pool<T> {
    fn default() -> Self {
        Pool((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Pool<T> {
    /// Runs `work` with the first `T` that is free.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        for item in &self.0 {
            if let Ok(mut item) = item.try_lock() {
                return work(&mut item);
            }
        }
        work(&mut self.0[0].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    /// Ninety answers of wide tables, each encoded by dozens of threads in turn, took a gigabyte.
    #[test]
    fn threads_that_come_one_after_another_use_the_same() {
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        for _ in 0..20 {
            let own = pool.clone();
            thread::spawn(move || own.with(|bytes| bytes.push(1))).join().expect("it ends");
        }
        assert_eq!(pool.with(|bytes| bytes.len()), 20);
        let inner = pool.with(|first| pool.with(|second| (first.len(), second.len())));
        assert_eq!(inner, (20, 0), "one that is in use is left alone");
    }
}
