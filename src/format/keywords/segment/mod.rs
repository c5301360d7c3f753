//! The keyword index of a segment: several consecutive row groups.
//!
//! A segment has four [sections](SegmentSection) for each [class](super::tokenizer::TokenClass) of tokens:
//!
//! | Section | Content |
//! |---|---|
//! | dictionary | distinct tokens with at least two rows, sorted, with their row counts |
//! | row tokens | tokens in row order: those with one row, and all long tokens |
//! | checksums | checksums of the blocks of posting lists |
//! | postings | a [posting list](super::postings) for each token of the dictionary |
//!
//! A reader does its own I/O between these steps:
//!
//! 1. Decode the dictionaries and row tokens of the classes that [`SegmentHeader::required_classes`] returns.
//! 2. [`probe_segment`], and then load the lists that [`SegmentProbe::required_postings`] returns for each fragment.
//! 3. [`SegmentProbe::intersect_fragment`] with one fragment after the other, until few rows are left.
//! 4. [`SegmentProbe::choose_verification`].

mod builder;
mod delimited_text;
mod reader;
mod section_layout;
mod token_table;
mod trigram_index;

pub use builder::{KeywordSegment, KeywordSegmentBuilder, KeywordSegmentLimits};
pub use reader::{
    ClassTokens, KeywordCandidates, LoadedSections, PostingBytes, RowTokens, SegmentProbe, TokenDictionary,
    probe_segment,
};
pub use section_layout::{POSTING_BLOCK_BYTES, SectionKind, SectionLengths, SegmentHeader, SegmentSection};
