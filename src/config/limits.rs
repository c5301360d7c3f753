//! `[limits]`: what the service accepts.

use super::option::section;

section! {
    /// What the service accepts.
    Limits in "limits" {
        /// Bytes of one entity, as JSON.
        entity_bytes: u64 = 16 << 20, within 1_024..=1 << 30;
        /// Columns that a table (`format=csv`, `tsv`, `parquet`) may have.
        columns: u64 = 10_000, within 1..=100_000;
    }
}
