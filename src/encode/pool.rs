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
    use std::sync::{Arc, Barrier};
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

    /// More encoders than slots wait for one of them. None of them gets memory of its own, and all of them end.
    #[test]
    fn more_threads_than_slots_share_them() {
        const THREADS: usize = SLOTS + 26;
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        let full = Arc::new(Barrier::new(SLOTS + 1));
        let released = Arc::new(Barrier::new(SLOTS + 1));
        let holder = || {
            let (pool, full, released) = (pool.clone(), full.clone(), released.clone());
            thread::spawn(move || {
                pool.with(|bytes| {
                    bytes.push(1);
                    full.wait();
                    released.wait();
                });
            })
        };
        let mut threads: Vec<_> = (0..SLOTS).map(|_| holder()).collect();
        full.wait();
        assert!(pool.0.iter().all(|slot| slot.try_lock().is_err()), "each has one of its own");
        for _ in SLOTS..THREADS {
            let pool = pool.clone();
            threads.push(thread::spawn(move || pool.with(|bytes| bytes.push(1))));
        }
        released.wait();
        threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
        let lengths: Vec<usize> = pool.0.iter().map(|slot| slot.lock().expect("free").len()).collect();
        assert_eq!((lengths.len(), lengths.iter().sum::<usize>()), (SLOTS, THREADS), "{lengths:?}");
        assert!(lengths.iter().all(|length| *length > 0), "{lengths:?}");
    }

    /// What a panic has left is used no more, as long as there is another; work goes on even where there is none.
    #[test]
    fn work_goes_on_after_panics() {
        let pool = Arc::new(Pool::<Vec<u8>>::default());
        for _ in 0..=SLOTS {
            let pool = pool.clone();
            let broken = thread::spawn(move || pool.with(|_| panic!("of this test")));
            assert!(broken.join().is_err());
        }
        assert_eq!(pool.with(|bytes| bytes.len()), 0);
    }
}
