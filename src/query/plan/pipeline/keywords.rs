//! Step 8: `keywords`, in any scalar of what the steps before left of the entity.

use datafusion::error::Result;

use super::Pipeline;
use crate::query::plan::functions::keywords;

pub(super) fn apply(pipeline: Pipeline<'_>) -> Result<Pipeline<'_>> {
    let request = pipeline.request;
    if request.keywords.is_empty() {
        return Ok(pipeline);
    }
    let search = keywords(&request.keywords, request.keywords_mode, &pipeline.reshape);
    Ok(pipeline.matching(search))
}
