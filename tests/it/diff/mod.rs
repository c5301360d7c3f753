//! What two versions differ in.

pub mod records;
