//! What a scan reads and returns, decided before anything is read.

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
use crate::scan::dedup_source::GroupSource;
use crate::scan::distinct::DistinctFilter;
use crate::scan::hash_index::HashIndexes;
use crate::scan::keyword_index::KeywordQuestions;
use crate::scan::metrics::ScanMetrics;
use crate::scan::path_codes::MayRead;
use crate::scan::report::{AccessName, KeyUse, PruneCounter, ScanUse};
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::{Computed, GROUP, ORDER, POSITION};
use crate::scan::sort_key;
use crate::scan::top_k::TopKThreshold;

/// What a scan reads and returns. Clones share their metrics.
#[derive(Clone)]
pub(super) struct ScanSpec {
    pub(super) reader: VersionReader,
    pub(super) schema: SchemaRef,
    /// The cheapest access path first.
    pub(super) predicates: Arc<[Condition]>,
    pub(super) keywords: Option<Arc<KeywordQuestions>>,
    /// Probed when the scan begins.
    pub(super) indexes: HashIndexes,
    pub(super) range: Range<u64>,
    /// The row groups of a partial scan, ascending. Other nodes scan the others.
    pub(super) part: Option<Arc<[usize]>>,
    pub(super) fetch: Option<usize>,
    /// If set, rows that cannot be among the first of the order are left out.
    pub(super) threshold: Option<Arc<TopKThreshold>>,
    /// Whether rows that cannot be the first of their group are left out.
    pub(super) distinct: bool,
    pub(super) computed: Computed,
    /// Set when the scan begins, like `distinct_filter`.
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

    /// The row groups that hash indexes leave, or those of a partial scan.
    pub(super) fn row_groups_left(&self) -> Vec<usize> {
        let row_groups = self.row_groups();
        if let Some(part) = &self.part {
            return part.iter().copied().filter(|row_group| row_groups.contains(row_group)).collect();
        }
        if self.indexes.candidates.is_none() {
            return row_groups.collect();
        }
        let has_candidates = |row_group: &usize| {
            let has_candidates = self.candidate_rows(*row_group).len() > 0;
            if !has_candidates {
                self.count_pruned(*row_group, self.rows(*row_group).len(), |used| &mut used.pruned_by_hash_index);
            }
            has_candidates
        };
        row_groups.filter(has_candidates).collect()
    }

    pub(super) fn count_pruned(&self, row_group: usize, rows: usize, counter: PruneCounter) {
        self.metrics.count_pruned(rows, self.reader.stored_bytes(row_group), counter);
    }

    /// The rows of a row group in the range that hash indexes leave.
    pub(super) fn candidate_rows(&self, row_group: usize) -> RowSelection {
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

    /// The row groups to scan, with the minimum rank of their rows, by rank if only the first of an order are needed.
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
            row_groups.map(|row_group| (row_group, sort_key::min_rank(&self.reader, row_group, order, has_text)));
        let mut ranked: Vec<(usize, u64)> = ranked.collect();
        ranked.sort_by_key(|(_, rank)| *rank);
        ranked
    }

    /// Whether no row of a row group can be among the first of the order.
    pub(super) fn is_beyond_threshold(&self, row_group: usize, min_rank: u64) -> bool {
        let is_beyond = self.threshold.as_ref().is_some_and(|threshold| !threshold.may_hold(min_rank));
        if is_beyond {
            self.count_pruned(row_group, self.rows(row_group).len(), |used| &mut used.pruned_by_order);
        }
        is_beyond
    }

    /// Whether the scan costs less than moving row groups to other threads.
    pub(super) fn is_cheap(&self) -> bool {
        const MAX_CANDIDATES: usize = 4_096;
        let few = self.indexes.candidates.as_ref().map(|candidates| candidates.len() <= MAX_CANDIDATES);
        few.unwrap_or(self.predicates.is_empty()) && self.schema.fields().iter().all(|field| field.name() == POSITION)
    }

    /// Whether the scan is of all entities of the version.
    pub(super) fn is_whole(&self) -> bool {
        let is_cut = self.fetch.is_some() || self.part.is_some();
        self.predicates.is_empty() && self.range == (0..self.reader.entity_count()) && !is_cut
    }

    /// Whether the scan finds the first entity of every group of the version, by position.
    pub(super) fn finds_all_firsts(&self) -> bool {
        self.distinct && self.is_whole() && !self.gives(ORDER)
    }

    /// What can be read of the whole version to build codes: less if predicates leave few entities.
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

    /// A batch of entities in a known order after `before` others, of which each is a group.
    pub(super) fn known(&self, positions: &[u64], before: usize) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            columns.push(match field.name().as_str() {
                POSITION => Arc::new(UInt64Array::from(positions.to_vec())),
                name @ (ORDER | GROUP) => {
                    let mut keys = BinaryBuilder::with_capacity(positions.len(), positions.len() * 16);
                    for (ordinal, position) in (before as u64..).zip(positions) {
                        let mut key = [0; 16];
                        key[..8].copy_from_slice(&ordinal.to_be_bytes());
                        key[8..].copy_from_slice(&position.to_be_bytes());
                        // An order key ends with the position.
                        keys.append_value(if name == ORDER { &key[..] } else { &key[8..] });
                    }
                    Arc::new(keys.finish())
                }
                other => return internal_err!("the column {other} requires reading the file"),
            });
        }
        self.batch(columns, positions.len())
    }

    pub(super) fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    /// The report of the scan so far. It returned `rows_selected` rows.
    pub(super) fn used(&self, rows_selected: u64) -> ScanUse {
        let metrics = &self.metrics;
        let mut scan = metrics.record(|scan| scan.clone());
        scan.first_position = self.range.start;
        scan.end_position = self.range.end;
        let touched = self.row_groups().len() as u64;
        scan.row_groups.total = self.reader.row_groups().len() as u64;
        scan.row_groups.outside_positions = scan.row_groups.total - touched;
        scan.row_groups.not_reached = touched.saturating_sub(metrics.reached.value() as u64);
        scan.rows_selected = rows_selected;
        for (number, (used, condition)) in scan.predicates.iter_mut().zip(self.predicates.iter()).enumerate() {
            used.predicate = condition.predicate.to_string();
            used.column = condition.indexed_column(&self.reader).map(|column| self.column_path(column.column));
            if self.asks_keyword_index(number) {
                used.keyword_index.get_or_insert_default();
            }
        }
        let reads_documents = self.predicates.iter().any(Condition::reads_documents);
        let verification = scan.verification.take().unwrap_or_default();
        scan.verification = Some(verification).filter(|used| reads_documents || used.rows_in > 0);
        scan.left_out_early = self.threshold.is_some().then(|| metrics.top_k.value() as u64);
        scan.duplicates_left_out = self.distinct.then(|| metrics.distinct.value() as u64);
        scan.sort = self.sort();
        scan.dedup = self.dedup();
        scan
    }

    fn sort(&self) -> Option<KeyUse> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER))?;
        let shredded = sort_key::order_column(self.reader.layout(), &order.field);
        let unless_cached = if shredded.is_some() { AccessName::ShreddedColumn } else { AccessName::Documents };
        Some(KeyUse {
            by: order.field.clone(),
            access: self.metrics.order_source.get().copied().unwrap_or(unless_cached),
            column: shredded.map(|shredded| self.column_path(shredded)),
            pages: self.metrics.order_pages.value() as u64,
        })
    }

    fn dedup(&self) -> Option<KeyUse> {
        let group = self.computed.group.as_ref().filter(|_| self.gives(GROUP))?;
        let by = if group.paths.is_empty() { "all fields except _source".to_owned() } else { Path::list(&group.paths) };
        let unless_scanned = if group.is_stored() { AccessName::StoredHashes } else { AccessName::Documents };
        let access = self.metrics.group_source.get().copied().unwrap_or(unless_scanned);
        let is_column = access == AccessName::ShreddedColumn;
        let column = is_column.then(|| Path::list(&group.compared().unwrap_or_default()));
        Some(KeyUse { by, access, column, pages: self.metrics.group_pages.value() as u64 })
    }

    fn column_path(&self, shredded: usize) -> String {
        let keys = &self.reader.layout().shredded_columns[shredded].keys;
        Path::from_keys(keys.iter().cloned()).map_or_else(|_| String::new(), |path| path.to_string())
    }
}
