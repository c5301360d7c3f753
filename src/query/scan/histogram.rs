//! Histograms: counts the entities whose numbers are at least some limits, in one pass over the column.

use strata_format::reader::VersionReader;
use strata_json::RangeOperand;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_types::field_path::FieldPath;
use strata_types::read_request::RangeBound;

use crate::coop::YieldBudget;
use crate::engine::QueryEngine;
use crate::error::QueryError;
use crate::fetch::entity_projection::NullTreatment;
use crate::scan::indexed_comparison::{IndexedComparison, StatsPruning};
use crate::scan::predicate::{ComparisonOperator, PathComparison};

const COMPARISON_WORK_BYTES: usize = 16;

impl QueryEngine {
    /// Counts, for each limit, the entities with a number at `path` that is at least the limit, exactly like
    /// `filter_gte`. Returns `None` if the path has no indexed column, or if a limit is not a number.
    pub async fn count_numbers_at_least(
        &self,
        reader: VersionReader,
        path: FieldPath,
        limits: Vec<String>,
    ) -> Result<Option<Vec<u64>>, QueryError> {
        let query = async move { Ok(count_ge(&reader, &path, &limits).await?) };
        self.run_with_timeout(self.timeout(), query).await
    }
}

async fn count_ge(
    reader: &VersionReader,
    path: &FieldPath,
    limits: &[String],
) -> Result<Option<Vec<u64>>, StorageError> {
    let Some(column) = reader.layout().find_shredded(path.keys()) else { return Ok(None) };
    let bound = ComparisonOperator::Range(RangeBound::GreaterOrEqual);
    let compares: Vec<PathComparison> =
        limits.iter().map(|limit| PathComparison::new(bound, path.clone(), limit, NullTreatment::Keep)).collect();
    let mut counts = vec![0; limits.len()];
    let mut budget = YieldBudget::default();
    for (row_group, group) in reader.row_groups().iter().enumerate() {
        for (compare, count) in compares.iter().zip(&mut counts) {
            let range = compare.range_needle().filter(|range| matches!(&range.operand, RangeOperand::Number(_)));
            let Some(range) = range else { return Ok(None) };
            let comparison = IndexedComparison { reader, column, compare };
            *count += match comparison.prune_by_statistics(row_group) {
                StatsPruning::NoneMatch => 0,
                StatsPruning::AllMatch => group.rows as u64,
                StatsPruning::Unknown => {
                    let rows = comparison.rows_with_number_in_range(row_group, range).await?;
                    budget.yield_after(group.rows * COMPARISON_WORK_BYTES).await;
                    rows.count_set_bits() as u64
                }
            };
        }
        metrics().scanned_rows.increment(group.rows as u64);
    }
    Ok(Some(counts))
}
