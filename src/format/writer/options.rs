//! Options for writing a version file.

use strata_types::index_settings::IndexSettings;

use crate::keywords::indexer::KeywordSegmentLimits;
use crate::profile::ShreddingLimits;

/// Max entities of a row group, which is the unit of work of a query.
pub const MAX_ROW_GROUP_ROWS: usize = 32_768;
pub const ROW_GROUP_TARGET_BYTES: usize = 32 << 20;
/// A document page ends when it reaches this size, so that reading at any offset has a similar cost.
pub const DOCUMENT_PAGE_TARGET_BYTES: usize = 128 << 10;
/// Min column chunks of a file with a footer index. Smaller footers are fetched and decoded quickly.
pub const MIN_FOOTER_INDEX_CHUNKS: usize = 1_024;

#[derive(Clone, Debug)]
pub struct WriteOptions {
    pub worker_threads: usize,
    pub shredding_limits: ShreddingLimits,
    pub index_settings: IndexSettings,
    pub max_row_group_rows: usize,
    pub keyword_limits: KeywordSegmentLimits,
    pub min_footer_index_chunks: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        WriteOptions {
            worker_threads: 1,
            shredding_limits: ShreddingLimits::default(),
            index_settings: IndexSettings::default(),
            max_row_group_rows: MAX_ROW_GROUP_ROWS,
            keyword_limits: KeywordSegmentLimits::default(),
            min_footer_index_chunks: MIN_FOOTER_INDEX_CHUNKS,
        }
    }
}
