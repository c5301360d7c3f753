//! How the numbers of a path are spread: a query of its own beside those of reads.

use crate::model::path::Path;
use crate::query::QueryError;
use crate::query::engine::Engine;
use crate::query::scan::spread;
use crate::storage::reader::VersionReader;

impl Engine {
    /// For each limit, how many entities of a version have a number at a path that is not below it; `None` where the
    /// path has no shredded column, or a limit is no number. Looks at the column once. Dropping the future stops it.
    pub async fn numbers_not_below(
        &self,
        reader: VersionReader,
        path: Path,
        limits: Vec<String>,
    ) -> Result<Option<Vec<u64>>, QueryError> {
        let query = async move { Ok(spread::not_below(&reader, &path, &limits).await?) };
        self.run_within(self.timeout(), query).await
    }
}
