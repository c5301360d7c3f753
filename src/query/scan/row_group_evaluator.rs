//! Evaluates the predicates of a row group, the cheapest access path first.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use strata_store::StorageError;

use crate::error::to_external_error;
use crate::scan::access_path::{CandidateRows, ExactRows, PlannedPredicate};
use crate::scan::dedup_key_source::DedupKeyReader;
use crate::scan::distinct_filter::RowRankOrder;
use crate::scan::document_verifier::PredicateRecheck;
use crate::scan::equality_column::{ComparedForm, EqualityColumn};
use crate::scan::hash_index;
use crate::scan::indexed_comparison::{IndexedComparison, StatsPruning};
use crate::scan::keyword_index::KeywordIndexRows;
use crate::scan::predicate::ComparisonOperator;
use crate::scan::row_group_output::RowGroupOutput;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_columns::ORDER_COLUMN;
use crate::scan::scan_spec::ScanSpec;
use crate::scan::sort_key::SortColumn;

/// The input of an access path, which decides which rows of a row group match a predicate.
pub(super) struct PredicateProbe<'a> {
    pub(super) row_group: usize,
    pub(super) predicate_number: usize,
    pub(super) condition: &'a PlannedPredicate,
    pub(super) selected: RowSelection,
    /// The rows that the keyword index lists. `None` if the keyword index cannot help.
    pub(super) keyword_rows: Option<&'a KeywordIndexRows>,
}

impl ScanSpec {
    pub(super) async fn scan_row_group(self: &Arc<Self>, row_group: usize) -> Result<RowGroupOutput> {
        let selected = self.select_rows(row_group).await?;
        // The future for the remaining work is boxed, because most row groups of a search have no matches.
        if selected.len() == 0 {
            return Ok(RowGroupOutput::default());
        }
        Box::pin(self.filter_and_read_batches(row_group, selected)).await
    }

    pub(super) async fn read_dedup_keys(&self, row_group: usize) -> Result<ArrayRef> {
        let Some(source) = &self.dedup_key_source else { return internal_err!("the scan does not compute groups") };
        tokio::task::consume_budget().await;
        let rows: Vec<usize> = self.rows_in_range(row_group).collect();
        self.metrics.count_scanned_row_group(rows.len());
        let mut keys =
            DedupKeyReader::open(&self.reader, row_group, rows.len(), source).await.map_err(to_external_error)?;
        let group_keys = keys.read_keys(&rows).await.map_err(to_external_error)?;
        self.metrics.group_pages_read.add(keys.page_reader.pages_read);
        Ok(group_keys)
    }

    pub(super) async fn select_rows(&self, row_group: usize) -> Result<RowSelection> {
        // Yields between row groups, so that the query can be cancelled even if everything is cached.
        tokio::task::consume_budget().await;
        self.evaluate_predicates(row_group, self.candidate_rows(row_group)).await.map_err(to_external_error)
    }

    pub(super) async fn filter_and_read_batches(
        self: &Arc<Self>,
        row_group: usize,
        mut selected: RowSelection,
    ) -> Result<RowGroupOutput> {
        let order = self.computed.order.as_ref().filter(|_| self.has_output_column(ORDER_COLUMN));
        let column = match order {
            Some(order) if self.top_k_threshold.is_some() || self.distinct_filter.is_some() => {
                SortColumn::open(&self.reader, row_group, order).await.map_err(to_external_error)?
            }
            _ => None,
        };
        if let Some(count) = &self.sort_scan_counter {
            count.fetch_add(selected.len() as u64, Ordering::Relaxed);
        }
        let ranked =
            column.as_ref().zip(order).map(|(c, o)| (c, o, c.compute_ranks(o, self.shared_prefix_bytes, &selected)));
        let ranked = ranked.filter(|(_, _, ranks)| !ranks.needs_documents);
        if let (Some(threshold), Some((column, order, ranks))) = (&self.top_k_threshold, &ranked) {
            let compare = |one, other| column.compare_rows(order, one, other);
            let rows = threshold.select_top_k_rows(&selected, &ranks.ranks, compare);
            if rows.len() == threshold.k
                && let Some(last) = rows.iter().copied().max_by(|one, other| {
                    ranks.ranks[*one].cmp(&ranks.ranks[*other]).then_with(|| compare(*one, *other))
                })
                && let Some(bits) = column.exact_number_bits(order, last)
            {
                threshold.lower_to_number(bits, self.reader.row_groups()[row_group].first_position + last as u64);
            }
            self.metrics.top_k_excluded_rows.add(selected.len() - rows.len());
            selected = RowSelection::List(rows);
        }
        if let (Some(filter), Some(source)) = (&self.distinct_filter, &self.dedup_key_source)
            && let Some(codes) = source.dedup_key_codes()
            && (order.is_none() || ranked.is_some())
        {
            let first = self.reader.row_groups()[row_group].first_position as usize;
            let rows = match &ranked {
                Some((column, order, ranks)) => {
                    let compare = |one, other| column.compare_rows(order, one, other);
                    let rank_order = RowRankOrder { ranks: &ranks.ranks, compare: &compare };
                    filter.select_first_row_per_key(&codes, first, &selected, Some(&rank_order))
                }
                None => filter.select_first_row_per_key(&codes, first, &selected, None),
            };
            self.metrics.duplicate_rows.add(selected.len() - rows.len());
            selected = RowSelection::List(rows);
        }
        self.read_batches(row_group, &selected).await
    }

    /// Returns the rows that match all predicates: indexes decide first, then documents decide about the rest.
    async fn evaluate_predicates(&self, row_group: usize, initial: RowSelection) -> Result<RowSelection, StorageError> {
        let has_hash_index =
            |number| self.hash_indexes.candidates.as_ref().is_some_and(|found| found.was_probed(number));
        for (number, condition) in self.predicates.iter().enumerate() {
            if !has_hash_index(number)
                && let Some(counter) = condition.prune(&self.reader, row_group)
            {
                self.hash_indexes.add_scanned_elements(number, hash_index::EXCLUDED_ROW_GROUP_ELEMENTS);
                self.count_pruned(row_group, initial.len(), counter);
                return Ok(RowSelection::Range(0..0));
            }
        }
        let listed = match &self.keyword_queries {
            Some(keywords) => keywords.search_row_group(&self.reader, row_group).await?,
            None => Vec::new(),
        };
        let intersect = |rows: RowSelection, listed: &KeywordIndexRows| rows.intersect(listed.candidates.clone());
        if listed.iter().any(Option::is_some) && listed.iter().flatten().fold(initial.clone(), intersect).len() == 0 {
            self.count_pruned(row_group, initial.len(), |used| &mut used.pruned_by_keyword_index);
            for number in (0..self.predicates.len()).filter(|number| self.has_keyword_query(*number)) {
                self.hash_indexes.add_scanned_elements(number, hash_index::EXCLUDED_ROW_GROUP_ELEMENTS);
                self.metrics.count_keyword_lookup(number, Some(&ExactRows::All), 0);
            }
            return Ok(RowSelection::Range(0..0));
        }
        let rows = initial.len();
        let matching = Box::pin(self.find_matching_rows(row_group, initial, &listed)).await?;
        // Rows are counted only after their evaluation, because a scan that has found enough drops unfinished work.
        self.metrics.count_scanned_row_group(rows);
        Ok(matching)
    }

    async fn find_matching_rows(
        &self,
        row_group: usize,
        mut selected: RowSelection,
        keyword_rows: &[Option<KeywordIndexRows>],
    ) -> Result<RowSelection, StorageError> {
        let mut left = selected.len();
        let mut rechecks: Vec<PredicateRecheck<'_>> = Vec::new();
        for (number, condition) in self.predicates.iter().enumerate() {
            if left == 0 {
                return Ok(selected);
            }
            // Yields between predicates, because a request can have a thousand of them.
            tokio::task::consume_budget().await;
            let keyword_rows = keyword_rows.get(number).and_then(Option::as_ref);
            if self.has_keyword_query(number) {
                let rows = keyword_rows.map_or(0, |keyword_rows| keyword_rows.candidates.count_set_bits());
                self.metrics.count_keyword_lookup(number, keyword_rows.map(|keyword_rows| &keyword_rows.exact), rows);
            }
            let probe = PredicateProbe { row_group, predicate_number: number, condition, selected, keyword_rows };
            let CandidateRows { rows, exact } = self.probe_access_path(probe).await?;
            selected = rows;
            if !matches!(exact, ExactRows::All) {
                rechecks.push(PredicateRecheck { predicate: &condition.predicate, exact });
            }
            let before = std::mem::replace(&mut left, selected.len());
            self.metrics.count_predicate_rows(number, before, left);
        }
        if rechecks.is_empty() {
            return Ok(selected.truncate(self.fetch));
        }
        self.verify_in_documents(row_group, selected, &rechecks).await
    }

    async fn probe_access_path(&self, probe: PredicateProbe<'_>) -> Result<CandidateRows, StorageError> {
        if let Some(column) = probe.condition.indexed_comparison(&self.reader) {
            let PredicateProbe { row_group, predicate_number, mut selected, keyword_rows, .. } = probe;
            if let Some(KeywordIndexRows { candidates, .. }) = keyword_rows {
                self.hash_indexes.add_scanned_elements(predicate_number, hash_index::EXCLUDED_ROW_GROUP_ELEMENTS);
                selected = RowSelection::List(selected.intersect(candidates.clone()).iter().collect());
            }
            if matches!(selected, RowSelection::List(_)) && column.costs_more_than_documents(row_group, selected.len())
            {
                return Ok(CandidateRows { rows: selected, exact: ExactRows::None });
            }
            let rows = self.probe_indexed_column(row_group, predicate_number, column, selected).await?;
            return Ok(CandidateRows { rows, exact: ExactRows::All });
        }
        Ok(match probe.keyword_rows {
            Some(KeywordIndexRows { candidates, exact }) => {
                CandidateRows { rows: probe.selected.intersect(candidates.clone()), exact: exact.clone() }
            }
            None => CandidateRows { rows: probe.selected, exact: ExactRows::None },
        })
    }

    async fn probe_indexed_column(
        &self,
        row_group: usize,
        number: usize,
        column: IndexedComparison<'_>,
        selected: RowSelection,
    ) -> Result<RowSelection, StorageError> {
        /// In the time to compare one row individually, a comparison of a whole column handles this many rows.
        const ROWS_PER_SINGLE_COMPARISON: usize = 16;
        let compare = column.compare;
        let rows = self.reader.row_groups()[row_group].rows;
        if column.prune_by_statistics(row_group) == StatsPruning::AllMatch {
            self.metrics
                .with_report(|scan| scan.predicates[number].settled_by_statistics.iter_mut().for_each(|n| *n += 1));
            return Ok(selected);
        }
        if let RowSelection::List(list) = &selected
            && list.len() <= rows / ROWS_PER_SINGLE_COMPARISON
            && compare.operator == ComparisonOperator::Equal
            && !compare.can_match_null()
        {
            let form = ComparedForm::for_comparison(compare);
            let cells = EqualityColumn::open(&self.reader, row_group, column.column, form).await?;
            return Ok(RowSelection::List(cells.find_equal_rows(list.iter().copied(), usize::MAX, compare).await));
        }
        self.hash_indexes.add_scanned_elements(number, rows as u64);
        Ok(selected.intersect(column.matching_rows(row_group).await?))
    }
}
