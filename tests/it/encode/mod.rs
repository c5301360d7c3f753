//! Encoding of responses.

mod other_readers;
mod typed;
mod typed_bounds;
