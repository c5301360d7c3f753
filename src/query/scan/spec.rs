//! What a scan reads and gives, decided before anything is read.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use crate::query::scan::access::Access;
use crate::query::scan::keyword_index::KeywordQuestions;
use crate::query::scan::metrics::ScanMetrics;
use crate::query::scan::predicate::Predicate;
use crate::query::scan::schema::Computed;
use crate::query::scan::top_k::TopKThreshold;
use crate::storage::reader::VersionReader;

/// What a scan reads and gives. Clones share their metrics.
#[derive(Clone)]
pub(super) struct ScanSpec {
    pub(super) reader: VersionReader,
    pub(super) schema: SchemaRef,
    /// With the way each is answered, cheapest first.
    pub(super) predicates: Arc<[(Access, Predicate)]>,
    /// What they ask the keyword index for, where the version has one.
    pub(super) keywords: Option<Arc<KeywordQuestions>>,
    /// Positions looked at.
    pub(super) range: Range<u64>,
    /// Most entities given.
    pub(super) fetch: Option<usize>,
    /// Only what may be among the first of the order is wanted.
    pub(super) threshold: Option<Arc<TopKThreshold>>,
    pub(super) computed: Computed,
    pub(super) metrics: Arc<ScanMetrics>,
}

impl ScanSpec {
    /// The rows of a row group that lie in the range.
    pub(super) fn rows(&self, row_group: usize) -> Range<usize> {
        let group = self.reader.row_groups()[row_group];
        let within = |position: u64| (position.saturating_sub(group.first) as usize).min(group.rows);
        within(self.range.start)..within(self.range.end)
    }

    /// The row groups that the range touches.
    pub(super) fn row_groups(&self) -> Range<usize> {
        if self.range.is_empty() || self.fetch == Some(0) {
            return 0..0;
        }
        self.reader.row_group_of(self.range.start)..self.reader.row_group_of(self.range.end - 1) + 1
    }

    /// Whether the scan gives a column.
    pub(super) fn gives(&self, column: &str) -> bool {
        self.schema.fields().iter().any(|field| field.name() == column)
    }
}
