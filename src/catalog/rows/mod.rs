//! Rows of the tables that several modules read: their columns, what they mean, and their checksums.

pub(super) mod dataset;
pub(super) mod version;
