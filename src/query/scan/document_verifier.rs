//! Verifies candidate rows in their documents.
//!
//! A document is walked once for many comparisons. Their paths form a trie, and each scalar at a path is compared for
//! all comparisons of the path that have not matched yet. A walk ends when all comparisons have matched, or when one of
//! them can no longer match.
//!
//! Comparisons are evaluated in groups of increasing size, so that one of the first can exclude a document early.

use std::ops::{ControlFlow, Range};

use strata_json::{JsonScalar, PathTrie, PathVisitor};
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::fetch::document_page_reader::DocumentPageReader;
use crate::fetch::readahead::{DocumentDemand, DocumentLocation, DocumentReadahead};
use crate::scan::access_path::ExactRows;
use crate::scan::predicate::{PathComparison, Predicate};
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_spec::ScanSpec;

const FIRST_GROUP_COMPARISONS: usize = 8;
const GROUP_GROWTH_FACTOR: usize = 8;
/// Max comparisons in one walk of a document, which does not yield. Beyond the limit, each comparison has its own walk.
const MAX_WALK_COMPARISONS: usize = 1 << 18;
const COMPARISON_WORK_BYTES: usize = 16;

pub(super) struct PredicateRecheck<'p> {
    pub(super) predicate: &'p Predicate,
    pub(super) exact: ExactRows,
}

impl ScanSpec {
    /// Returns the selected rows whose documents match the predicates, at most as many as the scan returns.
    pub(super) async fn verify_in_documents(
        &self,
        row_group: usize,
        selected: RowSelection,
        rechecks: &[PredicateRecheck<'_>],
    ) -> Result<RowSelection, StorageError> {
        let limit = self.fetch.unwrap_or(usize::MAX);
        let end = self.reader.row_groups()[row_group].rows;
        let mut pages = DocumentPageReader::for_rows(&self.reader, row_group, selected.len(), end);
        let mut budget = YieldBudget::default();
        let mut tested = 0;
        let mut matching = Vec::new();
        let mut verifier = DocumentVerifier::new(rechecks);
        let needs_recheck = |row: &usize| !rechecks.iter().all(|recheck| recheck.exact.contains(*row));
        let demand = if self.fetch.is_some() { DocumentDemand::Few } else { DocumentDemand::All };
        let mut readahead = DocumentReadahead::new(demand);
        for row in selected.iter() {
            if matching.len() >= limit {
                break;
            }
            if !needs_recheck(&row) {
                matching.push(row);
                continue;
            }
            tested += 1;
            if pages.is_scattered() {
                let locate = |row| DocumentLocation { row_group, row };
                let rows = || selected.iter().filter(needs_recheck).skip_while(|other| *other <= row).map(locate);
                readahead.advance_to(&self.reader, &mut pages, locate(row), rows).await;
            }
            let document = pages.document(row).await?;
            if verifier.matches(row, document, &mut budget).await {
                matching.push(row);
            }
        }
        self.metrics.with_report(|scan| {
            let report = scan.verification.get_or_insert_default();
            report.rows_in += tested;
            report.rows_out += matching.len() as u64;
            report.pages += pages.pages_read as u64;
        });
        Ok(RowSelection::List(matching))
    }
}

struct DocumentVerifier<'p> {
    groups: Vec<ComparisonGroup<'p>>,
    keyword_rechecks: Vec<&'p PredicateRecheck<'p>>,
}

struct ComparisonGroup<'p> {
    compares: Vec<(&'p PredicateRecheck<'p>, &'p PathComparison)>,
    tree: PathTrie,
    comparisons_by_node: Vec<Vec<usize>>,
    /// The comparisons that have not matched yet in the current document, by trie node.
    unmatched_by_node: Vec<Vec<usize>>,
}

impl<'p> DocumentVerifier<'p> {
    fn new(rechecks: &'p [PredicateRecheck<'p>]) -> DocumentVerifier<'p> {
        let mut compares = Vec::new();
        let mut keyword_rechecks = Vec::new();
        for recheck in rechecks {
            match recheck.predicate {
                Predicate::Comparison(compare) => compares.push((recheck, compare.as_ref())),
                Predicate::Keywords(_) => keyword_rechecks.push(recheck),
            }
        }
        let mut groups = Vec::new();
        let mut size = FIRST_GROUP_COMPARISONS;
        let mut left = compares.as_slice();
        while !left.is_empty() {
            let (group, rest) = left.split_at(size.min(left.len()));
            groups.push(ComparisonGroup::new(group.to_vec()));
            left = rest;
            size = size.saturating_mul(GROUP_GROWTH_FACTOR);
        }
        DocumentVerifier { groups, keyword_rechecks }
    }

    async fn matches(&mut self, row: usize, document: &[u8], budget: &mut YieldBudget) -> bool {
        for group in &mut self.groups {
            if !group.matches(row, document, budget).await {
                return false;
            }
        }
        for other in self.keyword_rechecks.iter().filter(|other| !other.exact.contains(row)) {
            budget.yield_after(document.len()).await;
            if !other.predicate.matches(document) {
                return false;
            }
        }
        true
    }
}

impl<'p> ComparisonGroup<'p> {
    fn new(compares: Vec<(&'p PredicateRecheck<'p>, &'p PathComparison)>) -> ComparisonGroup<'p> {
        let (tree, ends) = PathTrie::from_paths(compares.iter().map(|(_, compare)| &compare.path));
        let mut comparisons_by_node = vec![Vec::new(); tree.len()];
        ends.into_iter().enumerate().for_each(|(number, end)| comparisons_by_node[end].push(number));
        ComparisonGroup { compares, unmatched_by_node: vec![Vec::new(); tree.len()], tree, comparisons_by_node }
    }

    async fn matches(&mut self, row: usize, document: &[u8], budget: &mut YieldBudget) -> bool {
        let mut left = 0;
        for (open, all) in self.unmatched_by_node.iter_mut().zip(&self.comparisons_by_node) {
            open.clear();
            open.extend(all.iter().filter(|number| !self.compares[**number].0.exact.contains(row)));
            left += open.len();
        }
        if left == 0 {
            return true;
        }
        budget.yield_after(document.len()).await;
        let mut walk = ComparisonWalk {
            compares: &self.compares,
            unmatched_by_node: &mut self.unmatched_by_node,
            unmatched_count: left,
            compared_scalars: 0,
            matches: Some(false),
        };
        self.tree.visit_scalars(document, &mut walk);
        let ComparisonWalk { compared_scalars, matches, .. } = walk;
        budget.yield_after(compared_scalars * COMPARISON_WORK_BYTES).await;
        if let Some(matches) = matches {
            return matches;
        }
        for (_, compare) in self.compares.iter().filter(|(recheck, _)| !recheck.exact.contains(row)) {
            budget.yield_after(document.len()).await;
            if !compare.matches(document) {
                return false;
            }
        }
        true
    }
}

struct ComparisonWalk<'w, 'p> {
    compares: &'w [(&'p PredicateRecheck<'p>, &'p PathComparison)],
    unmatched_by_node: &'w mut [Vec<usize>],
    unmatched_count: usize,
    compared_scalars: usize,
    /// Whether the document matches. `None` if the walk exceeded the limit of comparisons.
    matches: Option<bool>,
}

impl PathVisitor for ComparisonWalk<'_, '_> {
    fn visit_scalar(&mut self, node: usize, scalar: JsonScalar<'_>) -> ControlFlow<()> {
        let open = &mut self.unmatched_by_node[node];
        self.compared_scalars += open.len();
        if self.compared_scalars > MAX_WALK_COMPARISONS {
            self.matches = None;
            return ControlFlow::Break(());
        }
        let before = open.len();
        open.retain(|number| !self.compares[*number].1.matches_scalar(scalar));
        self.unmatched_count -= before - open.len();
        if self.unmatched_count > 0 {
            return ControlFlow::Continue(());
        }
        self.matches = Some(true);
        ControlFlow::Break(())
    }

    fn finish_nodes(&mut self, nodes: Range<usize>) -> ControlFlow<()> {
        let all_match = self.unmatched_by_node[nodes].iter().all(Vec::is_empty);
        if all_match { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
