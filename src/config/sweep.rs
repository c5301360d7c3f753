//! `[sweep]`: when unused files are removed.

use super::option::section;

section! {
    /// When unused files are removed.
    Sweep in "sweep" {
        /// Seconds between two sweeps of a running server. 0 is never.
        interval_s: u64 = 3_600, within 0..=2_592_000;
        /// Seconds for which an unused file is kept. They count from the end of the last version or alternate that
        /// named the file. If none ever did, they count from when it was written. Earlier reads may still use it, in
        /// any process. So this must be more than the sum of twice `query.timeout_s` (or `query.diff_timeout_s`, if
        /// that is more), four times `query.heavy_wait_s` and `server.answer_timeout_s`.
        older_than_s: u64 = 86_400, within 1..=31_536_000;
    }
}
