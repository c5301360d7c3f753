//! Tests of the diff of two versions.

mod records;
