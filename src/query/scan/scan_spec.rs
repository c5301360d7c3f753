//! The plan of a scan: the data to read and return, decided before anything is read.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::field_path::FieldPath;

use crate::scan::access_path::PlannedPredicate;
use crate::scan::dedup_key_source::DedupKeySource;
use crate::scan::distinct_filter::DistinctFilter;
use crate::scan::hash_index::HashIndexResults;
use crate::scan::keyword_index::{KeywordIndexQueries, KeywordIndexRows};
use crate::scan::path_codes::AllowedReads;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_columns::{ComputedColumns, GROUP_COLUMN, ORDER_COLUMN, POSITION_COLUMN};
use crate::scan::scan_metrics::ScanMetrics;
use crate::scan::scan_report::{AccessPath, KeySourceReport, PruneCounter, ScanReport};
use crate::scan::sort_key::{self, RankBounds};
use crate::scan::top_k_threshold::TopKThreshold;

#[derive(Clone)]
pub(super) struct ScanSpec {
    pub(super) reader: VersionReader,
    pub(super) schema: SchemaRef,
    pub(super) predicates: Arc<[PlannedPredicate]>,
    pub(super) keyword_queries: Option<Arc<KeywordIndexQueries>>,
    pub(super) hash_indexes: HashIndexResults,
    pub(super) position_range: Range<u64>,
    /// The row groups of a partial scan, ascending. Other nodes scan the remaining row groups.
    pub(super) partial_row_groups: Option<Arc<[usize]>>,
    pub(super) fetch: Option<usize>,
    pub(super) top_k_threshold: Option<Arc<TopKThreshold>>,
    /// The [`sort_key::shared_prefix_bytes`] of the sorted column.
    pub(super) shared_prefix_bytes: usize,
    /// Counts the entities that a sort scans because its column has no sort index. Set when the scan begins.
    pub(super) sort_scan_counter: Option<Arc<AtomicU64>>,
    pub(super) is_distinct: bool,
    pub(super) computed: ComputedColumns,
    /// The source of `dedup` keys. Set when the scan begins, like `distinct_filter`.
    pub(super) dedup_key_source: Option<Arc<DedupKeySource>>,
    pub(super) distinct_filter: Option<Arc<DistinctFilter>>,
    pub(super) metrics: Arc<ScanMetrics>,
}

impl ScanSpec {
    pub(super) fn rows_in_range(&self, row_group: usize) -> Range<usize> {
        let group = self.reader.row_groups()[row_group];
        let within = |position: u64| (position.saturating_sub(group.first_position) as usize).min(group.rows);
        within(self.position_range.start)..within(self.position_range.end)
    }

    pub(super) fn row_groups_in_range(&self) -> Range<usize> {
        if self.position_range.is_empty() || self.fetch == Some(0) {
            return 0..0;
        }
        self.reader.row_group_at(self.position_range.start)..self.reader.row_group_at(self.position_range.end - 1) + 1
    }

    /// Lists the row groups to scan: those of a partial scan, or the row groups with candidates of hash indexes.
    pub(super) fn remaining_row_groups(&self) -> Vec<usize> {
        let row_groups = self.row_groups_in_range();
        if let Some(part) = &self.partial_row_groups {
            return part.iter().copied().filter(|row_group| row_groups.contains(row_group)).collect();
        }
        if self.hash_indexes.candidates.is_none() {
            return row_groups.collect();
        }
        let has_candidates = |row_group: &usize| {
            let has_candidates = self.candidate_rows(*row_group).len() > 0;
            if !has_candidates {
                let rows = self.rows_in_range(*row_group).len();
                self.count_pruned(*row_group, rows, |used| &mut used.pruned_by_hash_index);
            }
            has_candidates
        };
        row_groups.filter(has_candidates).collect()
    }

    pub(super) fn count_pruned(&self, row_group: usize, rows: usize, counter: PruneCounter) {
        self.metrics.count_pruned(rows, self.reader.stored_bytes(row_group), counter);
    }

    pub(super) fn candidate_rows(&self, row_group: usize) -> RowSelection {
        let rows = self.rows_in_range(row_group);
        let Some(candidates) = &self.hash_indexes.candidates else { return RowSelection::Range(rows) };
        let first = self.reader.row_groups()[row_group].first_position;
        let candidates = candidates.positions_within(first + rows.start as u64, first + rows.end as u64);
        RowSelection::List(candidates.iter().map(|position| (u64::from(*position) - first) as usize).collect())
    }

    pub(super) fn estimate_keyword_index_bytes(&self, row_group: usize) -> u64 {
        self.keyword_queries.as_ref().map_or(0, |queries| queries.estimate_row_group_bytes(&self.reader, row_group))
    }

    pub(super) fn reads_documents(&self) -> bool {
        self.predicates.iter().any(|condition| condition.access_path == AccessPath::Documents)
    }

    pub(super) fn has_keyword_query(&self, predicate: usize) -> bool {
        self.keyword_queries.as_ref().is_some_and(|keywords| keywords.has_keyword_query(predicate))
    }

    pub(super) fn has_output_column(&self, column: &str) -> bool {
        self.schema.fields().iter().any(|field| field.name() == column)
    }

    /// Lists the row groups to scan with limits of their sort ranks, ordered by minimum rank for a top-k scan. Lowers
    /// the top-k threshold to the maximum rank of the row groups that certainly contain `k` better rows.
    pub(super) async fn row_groups_by_min_rank(&self) -> Vec<(usize, Option<RankBounds>)> {
        let row_groups = self.remaining_row_groups().into_iter();
        let (Some(threshold), Some(order)) = (&self.top_k_threshold, &self.computed.order) else {
            return row_groups.map(|row_group| (row_group, None)).collect();
        };
        let profile = self.reader.profile_paths().await.ok();
        let path = FieldPath::from_keys([order.field.as_str()]).ok();
        let facts = profile.zip(path).and_then(|(profile, path)| profile.get(&path.to_string()));
        let has_text = facts.and_then(|facts| facts.has_text).unwrap_or(true);
        let bounds_of = |number| sort_key::rank_bounds(&self.reader, number, order, has_text, self.shared_prefix_bytes);
        let mut bounds: Vec<(usize, RankBounds)> = row_groups.map(|number| (number, bounds_of(number))).collect();
        if self.predicates.is_empty() && self.fetch.is_none() {
            let rows = bounds.iter().map(|(row_group, bounds)| (bounds.max, self.rows_in_range(*row_group).len()));
            threshold.lower_to_k_rows(rows.collect());
        }
        bounds.sort_by_key(|(_, bounds)| bounds.min);
        bounds.into_iter().map(|(row_group, bounds)| (row_group, Some(bounds))).collect()
    }

    /// Whether the top-k threshold excludes all rows of a row group.
    pub(super) fn is_beyond_threshold(&self, row_group: usize, bounds: Option<RankBounds>) -> bool {
        let first_position = self.reader.row_groups()[row_group].first_position;
        let may_contain = |threshold: &TopKThreshold| bounds.is_none_or(|b| threshold.may_contain(b, first_position));
        self.top_k_threshold.as_deref().is_some_and(|threshold| !may_contain(threshold))
    }

    pub(super) fn prune_by_threshold(&self, row_group: usize, bounds: Option<RankBounds>) -> bool {
        let is_beyond = self.is_beyond_threshold(row_group, bounds);
        if is_beyond {
            self.count_pruned(row_group, self.rows_in_range(row_group).len(), |used| &mut used.pruned_by_order);
        }
        is_beyond
    }

    pub(super) fn is_cheaper_than_spawning(&self) -> bool {
        const MAX_CHEAP_CANDIDATES: usize = 4_096;
        let few = self.hash_indexes.candidates.as_ref().map(|candidates| candidates.len() <= MAX_CHEAP_CANDIDATES);
        few.unwrap_or(self.predicates.is_empty())
            && self.schema.fields().iter().all(|field| field.name() == POSITION_COLUMN)
    }

    pub(super) fn is_full_scan(&self) -> bool {
        let is_limited = self.fetch.is_some() || self.partial_row_groups.is_some();
        self.predicates.is_empty() && self.position_range == (0..self.reader.entity_count()) && !is_limited
    }

    /// Whether the scan finds the first entity of every group of the version, by position.
    pub(super) fn is_unrestricted_dedup_scan(&self) -> bool {
        self.is_distinct && self.is_full_scan() && !self.has_output_column(ORDER_COLUMN)
    }

    /// Decides how much of the version can be read to build path codes: less if predicates leave few entities.
    pub(super) async fn allowed_reads_for_codes(&self) -> Result<AllowedReads, StorageError> {
        if self.is_full_scan() {
            return Ok(AllowedReads::Documents);
        }
        let mut remaining = 0;
        for row_group in self.row_groups_in_range() {
            let mut may_match = self.candidate_rows(row_group).len() > 0;
            for condition in self.predicates.iter() {
                tokio::task::consume_budget().await;
                may_match = may_match && condition.prune(&self.reader, row_group).is_none();
            }
            if may_match && let Some(keywords) = &self.keyword_queries {
                let listed = keywords.search_row_group(&self.reader, row_group).await?;
                let is_excluded = |rows: &KeywordIndexRows| rows.candidates.count_set_bits() == 0;
                may_match = !listed.iter().flatten().any(is_excluded);
            }
            remaining += usize::from(may_match);
        }
        let reads_most = remaining > self.reader.row_groups().len() / 2;
        Ok(if reads_most { AllowedReads::Columns } else { AllowedReads::Nothing })
    }

    /// Creates a batch of entities that are already sorted, each in its own `dedup` group, from `first_ordinal`.
    pub(super) fn batch_from_positions(&self, positions: &[u64], first_ordinal: usize) -> Result<RecordBatch> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            columns.push(match field.name().as_str() {
                POSITION_COLUMN => Arc::new(UInt64Array::from(positions.to_vec())),
                name @ (ORDER_COLUMN | GROUP_COLUMN) => {
                    let mut keys = BinaryBuilder::with_capacity(positions.len(), positions.len() * 16);
                    for (ordinal, position) in (first_ordinal as u64..).zip(positions) {
                        let mut key = [0; 16];
                        key[..8].copy_from_slice(&ordinal.to_be_bytes());
                        key[8..].copy_from_slice(&position.to_be_bytes());
                        keys.append_value(if name == ORDER_COLUMN { &key[..] } else { &key[8..] });
                    }
                    Arc::new(keys.finish())
                }
                other => return internal_err!("the column {other} requires reading the file"),
            });
        }
        self.new_record_batch(columns, positions.len())
    }

    pub(super) fn new_record_batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }

    pub(super) fn to_report(&self, rows_selected: u64) -> ScanReport {
        let metrics = &self.metrics;
        let mut scan = metrics.with_report(|scan| scan.clone());
        scan.first_position = self.position_range.start;
        scan.end_position = self.position_range.end;
        let in_range = self.row_groups_in_range().len() as u64;
        scan.row_groups.total = self.reader.row_groups().len() as u64;
        scan.row_groups.outside_positions = scan.row_groups.total - in_range;
        scan.row_groups.not_reached = in_range.saturating_sub(metrics.reached_row_groups.value() as u64);
        scan.rows_selected = rows_selected;
        for (number, (report, condition)) in scan.predicates.iter_mut().zip(self.predicates.iter()).enumerate() {
            report.predicate = condition.predicate.to_string();
            report.column = condition.indexed_comparison(&self.reader).map(|column| self.column_path(column.column));
            if self.has_keyword_query(number) && report.access != AccessPath::HashIndex {
                report.keyword_index.get_or_insert_default();
            }
        }
        let verification = scan.verification.take().unwrap_or_default();
        scan.verification = Some(verification).filter(|report| self.reads_documents() || report.rows_in > 0);
        scan.left_out_early = self.top_k_threshold.is_some().then(|| metrics.top_k_excluded_rows.value() as u64);
        scan.duplicates_left_out = self.is_distinct.then(|| metrics.duplicate_rows.value() as u64);
        scan.sort = self.sort_report();
        scan.dedup = self.dedup_report();
        scan
    }

    fn sort_report(&self) -> Option<KeySourceReport> {
        let order = self.computed.order.as_ref().filter(|_| self.has_output_column(ORDER_COLUMN))?;
        let shredded = sort_key::sortable_column(self.reader.layout(), &order.field);
        let unless_cached = if shredded.is_some() { AccessPath::ShreddedColumn } else { AccessPath::Documents };
        Some(KeySourceReport {
            by: order.field.clone(),
            access: self.metrics.order_source.get().copied().unwrap_or(unless_cached),
            column: shredded.map(|shredded| self.column_path(shredded)),
            pages: self.metrics.order_pages_read.value() as u64,
        })
    }

    fn dedup_report(&self) -> Option<KeySourceReport> {
        let group = self.computed.group.as_ref().filter(|_| self.has_output_column(GROUP_COLUMN))?;
        let by = if group.paths.is_empty() {
            "all fields except _source".to_owned()
        } else {
            FieldPath::format_list(&group.paths)
        };
        let unless_scanned = if group.uses_stored_hashes() { AccessPath::StoredHashes } else { AccessPath::Documents };
        let access = self.metrics.group_source.get().copied().unwrap_or(unless_scanned);
        let has_table_column = access == AccessPath::ShreddedColumn;
        let column = has_table_column.then(|| FieldPath::format_list(&group.compared_paths().unwrap_or_default()));
        Some(KeySourceReport { by, access, column, pages: self.metrics.group_pages_read.value() as u64 })
    }

    fn column_path(&self, column_number: usize) -> String {
        let keys = &self.reader.layout().shredded_columns[column_number].keys;
        FieldPath::from_keys(keys.iter().cloned()).map_or_else(|_| String::new(), |path| path.to_string())
    }
}
