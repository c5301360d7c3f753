//! `[limits]`: what the service accepts.

use super::option::section;

section! {
    /// What the service accepts.
    Limits in "limits" {
        /// Bytes of one entity, as JSON.
        entity_bytes: u64 = 16 << 20, within 1_024..=1 << 30;
        /// Columns that a table (`format=csv`, `tsv`, `parquet`) may have.
        columns: u64 = 10_000, within 1..=100_000;
        /// Requests that one client may make in 60 seconds, those to private datasets with an `Authorization` not
        /// counted; 0 for any number.
        public_per_minute: u64 = 100, within 0..=1_000_000_000;
        /// Requests with an `Authorization` that one client may make to private datasets in 60 seconds; 0 for any
        /// number.
        private_per_minute: u64 = 300, within 0..=1_000_000_000;
    }
}
