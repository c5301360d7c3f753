//! From a source to its entities.

mod addresses;
mod bombs;
mod decoding;
mod fetching;
mod net;
mod origins;
mod parquet_bombs;
