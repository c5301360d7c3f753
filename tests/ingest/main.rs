//! From a source to its entities.

mod decoding;
mod fetching;
mod net;
mod origins;
