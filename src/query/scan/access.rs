//! Access paths: how a scan finds the rows that match a condition.
//!
//! One index answers a condition, or documents do if no index covers it. For example, `filter=name:Ada` reads the
//! indexed column of `name`. In a version without that column, the full-text column lists the rows that contain `ada`,
//! the path index tells which of the hits are at `name`, and documents decide in row groups without a path index.
//!
//! The evaluator (module `row_group`) asks all access paths the same two questions, the cheapest access path first:
//!
//! 1. [`Condition::prune`]: can the row group contain a match?
//! 2. `ScanSpec::probe`: which rows may match ([`CandidateRows`]), and which of them match for certain ([`Exact`])?
//!    Documents decide about the others, in one pass for all conditions.
//!
//! `Condition::work_bytes` (module `cost`) estimates the work of both before the query runs. Reports name an access
//! path by the same [`AccessName`] that chooses it.

use std::fmt;

use arrow::buffer::BooleanBuffer;
use strata_format::reader::VersionReader;
use strata_store::StorageError;

use crate::scan::indexed_column::IndexedColumn;
use crate::scan::predicate::Predicate;
use crate::scan::report::{AccessName, PruneCounter};
use crate::scan::row_selection::RowSelection;

/// A predicate with its access path in a version.
#[derive(Clone, Debug)]
pub struct Condition {
    /// One of the first five: the order of [`AccessName`] is the order of cost.
    pub access: AccessName,
    /// The number of the indexed column.
    column: Option<usize>,
    pub predicate: Predicate,
}

impl Condition {
    pub fn new(reader: &VersionReader, predicate: Predicate) -> Condition {
        let column = match &predicate {
            Predicate::Compare(compare) => reader.layout().shredded(compare.path.keys()),
            Predicate::Keywords(_) => None,
        };
        let access = match &predicate {
            Predicate::Compare(_) if column.is_some() => AccessName::ShreddedColumn,
            Predicate::Keywords(keywords) if keywords.sees_everything() => AccessName::SearchText,
            // Row groups without a path index use the next two access paths.
            _ if !reader.shape_index().is_empty() => AccessName::SearchTextAndShapes,
            predicate if predicate.searched().is_some() => AccessName::SearchTextThenDocuments,
            _ => AccessName::Documents,
        };
        Condition { access, column, predicate }
    }

    /// Orders conditions by the cost of their access paths.
    pub(super) fn rank(&self) -> (AccessName, Option<usize>) {
        (self.access, self.column)
    }

    pub(super) fn reads_full_text(&self) -> bool {
        (AccessName::SearchText..=AccessName::SearchTextThenDocuments).contains(&self.access)
    }

    pub fn reads_documents(&self) -> bool {
        matches!(self.access, AccessName::SearchTextThenDocuments | AccessName::Documents)
    }

    pub(crate) fn indexed_column<'a>(&'a self, reader: &'a VersionReader) -> Option<IndexedColumn<'a>> {
        match &self.predicate {
            Predicate::Compare(compare) => self.column.map(|column| IndexedColumn { reader, column, compare }),
            Predicate::Keywords(_) => None,
        }
    }

    /// What excludes all rows of a row group; `None` if a row may match. Only indexed columns exclude row groups for a
    /// single condition: the evaluator asks the keyword index about all conditions together.
    pub(super) async fn prune(
        &self,
        reader: &VersionReader,
        row_group: usize,
    ) -> Result<Option<PruneCounter>, StorageError> {
        match self.indexed_column(reader) {
            Some(column) => column.prune(row_group).await,
            None => Ok(None),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { predicate, access, column } = self;
        let by = match (access, column) {
            (_, Some(column)) => return write!(formatter, "{predicate} by indexed column {column}"),
            (AccessName::SearchText, _) => "full-text column",
            (AccessName::SearchTextAndShapes, _) => "full-text column and path index",
            (AccessName::SearchTextThenDocuments, _) => "full-text column and documents",
            _ => "documents",
        };
        write!(formatter, "{predicate} by {by}")
    }
}

/// The rows that may match a condition. No other row matches.
pub(super) struct CandidateRows {
    pub(super) rows: RowSelection,
    pub(super) exact: Exact,
}

/// The candidates that match for certain. The others have to be verified.
#[derive(Clone, Debug)]
pub(super) enum Exact {
    All,
    Rows(BooleanBuffer),
    None,
}

impl Exact {
    pub(super) fn contains(&self, row: usize) -> bool {
        match self {
            Exact::All => true,
            Exact::Rows(rows) => rows.value(row),
            Exact::None => false,
        }
    }
}
