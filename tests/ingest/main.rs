//! Tests of ingestion: URLs, fetching, detection, and decoding.

mod addresses;
mod bombs;
mod decoding;
mod fetching;
mod net;
mod origins;
mod parquet_bombs;
