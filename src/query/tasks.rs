//! Parallel work on row groups.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use strata_format::reader::VersionReader;
use tokio_util::task::AbortOnDropHandle;

use crate::error::QueryError;

/// The row groups of two versions, with the number of the version: 0 and 1.
pub fn row_groups(readers: &[VersionReader; 2]) -> Vec<(usize, usize)> {
    let of = |side: usize| (0..readers[side].row_groups().len()).map(move |row_group| (side, row_group));
    of(0).chain(of(1)).collect()
}

/// Runs `threads` jobs at once and returns their results in order. Dropping the stream stops them.
pub fn in_order<T, W>(
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
