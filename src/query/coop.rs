//! Cooperative scheduling: long computations yield to the executor, so that cancellation and timeouts take effect.

/// Bytes of work after which a computation yields to the executor: about a millisecond.
const YIELD_EVERY_BYTES: usize = 1 << 20;

/// The work since the last yield, in bytes. A caller records the bytes that it processes, or an equivalent number.
#[derive(Debug, Default)]
pub(super) struct YieldBudget(usize);

impl YieldBudget {
    #[inline]
    pub(super) async fn yield_after(&mut self, bytes: usize) {
        self.0 += bytes;
        if self.0 >= YIELD_EVERY_BYTES {
            self.0 = 0;
            tokio::task::yield_now().await;
        }
    }
}
