//! Access paths: how a scan finds the rows that match a predicate.
//!
//! One index evaluates a predicate, or documents do if no index covers it. For example, `filter=name:Ada` reads the
//! indexed column of `name`. If the column has many distinct values, the keyword index excludes most rows before. In a
//! version without that column, the keyword index lists the rows with `ada`, and documents decide about the rows in
//! which it can be a part of a longer text or at another path.
//!
//! The evaluator ([`super::row_group_evaluator`]) asks all access paths the same two questions, the cheapest first:
//!
//! 1. [`PlannedPredicate::prune`]: can the row group contain a match?
//! 2. `ScanSpec::probe_access_path`: which rows may match ([`CandidateRows`]), and which of them are certain to match
//!    ([`ExactRows`])? Documents decide about the others, in one pass for all predicates.
//!
//! `PlannedPredicate::estimate_work_bytes` (module `cost`) estimates the work of both before the query runs.

use std::fmt;

use arrow::buffer::BooleanBuffer;
use strata_format::reader::VersionReader;

use crate::scan::indexed_comparison::IndexedComparison;
use crate::scan::keyword_index;
use crate::scan::predicate::Predicate;
use crate::scan::row_selection::RowSelection;
use crate::scan::scan_report::{AccessPath, PruneCounter};

#[derive(Clone, Debug)]
pub struct PlannedPredicate {
    pub access_path: AccessPath,
    pub(super) indexed_column_number: Option<usize>,
    pub predicate: Predicate,
}

impl PlannedPredicate {
    pub fn new(reader: &VersionReader, predicate: Predicate) -> PlannedPredicate {
        let column = match &predicate {
            Predicate::Comparison(compare) => reader.layout().find_shredded(compare.path.keys()),
            Predicate::Keywords(_) => None,
        };
        let access_path = if column.is_some() {
            AccessPath::ShreddedColumn
        } else if !reader.keyword_index().is_empty() && keyword_index::can_search(&predicate) {
            AccessPath::KeywordIndex
        } else {
            AccessPath::Documents
        };
        PlannedPredicate { access_path, indexed_column_number: column, predicate }
    }

    pub(crate) fn indexed_comparison<'a>(&'a self, reader: &'a VersionReader) -> Option<IndexedComparison<'a>> {
        let Predicate::Comparison(compare) = &self.predicate else { return None };
        Some(IndexedComparison { reader, column: self.indexed_column_number?, compare })
    }

    /// Returns the metric to count if an index excludes all rows of a row group. Only indexed columns are used for a
    /// single predicate: the evaluator queries the keyword index for all predicates together.
    pub(super) fn prune(&self, reader: &VersionReader, row_group: usize) -> Option<PruneCounter> {
        self.indexed_comparison(reader)?.prune(row_group)
    }
}

impl fmt::Display for PlannedPredicate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PlannedPredicate { predicate, access_path, indexed_column_number: column } = self;
        let by = match (access_path, column) {
            (_, Some(column)) => return write!(formatter, "{predicate} by indexed column {column}"),
            (AccessPath::KeywordIndex, _) => "keyword index",
            _ => "documents",
        };
        write!(formatter, "{predicate} by {by}")
    }
}

pub(super) struct CandidateRows {
    pub(super) rows: RowSelection,
    pub(super) exact: ExactRows,
}

/// The candidate rows that are certain to match a predicate. Documents decide about the other candidates.
#[derive(Clone, Debug)]
pub(super) enum ExactRows {
    All,
    Rows(BooleanBuffer),
    None,
}

impl ExactRows {
    pub(super) fn contains(&self, row: usize) -> bool {
        match self {
            ExactRows::All => true,
            ExactRows::Rows(rows) => rows.value(row),
            ExactRows::None => false,
        }
    }
}
