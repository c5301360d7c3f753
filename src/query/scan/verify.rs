//! Verifies candidates in documents.
//!
//! A document is walked once for many comparisons. Their paths are a tree, and each scalar at a path is compared for
//! all comparisons of the path that have not matched yet. A walk ends when all comparisons have matched, or when one of
//! them can no longer match.
//!
//! Comparisons are evaluated in groups of increasing size, so that a document that fails one of the first comparisons
//! needs few others.

use std::ops::{ControlFlow, Range};

use strata_json::{PathTree, Scalar, Visitor};
use strata_store::StorageError;

use crate::coop::YieldBudget;
use crate::fetch::pages::Pages;
use crate::fetch::readahead::{DocumentPlace, Readahead};
use crate::scan::access::Exact;
use crate::scan::predicate::{Compare, Predicate};
use crate::scan::row_selection::RowSelection;
use crate::scan::spec::ScanSpec;

/// Comparisons of the first group. Each group is [`GROWTH`] times as large as the previous one.
const FIRST_GROUP: usize = 8;
const GROWTH: usize = 8;

/// A walk does not yield, so it compares at most this many scalars. Beyond that, each comparison has its own walk.
const MAX_WALK_COMPARISONS: usize = 1 << 18;

/// The work of comparing a scalar, in bytes.
const COMPARISON_BYTES: usize = 16;

/// A predicate to verify in the documents of the rows that do not match it for certain.
pub(super) struct Recheck<'p> {
    pub(super) predicate: &'p Predicate,
    pub(super) exact: Exact,
}

impl ScanSpec {
    /// The selected rows whose documents match, at most as many as the scan returns.
    pub(super) async fn verify(
        &self,
        row_group: usize,
        selected: RowSelection,
        rechecks: &[Recheck<'_>],
    ) -> Result<RowSelection, StorageError> {
        let max = self.fetch.unwrap_or(usize::MAX);
        let end = self.reader.row_groups()[row_group].rows;
        let mut pages = Pages::of(&self.reader, row_group, selected.len(), end);
        let mut budget = YieldBudget::default();
        let mut tested = 0;
        let mut matching = Vec::new();
        let mut verifier = Verifier::new(rechecks);
        let needs_recheck = |row: &usize| !rechecks.iter().all(|recheck| recheck.exact.contains(*row));
        let mut ahead = Readahead::new(self.fetch.is_some());
        for row in selected.iter() {
            if matching.len() >= max {
                break;
            }
            if !needs_recheck(&row) {
                matching.push(row);
                continue;
            }
            tested += 1;
            if pages.are_scattered() {
                let place = |row| DocumentPlace { row_group, row };
                let rows = || selected.iter().filter(needs_recheck).skip_while(|other| *other <= row).map(place);
                ahead.reached(&self.reader, &mut pages, place(row), rows).await;
            }
            let document = pages.document(row).await?;
            if verifier.matches(row, document, &mut budget).await {
                matching.push(row);
            }
        }
        self.metrics.record(|scan| {
            let used = scan.verification.get_or_insert_default();
            used.rows_in += tested;
            used.rows_out += matching.len() as u64;
            used.pages += pages.used as u64;
        });
        Ok(RowSelection::List(matching))
    }
}

struct Verifier<'p> {
    groups: Vec<Group<'p>>,
    /// Keyword searches, which read the whole document.
    others: Vec<&'p Recheck<'p>>,
}

struct Group<'p> {
    compares: Vec<(&'p Recheck<'p>, &'p Compare)>,
    tree: PathTree,
    /// For each node of the tree: the numbers of its comparisons.
    all: Vec<Vec<usize>>,
    /// The same for the comparisons that have not matched yet.
    open: Vec<Vec<usize>>,
}

impl<'p> Verifier<'p> {
    fn new(rechecks: &'p [Recheck<'p>]) -> Verifier<'p> {
        let mut compares = Vec::new();
        let mut others = Vec::new();
        for one in rechecks {
            match one.predicate {
                Predicate::Compare(compare) => compares.push((one, compare.as_ref())),
                Predicate::Keywords(_) => others.push(one),
            }
        }
        let mut groups = Vec::new();
        let mut size = FIRST_GROUP;
        let mut left = compares.as_slice();
        while !left.is_empty() {
            let (group, rest) = left.split_at(size.min(left.len()));
            groups.push(Group::new(group.to_vec()));
            left = rest;
            size = size.saturating_mul(GROWTH);
        }
        Verifier { groups, others }
    }

    async fn matches(&mut self, row: usize, document: &[u8], budget: &mut YieldBudget) -> bool {
        for group in &mut self.groups {
            if !group.matches(row, document, budget).await {
                return false;
            }
        }
        for other in self.others.iter().filter(|other| !other.exact.contains(row)) {
            budget.consume(document.len()).await;
            if !other.predicate.matches(document) {
                return false;
            }
        }
        true
    }
}

impl<'p> Group<'p> {
    fn new(compares: Vec<(&'p Recheck<'p>, &'p Compare)>) -> Group<'p> {
        let (tree, ends) = PathTree::of(compares.iter().map(|(_, compare)| &compare.path));
        let mut all = vec![Vec::new(); tree.len()];
        for (number, end) in ends.into_iter().enumerate() {
            all[end].push(number);
        }
        Group { compares, open: vec![Vec::new(); tree.len()], tree, all }
    }

    async fn matches(&mut self, row: usize, document: &[u8], budget: &mut YieldBudget) -> bool {
        let mut left = 0;
        for (open, all) in self.open.iter_mut().zip(&self.all) {
            open.clear();
            open.extend(all.iter().filter(|number| !self.compares[**number].0.exact.contains(row)));
            left += open.len();
        }
        if left == 0 {
            return true;
        }
        budget.consume(document.len()).await;
        let mut walk = Walk { compares: &self.compares, open: &mut self.open, left, spent: 0, matches: Some(false) };
        self.tree.reach(document, &mut walk);
        let Walk { spent, matches, .. } = walk;
        budget.consume(spent * COMPARISON_BYTES).await;
        if let Some(matches) = matches {
            return matches;
        }
        for (_, compare) in self.compares.iter().filter(|(recheck, _)| !recheck.exact.contains(row)) {
            budget.consume(document.len()).await;
            if !compare.matches(document) {
                return false;
            }
        }
        true
    }
}

struct Walk<'w, 'p> {
    compares: &'w [(&'p Recheck<'p>, &'p Compare)],
    open: &'w mut [Vec<usize>],
    left: usize,
    spent: usize,
    /// `None` if the walk exceeded the limit.
    matches: Option<bool>,
}

impl Visitor for Walk<'_, '_> {
    fn scalar(&mut self, node: usize, scalar: Scalar<'_>) -> ControlFlow<()> {
        let open = &mut self.open[node];
        self.spent += open.len();
        if self.spent > MAX_WALK_COMPARISONS {
            self.matches = None;
            return ControlFlow::Break(());
        }
        let before = open.len();
        open.retain(|number| !self.compares[*number].1.fits(scalar));
        self.left -= before - open.len();
        if self.left > 0 {
            return ControlFlow::Continue(());
        }
        self.matches = Some(true);
        ControlFlow::Break(())
    }

    fn ended(&mut self, nodes: Range<usize>) -> ControlFlow<()> {
        // An open comparison can no longer match.
        if self.open[nodes].iter().all(Vec::is_empty) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
