//! Buffers that an encoder reuses for each entity, although threads share the encoder.

use std::sync::{Mutex, PoisonError};

/// More than the threads that encode a response, so that each finds a free slot.
const SLOTS: usize = 64;

/// A `T` for each thread that uses the pool at once, up to [`SLOTS`]. More threads wait for each other.
///
/// A `T` must not change any result: it is a buffer or a cache. An uncontended lock costs a few nanoseconds.
/// Thread-local memory would exist for each of the many threads that encode parts of a response, and after the
/// response.
#[derive(Debug)]
pub(super) struct Pool<T>(Box<[Mutex<T>]>);

impl<T: Default> Default for Pool<T> {
    fn default() -> Self {
        Pool((0..SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl<T> Pool<T> {
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
    use std::time::Duration;

    use super::*;

    /// Ninety responses with wide tables, each encoded by dozens of threads in turn, used a gigabyte.
    #[test]
    fn consecutive_threads_share_a_slot() {
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        for _ in 0..20 {
            let own = pool.clone();
            thread::spawn(move || own.with(|bytes| bytes.push(1))).join().expect("it ends");
        }
        assert_eq!(pool.with(|bytes| bytes.len()), 20);
        let inner = pool.with(|first| pool.with(|second| (first.len(), second.len())));
        assert_eq!(inner, (20, 0), "a slot in use is not shared");
    }

    #[test]
    fn thread_waits_if_all_slots_are_used() {
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        let held: Vec<_> = pool.0.iter().map(|slot| slot.lock().expect("free")).collect();
        let own = pool.clone();
        let waiting = thread::spawn(move || own.with(|bytes| bytes.push(1)));
        thread::sleep(Duration::from_millis(10));
        drop(held);
        waiting.join().expect("it ends");
        assert_eq!(pool.0.iter().map(|slot| slot.lock().expect("free").len()).sum::<usize>(), 1);
    }

    #[test]
    fn panic_leaves_pool_usable() {
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        for _ in 0..=SLOTS {
            let pool = pool.clone();
            let broken = thread::spawn(move || pool.with(|_| panic!("of this test")));
            assert!(broken.join().is_err());
        }
        assert_eq!(pool.with(|bytes| bytes.len()), 0);
    }
}
