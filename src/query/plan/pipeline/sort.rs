//! Step 9: `sort`, by an order key that the scan computes: it holds the direction, what comes last, and the position,
//! so that one ascending column is a stable sort.

use datafusion::error::Result;
use datafusion::prelude::col;

use super::Pipeline;
use crate::model::request::ReadRequest;
use crate::query::fetch::reshape::Reshape;
use crate::query::scan::schema::ORDER;
use crate::query::scan::sort_key::OrderSpec;

/// What to sort by; `None` where nothing could be sorted, so that all entities come last and keep their order, and
/// where the order does not matter: for a count, and for a sample of what no dedup has chosen from.
pub(super) fn order_spec(request: &ReadRequest, reshape: &Reshape) -> Option<OrderSpec> {
    let sort = request.sort.as_ref()?;
    let shuffled = request.sample.is_some() && !request.dedup;
    (!request.count && !shuffled && reshape.sees(std::slice::from_ref(&sort.field))).then(|| OrderSpec {
        field: sort.field.clone(),
        descending: sort.descending,
        denull: reshape.denull(),
    })
}

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    // A dedup forgets the order, and sorts what is left by it.
    if pipeline.order != ORDER || pipeline.request.dedup {
        return Ok(pipeline);
    }
    pipeline.with(|plan| plan.sort([col(ORDER).sort(true, false)]))
}
