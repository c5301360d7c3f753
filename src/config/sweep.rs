//! `[sweep]`: when files that nothing needs any more are removed.

use super::option::section;

section! {
    /// When files that nothing needs any more are removed.
    Sweep in "sweep" {
        /// Seconds between two sweeps of a running server; 0 sweeps never.
        interval_s: u64 = 3_600, within 0..=2_592_000;
        /// Seconds for which a file is kept after the last version or alternate that named it was gone, or, when none
        /// ever did, after it was written. Reads that began before may use it still, in whatever process: this must be
        /// more than twice `query.timeout_s` (or `query.diff_timeout_s`, if that is more), four times
        /// `query.heavy_wait_s` and `server.answer_timeout_s` together.
        older_than_s: u64 = 86_400, within 1..=31_536_000;
    }
}
