//! A pool of buffers for an encoder that several threads share. The buffers are reused from entity to entity.

use parking_lot::Mutex;

/// Number of buffers in a pool: more than the threads that encode one response, so that each finds a free buffer.
const MAX_POOL_SLOTS: usize = 64;

/// A `T` for each thread that uses the pool at once, up to [`MAX_POOL_SLOTS`]. Further threads wait.
///
/// A `T` must not change any result: it is a buffer or a cache. An uncontended lock costs a few nanoseconds.
/// Thread-local memory would exist for each of the many threads that encode a response, and outlive it.
#[derive(Debug)]
pub(super) struct BufferPool<T>(Box<[Mutex<T>]>);

impl<T: Default> Default for BufferPool<T> {
    fn default() -> Self {
        BufferPool((0..MAX_POOL_SLOTS).map(|_| Mutex::default()).collect())
    }
}

impl<T> BufferPool<T> {
    pub(super) fn with_buffer<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        for item in &self.0 {
            if let Some(mut item) = item.try_lock() {
                return work(&mut item);
            }
        }
        work(&mut self.0[0].lock())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Regression test: 90 responses with wide tables, each encoded by dozens of threads in turn, used a gigabyte.
    #[test]
    fn consecutive_threads_share_a_slot() {
        let pool = Arc::new(BufferPool::<Vec<u8>>::default());
        for _ in 0..20 {
            let own = pool.clone();
            thread::spawn(move || own.with_buffer(|bytes| bytes.push(1))).join().expect("it ends");
        }
        assert_eq!(pool.with_buffer(|bytes| bytes.len()), 20);
        let inner = pool.with_buffer(|first| pool.with_buffer(|second| (first.len(), second.len())));
        assert_eq!(inner, (20, 0), "a slot in use is not shared");
    }

    #[test]
    fn thread_waits_if_all_slots_are_used() {
        let pool = Arc::new(BufferPool::<Vec<u8>>::default());
        let held: Vec<_> = pool.0.iter().map(|slot| slot.lock()).collect();
        let own = pool.clone();
        let waiting = thread::spawn(move || own.with_buffer(|bytes| bytes.push(1)));
        thread::sleep(Duration::from_millis(10));
        drop(held);
        waiting.join().expect("it ends");
        assert_eq!(pool.0.iter().map(|slot| slot.lock().len()).sum::<usize>(), 1);
    }

    #[test]
    fn panic_leaves_pool_usable() {
        let pool = Arc::new(BufferPool::<Vec<u8>>::default());
        for _ in 0..=MAX_POOL_SLOTS {
            let pool = pool.clone();
            let broken = thread::spawn(move || pool.with_buffer(|_| panic!("of this test")));
            assert!(broken.join().is_err());
        }
        assert_eq!(pool.with_buffer(|bytes| bytes.len()), 0);
    }
}
