//! Documents to the bytes of an answer.

mod other_readers;
mod typed;
mod typed_bounds;
