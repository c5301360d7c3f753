//! From a source to its entities.

pub mod decoding;
pub mod origins;
