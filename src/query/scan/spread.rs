//! How the numbers of a path are spread: for each of some limits, how many entities have a number that is not below it.
//! The values are looked at for all limits while they are there, row group by row group.

use strata_format::reader::VersionReader;
use strata_json::RangeLimit;
use strata_runtime::metrics::metrics;
use strata_store::StorageError;
use strata_types::path::Path;
use strata_types::request::RangeBound;

use crate::engine::Engine;
use crate::error::QueryError;
use crate::pace::Pace;
use crate::scan::indexed_column::{IndexedColumn, StatsPruning};
use crate::scan::predicate::{Compare, Comparison};

/// About the bytes that a value counts as work for a limit.
const VALUE_BYTES: usize = 16;

impl Engine {
    /// For each limit, how many entities of a version have a number at a path that is not below it; `None` where the
    /// path has no shredded column, or a limit is no number. Looks at the column once. Dropping the future stops it.
    pub async fn numbers_not_below(
        &self,
        reader: VersionReader,
        path: Path,
        limits: Vec<String>,
    ) -> Result<Option<Vec<u64>>, QueryError> {
        let query = async move { Ok(not_below(&reader, &path, &limits).await?) };
        self.run_within(self.timeout(), query).await
    }
}

/// For each limit, the entities with a number at the path that is not below it, exactly as `filter_gte` counts them;
/// `None` where the path has no shredded column, or a limit is no number.
async fn not_below(reader: &VersionReader, path: &Path, limits: &[String]) -> Result<Option<Vec<u64>>, StorageError> {
    let Some(shredded) = reader.layout().shredded(path.keys()) else { return Ok(None) };
    let bound = Comparison::Range(RangeBound::GreaterOrEqual);
    let compares: Vec<Compare> = limits.iter().map(|limit| Compare::new(bound, path.clone(), limit, false)).collect();
    let mut counts = vec![0; limits.len()];
    let mut pace = Pace::default();
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
                    pace.worked(group.rows * VALUE_BYTES).await;
                    rows.count_set_bits() as u64
                }
            };
        }
        metrics().scanned_rows.increment(group.rows as u64);
    }
    Ok(Some(counts))
}
