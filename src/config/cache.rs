//! `[cache]`: what is kept in memory between requests.

use super::option::section;

section! {
    /// What is kept in memory between requests.
    Cache in "cache" {
        /// Bytes of memory for decoded parts of version files; 0 keeps nothing.
        memory_bytes: u64 = 1 << 30;
    }
}
