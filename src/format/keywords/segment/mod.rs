//! The index of a segment: some row groups that follow each other.
//!
//! A segment has twelve [sections](Section), for each [class](super::cut::Class) of entries four:
//!
//! | Section | Holds |
//! |---|---|
//! | dictionary | the distinct entries of at least two rows, sorted; how many rows have each |
//! | texts | entries in the order of their rows: those of one row, and long ones of any row |
//! | checksums | those of the blocks of lists |
//! | lists | the [list](super::postings) of each entry of the dictionary |
//!
//! A reader takes these steps, with its own I/O between them:
//!
//! 1. [`Header::classes_needed`] by a plan: decode their dictionaries and texts, once for many needles.
//! 2. [`find`] in them; what it finds says for each piece which lists are needed, if any.
//! 3. [`Found::narrow`] by one piece after the other, until few enough rows are left.
//! 4. [`Found::conclude`].

mod builder;
mod grams;
mod layout;
mod reader;
mod searched;
mod table;

pub use builder::{Segment, SegmentBuilder, SegmentLimits};
pub use layout::{BLOCK_BYTES, Header, Lengths, Part, Section};
pub use reader::{Candidates, Dictionary, Entries, Found, ListBytes, Sections, Texts, find};
