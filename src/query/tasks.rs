//! Parallel jobs on row groups.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use strata_format::reader::VersionReader;
use tokio_util::task::AbortOnDropHandle;

use crate::error::QueryError;

/// Lists the row groups of two versions, each with the index of its version (0 or 1).
pub fn row_groups_of_both(readers: &[VersionReader; 2]) -> Vec<(usize, usize)> {
    let list = |side: usize| (0..readers[side].row_groups().len()).map(move |row_group| (side, row_group));
    list(0).chain(list(1)).collect()
}

/// Runs `threads` jobs at once and returns their results in order. Dropping the stream cancels the jobs.
pub fn run_in_order<T, W>(
    jobs: impl Iterator<Item = W> + Send + 'static,
    threads: usize,
) -> BoxStream<'static, Result<T, QueryError>>
where
    T: Send + 'static,
    W: Future<Output = Result<T, QueryError>> + Send + 'static,
{
    stream::iter(jobs)
        .map(|job| AbortOnDropHandle::new(tokio::spawn(job)))
        .buffered(threads.max(1))
        .map(|done| done.map_err(QueryError::from).and_then(|done| done))
        .boxed()
}
