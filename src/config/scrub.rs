//! `[scrub]`: how often a running server checks files for damage.

use super::option::section;

section! {
    /// How often a running server checks files for damage.
    Scrub in "scrub" {
        /// Seconds between the end of a scrub and the begin of the next. 0 is never. A scrub reads every version file
        /// once. If several processes share a catalog, one of them scrubs. After a restart the scrub continues where it
        /// was.
        interval_s: u64 = 2_592_000, within 0..=31_536_000;
        /// Bytes of version files that a scrub reads a second, on average. 0 is no bound.
        bytes_per_s: u64 = 8_388_608;
    }
}
