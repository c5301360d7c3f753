//! The keyword index of a version file: which rows hold a text, or may hold it, without a look at their search text.
//!
//! | Module | Holds |
//! |---|---|
//! | [`cut`] | search text to entries, a needle to a plan of pieces |
//! | [`lists`] | the rows of an entry as bytes |
//! | [`segment`] | the index of some row groups as bytes: made by a builder, asked through a reader |
//! | [`indexing`] | the row groups of a file to segments, while it is written |
//! | [`stored`] | where the segments of a file lie |
//! | `damaged` | what is wrong with bytes that are no index |
//!
//! Nothing here does I/O. Bytes are verified by their checksums before they come here; what is damaged nonetheless
//! gives an error or other rows, and no panic.

pub mod cut;
mod damaged;
pub mod indexing;
pub mod lists;
pub mod segment;
pub mod stored;

pub use damaged::Damaged;
