//! `[sources]`: what is fetched, and how patiently.

use super::option::section;

section! {
    /// What is fetched, and how patiently.
    Sources in "sources" {
        /// Bytes of one source, as it comes and after decompression.
        max_bytes: u64 = 64 << 30, within 1..=1 << 50;
        /// Seconds that fetching one source may take in all, its decoding meanwhile included.
        timeout_s: u64 = 3_600, within 1..=86_400;
    }
}
