//! Verifying candidates in documents: predicates that nothing cheaper settled.
//!
//! A document is walked once for many comparisons: their paths are a tree, and each scalar that one reaches is tested
//! for all comparisons of this path that nothing has fitted yet. A walk ends when all are met, and when a value ends in
//! which one of them would have had to be met.
//!
//! Comparisons are walked in groups that grow. So a document that fails one of the first is tested for few, however
//! many there are.

use std::ops::{ControlFlow, Range};

use strata_json::{PathTree, Scalar, Visitor};
use strata_store::StorageError;

use crate::fetch::pages::Pages;
use crate::fetch::pages_ahead::PagesAhead;
use crate::pace::Pace;
use crate::scan::access::Exact;
use crate::scan::predicate::{Compare, Predicate};
use crate::scan::row_selection::RowSelection;
use crate::scan::spec::ScanSpec;

/// Comparisons of the first group. Each group has [`GROWTH`] times as many as the one before.
const FIRST_GROUP: usize = 8;

const GROWTH: usize = 8;

/// Scalars are compared so often in one walk, which gives way to nothing else. Where that is not enough, comparisons
/// are tested one by one.
const WALK_COMPARISONS: usize = 1 << 18;

/// About the bytes that a comparison of a scalar counts as work.
const COMPARISON_BYTES: usize = 16;

/// A predicate to verify in the documents of the rows that do not match it for certain.
pub(super) struct Recheck<'p> {
    pub(super) predicate: &'p Predicate,
    pub(super) exact: Exact,
}

impl ScanSpec {
    /// The selected rows whose documents match; at most as many as the scan returns.
    pub(super) async fn verify(
        &self,
        row_group: usize,
        selected: RowSelection,
        rechecks: &[Recheck<'_>],
    ) -> Result<RowSelection, StorageError> {
        let most = self.fetch.unwrap_or(usize::MAX);
        let end = self.reader.row_groups()[row_group].rows;
        let mut pages = Pages::of(&self.reader, row_group, selected.len(), end);
        let mut pace = Pace::default();
        let mut tested = 0;
        let mut matching = Vec::new();
        let mut verifier = Verifier::new(rechecks);
        let needs_recheck = |row: &usize| !rechecks.iter().all(|recheck| recheck.exact.contains(*row));
        let mut ahead = PagesAhead::new(self.fetch.is_some());
        for row in selected.iter() {
            if matching.len() >= most {
                break;
            }
            if !needs_recheck(&row) {
                matching.push(row);
                continue;
            }
            tested += 1;
            if pages.are_scattered() {
                let following = || selected.iter().filter(needs_recheck).skip_while(|other| *other <= row);
                let following = || following().map(|row| (row_group, row));
                ahead.reached(&self.reader, &mut pages, (row_group, row), following).await;
            }
            let document = pages.document(row).await?;
            if verifier.matches(row, document, &mut pace).await {
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

/// Tests documents for all predicates that have to be verified in a row group.
pub(super) struct Verifier<'p> {
    groups: Vec<Group<'p>>,
    /// Those that are no comparisons: each looks at the whole document.
    others: Vec<&'p Recheck<'p>>,
}

struct Group<'p> {
    compares: Vec<(&'p Recheck<'p>, &'p Compare)>,
    tree: PathTree,
    /// By node of the tree, the comparisons of its path, by their numbers.
    at: Vec<Vec<usize>>,
    /// The same of the walk: those that nothing has fitted so far.
    open: Vec<Vec<usize>>,
}

impl<'p> Verifier<'p> {
    pub(super) fn new(rechecks: &'p [Recheck<'p>]) -> Verifier<'p> {
        let (mut compares, mut others) = (Vec::new(), Vec::new());
        for one in rechecks {
            match one.predicate {
                Predicate::Compare(compare) => compares.push((one, compare.as_ref())),
                Predicate::Keywords(_) => others.push(one),
            }
        }
        let (mut groups, mut size, mut left) = (Vec::new(), FIRST_GROUP, compares.as_slice());
        while !left.is_empty() {
            let (group, rest) = left.split_at(size.min(left.len()));
            groups.push(Group::new(group.to_vec()));
            (left, size) = (rest, size.saturating_mul(GROWTH));
        }
        Verifier { groups, others }
    }

    pub(super) async fn matches(&mut self, row: usize, document: &[u8], pace: &mut Pace) -> bool {
        for group in &mut self.groups {
            if !group.matches(row, document, pace).await {
                return false;
            }
        }
        for other in self.others.iter().filter(|other| !other.exact.contains(row)) {
            pace.worked(document.len()).await;
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
        let mut at = vec![Vec::new(); tree.len()];
        for (number, end) in ends.into_iter().enumerate() {
            at[end].push(number);
        }
        Group { compares, open: vec![Vec::new(); tree.len()], tree, at }
    }

    async fn matches(&mut self, row: usize, document: &[u8], pace: &mut Pace) -> bool {
        let mut left = 0;
        for (open, all) in self.open.iter_mut().zip(&self.at) {
            open.clear();
            open.extend(all.iter().filter(|number| !self.compares[**number].0.exact.contains(row)));
            left += open.len();
        }
        if left == 0 {
            return true;
        }
        pace.worked(document.len()).await;
        let mut walk = Walk { compares: &self.compares, open: &mut self.open, left, spent: 0, matches: Some(false) };
        self.tree.reach(document, &mut walk);
        let Walk { spent, matches, .. } = walk;
        pace.worked(spent * COMPARISON_BYTES).await;
        if let Some(matches) = matches {
            return matches;
        }
        for (_, compare) in self.compares.iter().filter(|(recheck, _)| !recheck.exact.contains(row)) {
            pace.worked(document.len()).await;
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
    /// `None` if it takes more comparisons than one walk may.
    matches: Option<bool>,
}

impl Visitor for Walk<'_, '_> {
    fn scalar(&mut self, node: usize, scalar: Scalar<'_>) -> ControlFlow<()> {
        let open = &mut self.open[node];
        self.spent += open.len();
        if self.spent > WALK_COMPARISONS {
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
        // One that is open can no longer be met.
        if self.open[nodes].iter().all(Vec::is_empty) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

#[cfg(test)]
mod tests {
    use arrow::buffer::BooleanBuffer;

    use super::*;
    use crate::scan::predicate::Comparison;
    use strata_types::path::Path;

    fn compare(path: &str, value: &str) -> Predicate {
        let path = Path::parse(path).expect("a path");
        Predicate::Compare(Box::new(Compare::new(Comparison::Equal, path, value, false)))
    }

    fn test(verifier: &mut Verifier<'_>, row: usize, document: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async { verifier.matches(row, document.as_bytes(), &mut Pace::default()).await })
    }

    fn matches(predicates: &[Predicate], document: &str) -> bool {
        let rechecks: Vec<Recheck<'_>> =
            predicates.iter().map(|predicate| Recheck { predicate, exact: Exact::None }).collect();
        let mut verifier = Verifier::new(&rechecks);
        // The second time as the first: nothing is left of a walk.
        let times = [0, 1].map(|row| test(&mut verifier, row, document));
        assert_eq!(times[0], times[1]);
        times[0]
    }

    #[test]
    fn an_array_that_takes_more_comparisons_than_a_walk_may() {
        let elements: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
        let document = format!("{{\"a\":[{}],\"b\":1}}", elements.join(","));
        let predicates = |values: Range<usize>| -> Vec<Predicate> {
            values.map(|value| compare("a", &format!("{value}.0"))).chain([compare("b", "1")]).collect()
        };
        // Groups of 8, 64 and 512: the last one compares 512 values with up to 2,000 elements.
        assert!(matches(&predicates(1_400..1_984), &document));
        assert!(!matches(&predicates(1_417..2_001), &document));
        assert!(matches(&predicates(0..5), &document));
    }

    #[test]
    fn a_predicate_that_is_sure_of_a_row_is_not_tested_there() {
        let predicates = [compare("a", "1"), compare("b", "2")];
        let exact = |rows: [bool; 3]| Exact::Rows(BooleanBuffer::from(rows.to_vec()));
        let rechecks = [
            Recheck { predicate: &predicates[0], exact: exact([true, false, true]) },
            Recheck { predicate: &predicates[1], exact: exact([true, true, false]) },
        ];
        let mut verifier = Verifier::new(&rechecks);
        let mut test = |row, document| test(&mut verifier, row, document);
        assert!(test(0, "{}"));
        assert!(test(1, r#"{"a":1}"#));
        assert!(!test(1, r#"{"b":2}"#));
        assert!(test(2, r#"{"b":2}"#));
        assert!(!test(2, r#"{"a":1}"#));
    }
}
