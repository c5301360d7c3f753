//! How the numbers of a path are spread: one query, in its own turn, whatever the number of ranges.

use crate::model::path::Path;
use crate::model::request::{PathValue, RangeBound, ReadRequest};
use crate::query::cost;
use crate::service::read::Reads;
use crate::service::{Admitted, ReadError, Weight};
use crate::storage::reader::VersionReader;

impl Reads {
    /// For each end of a range, how many entities have a number at a path that is not below it, as a count with
    /// `filter_gte` gives it; `None` where the path has no shredded column, or an end is no number.
    pub async fn numbers_not_below(
        &self,
        admitted: &Admitted,
        path: &Path,
        ends: Vec<String>,
    ) -> Result<Option<Vec<u64>>, ReadError> {
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await?;
        // As much work as a read with all of these conditions.
        let mut alike = ReadRequest { count: true, ..ReadRequest::default() };
        let conditions = ends.iter().map(|end| PathValue { path: path.clone(), value: end.clone() });
        alike.ranges[RangeBound::GreaterOrEqual as usize].extend(conditions);
        let weight = Weight::of(cost::work_bytes(&reader, &alike).await, &self.config.query);
        let capacity = self.capacity.of(admitted.holder);
        let _permit = capacity.admission.query(weight).await?;
        Ok(capacity.engine_for(weight).numbers_not_below(reader, path.clone(), ends).await?)
    }
}
