//! Memory that is taken to be faster, and not needed: bounded for the whole process.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub struct HeldBytes {
    held: AtomicU64,
    most: u64,
}

impl HeldBytes {
    pub const fn new(most: u64) -> HeldBytes {
        HeldBytes { held: AtomicU64::new(0), most }
    }

    /// Takes bytes until what is returned is dropped; `None` when there are not so many.
    pub fn take(&'static self, bytes: u64) -> Option<Held> {
        let before = self.held.fetch_add(bytes, Ordering::Relaxed);
        // Gives them back when it is dropped.
        let held = Held { of: self, bytes };
        (before.saturating_add(bytes) <= self.most).then_some(held)
    }
}

#[derive(Debug)]
pub struct Held {
    of: &'static HeldBytes,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.of.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back() {
        static BYTES: HeldBytes = HeldBytes::new(10);
        let most = BYTES.take(10).expect("room");
        assert!(BYTES.take(1).is_none() && BYTES.take(u64::MAX).is_none());
        drop(most);
        assert!(BYTES.take(10).is_some() && BYTES.take(11).is_none());
        assert_eq!(BYTES.held.load(Ordering::Relaxed), 0);
    }
}
