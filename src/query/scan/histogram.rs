//! Histograms: counts of the entities whose numbers are at least some limits, in one pass over the column.

use strata_format::reader::VersionReader;
use strata_json::RangeLimit;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_types::path::Path;
use strata_types::request::RangeBound;

use crate::coop::YieldBudget;
use crate::engine::Engine;
use crate::error::QueryError;
use crate::scan::indexed_column::{IndexedColumn, StatsPruning};
use crate::scan::predicate::{Compare, Comparison};

/// The work of comparing a value with a limit, in bytes.
const VALUE_BYTES: usize = 16;

impl Engine {
    /// For each limit, the number of entities with a number at the path that is at least the limit, exactly like
    /// `filter_gte`. `None` if the path has no indexed column, or if a limit is not a number.
    pub async fn numbers_not_below(
        &self,
        reader: VersionReader,
        path: Path,
        limits: Vec<String>,
    ) -> Result<Option<Vec<u64>>, QueryError> {
        let query = async move { Ok(count_ge(&reader, &path, &limits).await?) };
        self.run_query_within(self.timeout(), query).await
    }
}

async fn count_ge(reader: &VersionReader, path: &Path, limits: &[String]) -> Result<Option<Vec<u64>>, StorageError> {
    let Some(shredded) = reader.layout().shredded(path.keys()) else { return Ok(None) };
    let bound = Comparison::Range(RangeBound::GreaterOrEqual);
    let compares: Vec<Compare> = limits.iter().map(|limit| Compare::new(bound, path.clone(), limit, false)).collect();
    let mut counts = vec![0; limits.len()];
    let mut budget = YieldBudget::default();
    for (row_group, group) in reader.row_groups().iter().enumerate() {
        for (compare, count) in compares.iter().zip(&mut counts) {
            let Some(range) = compare.range().filter(|range| matches!(&range.limit, RangeLimit::Number(_))) else {
                return Ok(None);
            };
            let column = IndexedColumn { reader, column: shredded, compare };
            *count += match column.prune_by_statistics(row_group) {
                StatsPruning::NoneMatch => 0,
                StatsPruning::AllMatch => group.rows as u64,
                StatsPruning::Unknown => {
                    let rows = column.numbers_within(row_group, range).await?;
                    budget.consume(group.rows * VALUE_BYTES).await;
                    rows.count_set_bits() as u64
                }
            };
        }
        metrics().scanned_rows.increment(group.rows as u64);
    }
    Ok(Some(counts))
}
