//! What two versions differ in.

mod records;
