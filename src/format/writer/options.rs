//! How a version file is written.

use strata_types::index::IndexSettings;

use crate::keywords::segment::SegmentLimits;
use crate::profile::ShreddingBounds;
use crate::shapes::builder::ShapeLimits;

/// Most entities of a row group: what one unit of work of a query covers.
pub const ROW_GROUP_ROWS: usize = 32_768;

/// A row group ends with the entity that takes its documents to this many bytes.
pub const ROW_GROUP_BYTES: usize = 32 << 20;

/// A page of documents ends with the entity that takes it to this many bytes, so any offset costs the same.
pub const DOCUMENT_PAGE_BYTES: usize = 128 << 10;

/// Fewest column chunks of a file with an outline: what a reader decodes of fewer is no more than it fetches anyway.
pub const OUTLINE_CHUNKS: usize = 1_024;

#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Workers that shred and encode.
    pub threads: usize,
    pub shredding: ShreddingBounds,
    /// Which paths do and do not get one whatever these are.
    pub index: IndexSettings,
    /// Most entities of a row group, [`ROW_GROUP_ROWS`] but in tests.
    pub row_group_rows: usize,
    /// Bounds of the keyword index, the default but in tests.
    pub keywords: SegmentLimits,
    /// Bounds of shapes, the default but in tests.
    pub shapes: ShapeLimits,
    /// Fewest column chunks of a file with an outline, [`OUTLINE_CHUNKS`] but in tests.
    pub outline_chunks: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            threads: 1,
            shredding: ShreddingBounds::default(),
            index: IndexSettings::default(),
            row_group_rows: ROW_GROUP_ROWS,
            keywords: SegmentLimits::default(),
            shapes: ShapeLimits::default(),
            outline_chunks: OUTLINE_CHUNKS,
        }
    }
}
