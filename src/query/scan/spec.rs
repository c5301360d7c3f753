//! What a scan reads and gives, decided before anything is read.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::path::Path;

use crate::scan::access::Condition;
use crate::scan::dedup_key::GroupSource;
use crate::scan::distinct::DistinctFilter;
use crate::scan::kept_index::Indexes;
use crate::scan::keyword_index::KeywordQuestions;
use crate::scan::metrics::ScanMetrics;
use crate::scan::path_codes::MayRead;
use crate::scan::report::PruneCounter;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION};
use crate::scan::sort_key;
use crate::scan::top_k::TopKThreshold;

/// What a scan reads and gives. Clones share their metrics.
#[derive(Clone)]
pub(super) struct ScanSpec {
    pub(super) reader: VersionReader,
    pub(super) schema: SchemaRef,
    /// With the way each is answered, cheapest first.
    pub(super) predicates: Arc<[Condition]>,
    /// What they ask the keyword index for, where the version has one.
    pub(super) keywords: Option<Arc<KeywordQuestions>>,
    /// What hash indexes say of them: asked when the scan begins.
    pub(super) indexes: Indexes,
    pub(super) range: Range<u64>,
    /// The row groups looked at, ascending, where other nodes look at the others.
    pub(super) part: Option<Arc<[usize]>>,
    pub(super) fetch: Option<usize>,
    /// Only what may be among the first of the order is wanted.
    pub(super) threshold: Option<Arc<TopKThreshold>>,
    /// Only what may be the first of its group is wanted.
    pub(super) distinct: bool,
    pub(super) computed: Computed,
    /// Where the keys of groups come from, and what leaves duplicates out: decided when the scan begins.
    pub(super) group_source: Option<Arc<GroupSource>>,
    pub(super) distinct_filter: Option<Arc<DistinctFilter>>,
    pub(super) metrics: Arc<ScanMetrics>,
}

impl ScanSpec {
    pub(super) fn rows(&self, row_group: usize) -> Range<usize> {
        let group = self.reader.row_groups()[row_group];
        let within = |position: u64| (position.saturating_sub(group.first) as usize).min(group.rows);
        within(self.range.start)..within(self.range.end)
    }

    pub(super) fn row_groups(&self) -> Range<usize> {
        if self.range.is_empty() || self.fetch == Some(0) {
            return 0..0;
        }
        self.reader.row_group_of(self.range.start)..self.reader.row_group_of(self.range.end - 1) + 1
    }

    /// Those of them that this scan looks at, and that hash indexes leave.
    pub(super) fn row_groups_left(&self) -> Vec<usize> {
        let row_groups = self.row_groups();
        if let Some(part) = &self.part {
            return part.iter().copied().filter(|row_group| row_groups.contains(row_group)).collect();
        }
        if self.indexes.candidates.is_none() {
            return row_groups.collect();
        }
        let (left, out): (Vec<usize>, Vec<usize>) =
            row_groups.partition(|row_group| self.looked_at(*row_group).len() > 0);
        for row_group in out {
            self.count_pruned(row_group, self.rows(row_group).len(), |used| &mut used.pruned_by_hash_index);
        }
        left
    }

    pub(super) fn count_pruned(&self, row_group: usize, rows: usize, counter: PruneCounter) {
        self.metrics.count_pruned(rows, self.reader.stored_bytes(row_group), counter);
    }

    /// The rows of a row group that predicates are tested on: those in the range that hash indexes leave.
    pub(super) fn looked_at(&self, row_group: usize) -> RowSelection {
        let rows = self.rows(row_group);
        let Some(candidates) = &self.indexes.candidates else { return RowSelection::Range(rows) };
        let first = self.reader.row_groups()[row_group].first;
        let candidates = candidates.within(first + rows.start as u64, first + rows.end as u64);
        RowSelection::List(candidates.iter().map(|position| (u64::from(*position) - first) as usize).collect())
    }

    /// The bytes that the full-text conditions read of a row group: of the keyword index, or of the whole column.
    pub(super) fn full_text_bytes(&self, row_group: usize, column_bytes: impl FnOnce() -> u64) -> u64 {
        match &self.keywords {
            _ if !self.predicates.iter().any(Condition::reads_full_text) => 0,
            Some(keywords) => keywords.row_group_bytes(&self.reader, row_group),
            None => column_bytes(),
        }
    }

    pub(super) fn asks_keyword_index(&self, predicate: usize) -> bool {
        self.keywords.as_ref().is_some_and(|keywords| keywords.asks(predicate))
    }

    pub(super) fn gives(&self, column: &str) -> bool {
        self.schema.fields().iter().any(|field| field.name() == column)
    }

    /// The row groups that the range touches, each with a rank that none of its rows is below: those that may hold the
    /// first of an order come first, if only these are wanted.
    pub(super) async fn best_first(&self) -> Vec<(usize, u64)> {
        let row_groups = self.row_groups_left().into_iter();
        let (Some(_), Some(order)) = (&self.threshold, &self.computed.order) else {
            return row_groups.map(|row_group| (row_group, 0)).collect();
        };
        let index = self.reader.paths().await.ok();
        let path = Path::from_keys([order.field.as_str()]).ok();
        let facts = index.zip(path).and_then(|(index, path)| index.get(&path.to_string()));
        let has_text = facts.and_then(|facts| facts.has_text).unwrap_or(true);
        let ranked =
            row_groups.map(|row_group| (row_group, sort_key::least_rank(&self.reader, row_group, order, has_text)));
        let mut ranked: Vec<(usize, u64)> = ranked.collect();
        ranked.sort_by_key(|(_, rank)| *rank);
        ranked
    }

    /// Whether no row of this rank or a higher one may be among the first of the order.
    pub(super) fn is_beyond_threshold(&self, row_group: usize, least_rank: u64) -> bool {
        let is_beyond = self.threshold.as_ref().is_some_and(|threshold| !threshold.may_hold(least_rank));
        if is_beyond {
            self.count_pruned(row_group, self.rows(row_group).len(), |used| &mut used.pruned_by_order);
        }
        is_beyond
    }

    /// Whether it costs no more than handing row groups to threads would: it gives positions alone, or hash indexes
    /// leave few entities.
    pub(super) fn is_cheap(&self) -> bool {
        const FEW: usize = 4_096;
        let few = self.indexes.candidates.as_ref().map(|candidates| candidates.len() <= FEW);
        few.unwrap_or(self.predicates.is_empty()) && self.schema.fields().iter().all(|field| field.name() == POSITION)
    }

    /// Whether it gives all entities of the version, as far as predicates and positions go.
    pub(super) fn is_whole(&self) -> bool {
        let is_cut = self.fetch.is_some() || self.part.is_some();
        self.predicates.is_empty() && self.range == (0..self.reader.entity_count()) && !is_cut
    }

    /// Whether what is wanted is the first entity of every group of the version, by position.
    pub(super) fn finds_all_firsts(&self) -> bool {
        self.distinct && self.is_whole() && !self.gives(ORDER)
    }

    /// What may be read of the whole version to make codes, which later scans use, too: less where predicates may leave
    /// few entities.
    pub(super) async fn may_read_for_codes(&self) -> Result<MayRead, StorageError> {
        if self.is_whole() {
            return Ok(MayRead::Documents);
        }
        let mut left = 0;
        for row_group in self.row_groups() {
            let mut is_left = true;
            for condition in self.predicates.iter() {
                tokio::task::consume_budget().await;
                is_left = is_left && condition.prune(&self.reader, row_group).await?.is_none();
            }
            left += usize::from(is_left);
        }
        let most = left > self.reader.row_groups().len() / 2;
        Ok(if most { MayRead::Columns } else { MayRead::Nothing })
    }

    /// The batch of entities at these positions, of which nothing more has to be read: each in a group of its own, in
    /// this order after so many others.
    pub(super) fn known(&self, positions: &[u64], before: usize) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            columns.push(match field.name().as_str() {
                POSITION => Arc::new(UInt64Array::from(positions.to_vec())),
                name @ (ORDER | GROUP) => {
                    let mut keys = BinaryBuilder::with_capacity(positions.len(), positions.len() * 16);
                    for (place, position) in positions.iter().enumerate() {
                        let mut key = [0; 16];
                        key[..8].copy_from_slice(&((before + place) as u64).to_be_bytes());
                        key[8..].copy_from_slice(&position.to_be_bytes());
                        // An order key ends with the position.
                        keys.append_value(if name == ORDER { &key[..] } else { &key[8..] });
                    }
                    Arc::new(keys.finish())
                }
                other => return internal_err!("the column {other} requires reading the file"),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(positions.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}
