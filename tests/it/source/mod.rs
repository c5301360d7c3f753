//! From a source to its entities.

mod decoding;
mod fetching;
mod origins;
