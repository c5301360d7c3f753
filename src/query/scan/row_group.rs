//! The evaluator of a scan: evaluates the conditions of a row group, the cheapest access path first.

use std::sync::Arc;

use arrow::array::ArrayRef;
use datafusion::common::internal_err;
use datafusion::error::Result;
use strata_store::StorageError;

use crate::error::external;
use crate::scan::access::{CandidateRows, Condition, Exact};
use crate::scan::batches::RowGroupOutput;
use crate::scan::dedup_source::GroupKeys;
use crate::scan::distinct::RowOrder;
use crate::scan::equality_column::EqualityColumn;
use crate::scan::hash_index;
use crate::scan::indexed_column::{IndexedColumn, StatsPruning};
use crate::scan::keyword_index::IndexedRows;
use crate::scan::predicate::Comparison;
use crate::scan::report::AccessName;
use crate::scan::row_selection::RowSelection;
use crate::scan::schema::ORDER;
use crate::scan::sort_key::SortColumn;
use crate::scan::spec::ScanSpec;
use crate::scan::verify::Recheck;

/// The question of an access path: which rows of a row group match a condition?
pub(super) struct Probe<'a> {
    pub(super) row_group: usize,
    /// The number of the condition in the scan.
    pub(super) number: usize,
    pub(super) condition: &'a Condition,
    pub(super) selected: RowSelection,
    /// The rows that the keyword index lists; `None` if it cannot help.
    pub(super) indexed: Option<&'a IndexedRows>,
    /// The first matches up to this many are enough.
    pub(super) limit: Option<usize>,
}

impl ScanSpec {
    pub(super) async fn row_group(self: &Arc<Self>, row_group: usize) -> Result<RowGroupOutput> {
        let selected = self.selection(row_group).await?;
        // Boxed, because most row groups of a search have no matches.
        if selected.len() == 0 {
            return Ok(RowGroupOutput::default());
        }
        Box::pin(self.selected_batches(row_group, selected)).await
    }

    pub(super) async fn all_keys(&self, row_group: usize) -> Result<ArrayRef> {
        let Some(source) = &self.group_source else { return internal_err!("the scan does not compute groups") };
        tokio::task::consume_budget().await;
        let rows: Vec<usize> = self.rows(row_group).collect();
        self.metrics.count_scanned(rows.len());
        let mut keys = GroupKeys::open(&self.reader, row_group, rows.len(), source).await.map_err(external)?;
        let found = keys.keys(&rows).await.map_err(external)?;
        self.metrics.group_pages.add(keys.pages.used);
        Ok(found)
    }

    pub(super) async fn selection(&self, row_group: usize) -> Result<RowSelection> {
        // Allows cancellation between row groups, even if everything is cached.
        tokio::task::consume_budget().await;
        self.evaluate(row_group, self.candidate_rows(row_group)).await.map_err(external)
    }

    pub(super) async fn selected_batches(
        self: &Arc<Self>,
        row_group: usize,
        mut selected: RowSelection,
    ) -> Result<RowGroupOutput> {
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER));
        let column = match order {
            Some(order) if self.threshold.is_some() || self.distinct_filter.is_some() => {
                SortColumn::open(&self.reader, row_group, order).await.map_err(external)?
            }
            _ => None,
        };
        let ranked = column.as_ref().zip(order).map(|(column, order)| (column, order, column.ranks(order, &selected)));
        let ranked = ranked.filter(|(_, _, ranks)| !ranks.undecided);
        if let (Some(threshold), Some((column, order, ranks))) = (&self.threshold, &ranked) {
            let compare = |one, other| column.compare(order, one, other);
            let rows = threshold.select(&selected, &ranks.ranks, compare);
            self.metrics.top_k.add(selected.len() - rows.len());
            selected = RowSelection::List(rows);
        }
        if let (Some(filter), Some(source)) = (&self.distinct_filter, &self.group_source)
            && let Some(codes) = source.codes()
            && (order.is_none() || ranked.is_some())
        {
            let first = self.reader.row_groups()[row_group].first as usize;
            let rows = match &ranked {
                Some((column, order, ranks)) => {
                    let compare = |one, other| column.compare(order, one, other);
                    filter.select(&codes, first, &selected, Some(&RowOrder { ranks: &ranks.ranks, compare: &compare }))
                }
                None => filter.select(&codes, first, &selected, None),
            };
            self.metrics.distinct.add(selected.len() - rows.len());
            selected = RowSelection::List(rows);
        }
        self.batches(row_group, &selected).await
    }

    /// The selected rows that match all conditions: indexes decide first, then documents decide about the other rows.
    async fn evaluate(&self, row_group: usize, selected: RowSelection) -> Result<RowSelection, StorageError> {
        let has_hash_index = |number| self.indexes.candidates.as_ref().is_some_and(|found| found.include(number));
        for (number, condition) in self.predicates.iter().enumerate() {
            if !has_hash_index(number)
                && let Some(counter) = condition.prune(&self.reader, row_group).await?
            {
                self.indexes.add_rows_scanned(number, hash_index::PRUNED_ELEMENTS);
                self.count_pruned(row_group, selected.len(), counter);
                return Ok(RowSelection::Range(0..0));
            }
        }
        let indexed = match &self.keywords {
            Some(keywords) => keywords.rows(&self.reader, row_group).await?,
            None => Vec::new(),
        };
        let in_all = |rows: RowSelection, indexed: &IndexedRows| rows.and(indexed.candidates.clone());
        if indexed.iter().any(Option::is_some) && indexed.iter().flatten().fold(selected.clone(), in_all).len() == 0 {
            self.count_pruned(row_group, selected.len(), |used| &mut used.pruned_by_keyword_index);
            for number in (0..self.predicates.len()).filter(|number| self.asks_keyword_index(*number)) {
                self.metrics.count_keyword_lookup(number, Some(&Exact::All), 0);
            }
            return Ok(RowSelection::Range(0..0));
        }
        let rows = selected.len();
        let matching = Box::pin(self.matching(row_group, selected, &indexed)).await?;
        // Not earlier: a scan that has found enough drops unfinished work.
        self.metrics.count_scanned(rows);
        Ok(matching)
    }

    async fn matching(
        &self,
        row_group: usize,
        mut selected: RowSelection,
        indexed: &[Option<IndexedRows>],
    ) -> Result<RowSelection, StorageError> {
        let mut left = selected.len();
        let mut rechecks: Vec<Recheck<'_>> = Vec::new();
        for (number, condition) in self.predicates.iter().enumerate() {
            if left == 0 {
                return Ok(selected);
            }
            // A request can have a thousand conditions.
            tokio::task::consume_budget().await;
            let indexed = indexed.get(number).and_then(Option::as_ref);
            if self.asks_keyword_index(number) {
                let rows = indexed.map_or(0, |indexed| indexed.candidates.count_set_bits());
                self.metrics.count_keyword_lookup(number, indexed.map(|indexed| &indexed.exact), rows);
            }
            // No condition after the last one removes rows.
            let is_last = number + 1 == self.predicates.len() && rechecks.is_empty();
            let limit = self.fetch.filter(|_| is_last);
            let probe = Probe { row_group, number, condition, selected, indexed, limit };
            let CandidateRows { rows, exact } = self.probe(probe).await?;
            selected = rows;
            if !matches!(exact, Exact::All) {
                rechecks.push(Recheck { predicate: &condition.predicate, exact });
            }
            let before = std::mem::replace(&mut left, selected.len());
            self.metrics.count_condition(number, before, left);
        }
        if rechecks.is_empty() {
            return Ok(selected.truncated(self.fetch));
        }
        self.verify(row_group, selected, &rechecks).await
    }

    /// The selected rows that may match a condition, by its access path.
    async fn probe(&self, probe: Probe<'_>) -> Result<CandidateRows, StorageError> {
        if let Some(column) = probe.condition.indexed_column(&self.reader) {
            let rows = self.by_column(probe.row_group, probe.number, column, probe.selected).await?;
            return Ok(CandidateRows { rows, exact: Exact::All });
        }
        match probe.condition.access {
            AccessName::SearchTextAndShapes if self.reader.shape_index().get(probe.row_group).is_some() => {
                Box::pin(self.by_path_index(probe)).await
            }
            AccessName::Documents => Ok(CandidateRows { rows: probe.selected, exact: Exact::None }),
            _ => self.by_full_text(probe).await,
        }
    }

    /// The selected rows that match the comparison of condition `number`.
    async fn by_column(
        &self,
        row_group: usize,
        number: usize,
        column: IndexedColumn<'_>,
        selected: RowSelection,
    ) -> Result<RowSelection, StorageError> {
        /// Comparing a single row costs as much as comparing this many rows of a column.
        const SINGLE_ROW_COST: usize = 16;
        let compare = column.compare;
        let rows = self.reader.row_groups()[row_group].rows;
        if column.prune_by_statistics(row_group) == StatsPruning::AllMatch {
            self.metrics.record(|scan| scan.predicates[number].settled_by_statistics.iter_mut().for_each(|n| *n += 1));
            return Ok(selected);
        }
        if let RowSelection::List(list) = &selected
            && list.len() <= rows / SINGLE_ROW_COST
            && compare.comparison == Comparison::Equal
            && !compare.matches_null()
        {
            let values =
                EqualityColumn::open(&self.reader, row_group, column.column, compare.number().is_some()).await?;
            return Ok(RowSelection::List(values.equal_rows(list.iter().copied(), usize::MAX, compare).await));
        }
        self.indexes.add_rows_scanned(number, rows as u64);
        Ok(selected.and(column.rows(row_group).await?))
    }
}
