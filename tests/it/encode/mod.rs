//! Documents to the bytes of an answer.

pub mod formats;
pub mod other_readers;
