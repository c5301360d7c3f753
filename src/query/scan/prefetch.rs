//! Plans the reads that a scan prefetches, and estimates the memory of a row group.

use strata_format::layout::{HASH_COLUMN_INDEX, ShreddedPart};
use strata_format::reader::PrefetchPlan;

use crate::scan::scan_columns::{GROUP_COLUMN, ORDER_COLUMN};
use crate::scan::scan_spec::ScanSpec;
use crate::scan::sort_key;

/// Columns that are read only after other predicates are prefetched if they have at most this size in a row group.
const MAX_SPECULATIVE_COLUMN_BYTES: u64 = 256 << 10;
const ROW_GROUP_DOCUMENT_BYTES: u64 = 4 << 20;
const MAX_ROW_KEY_BYTES: u64 = 64;

impl ScanSpec {
    pub(super) fn prefetch_plan(&self) -> PrefetchPlan {
        let row_groups = self.row_groups_in_range();
        let reader = &self.reader;
        let mut plan = PrefetchPlan {
            row_groups: row_groups.clone(),
            scan_order: self.partial_row_groups.clone(),
            ..PrefetchPlan::default()
        };
        if row_groups.is_empty() {
            return plan;
        }
        // Only the columns of the first predicate are certain to be read.
        let add = |plan: &mut PrefetchPlan, columns: Vec<usize>, is_certain: bool| {
            if is_certain
                || reader.total_column_sizes(row_groups.start, &columns).stored_bytes <= MAX_SPECULATIVE_COLUMN_BYTES
            {
                let more: Vec<usize> = columns.into_iter().filter(|column| !plan.columns.contains(column)).collect();
                plan.columns.extend(more);
            }
        };
        for column in self.predicates.iter().filter_map(|condition| condition.indexed_comparison(reader)) {
            let is_first = plan.columns.is_empty();
            add(&mut plan, column.parquet_columns_to_read(row_groups.clone()), is_first);
        }
        let sorts = self.top_k_threshold.is_some() || self.has_output_column(ORDER_COLUMN);
        if let Some(order) = self.computed.order.as_ref().filter(|_| sorts)
            && let Some(shredded) = sort_key::sortable_column(reader.layout(), &order.field)
        {
            let parts = sort_key::sort_column_parts(reader, row_groups.clone(), shredded);
            add(&mut plan, reader.column_indices(shredded, &parts), self.predicates.is_empty());
        }
        if let Some(group) = self.computed.group.as_ref().filter(|_| self.has_output_column(GROUP_COLUMN)) {
            if group.uses_stored_hashes() {
                add(&mut plan, vec![HASH_COLUMN_INDEX], self.predicates.is_empty());
            }
            // Only a partial scan prefetches these columns, because other scans can use path codes instead.
            for shredded in group.single_value_columns(reader.layout()).filter(|_| self.partial_row_groups.is_some()) {
                add(&mut plan, reader.column_indices(shredded, &ShreddedPart::ALL), self.predicates.is_empty());
            }
        }
        let has_candidates = self.keyword_queries.is_some() || self.hash_indexes.candidates.is_some();
        let first = self.predicates.first().filter(|first| first.indexed_column_number.is_some());
        let read_as_whole = first.filter(|_| self.fetch.is_none() && !has_candidates);
        if let (Some(first), None) = (read_as_whole, &plan.scan_order) {
            let may_match = |row_group: &usize| first.prune(reader, *row_group).is_none();
            plan.scan_order = Some(row_groups.filter(may_match).collect());
        }
        let is_certain = self.predicates.is_empty() || read_as_whole.is_some();
        plan.row_groups_ahead = if is_certain { usize::MAX } else { 1 };
        plan
    }

    pub(super) fn estimate_row_group_bytes(&self, row_group: usize, plan: &PrefetchPlan) -> u64 {
        let reader = &self.reader;
        let rows = self.rows_in_range(row_group).len() as u64;
        let has_keys = self.has_output_column(ORDER_COLUMN) || self.has_output_column(GROUP_COLUMN);
        let keys = if has_keys { MAX_ROW_KEY_BYTES } else { 0 };
        let mut bytes = reader.total_column_sizes(row_group, &plan.columns).decompressed_bytes + rows * (8 + keys);
        bytes += self.estimate_keyword_index_bytes(row_group);
        if self.reads_documents() { bytes + ROW_GROUP_DOCUMENT_BYTES } else { bytes }
    }
}
