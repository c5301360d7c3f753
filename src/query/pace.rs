//! Giving way: work that waits for nothing lets its thread see to other things now and then, so that it can be
//! cancelled and runs into its time limit.

/// Bytes that are worked on between two points of giving way: about a millisecond's work.
const STRETCH_BYTES: usize = 1 << 20;

/// How much has been worked on since the last point of giving way.
#[derive(Debug, Default)]
pub(super) struct Pace(usize);

impl Pace {
    #[inline]
    pub(super) async fn worked(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= STRETCH_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
