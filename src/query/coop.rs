//! Cooperative scheduling: long computations yield, so that they can be cancelled and exceed their time limit.

/// Work between two yields, in bytes: about a millisecond.
const YIELD_EVERY_BYTES: usize = 1 << 20;

/// The work since the last yield, in bytes.
#[derive(Debug, Default)]
pub(super) struct YieldBudget(usize);

impl YieldBudget {
    #[inline]
    pub(super) async fn consume(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= YIELD_EVERY_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
