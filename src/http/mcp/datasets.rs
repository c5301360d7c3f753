//! The tools that list the datasets of the caller, and public datasets.

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};
use strata_ingest::net::without_credentials;
use strata_service::{Bucket, Datasets};
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::scope::Scope;

use super::tool::{self, Tool, ToolResult};
use super::{Caller, schemas};
use crate::error::CallError;
use crate::management::Fields;
use crate::management::listings::ListedDataset;
use crate::management::records::time;
use crate::read::rate;

/// The default and the maximum size of a page.
const LISTED: u32 = 50;
const MAX_LISTED: u32 = limits::TOOL_LISTED_DATASETS as u32;

const BYTES: usize = limits::TOOL_RESULT_BYTES;

/// More than the JSON around the datasets of a page.
const AROUND_BYTES: usize = 100;

pub(super) const LIST_DATASETS: Tool = Tool {
    name: "list_datasets",
    summary: "Lists your datasets, ordered by ID, one page at a time",
    details: "Next: `profile` for the fields of a dataset, then `read`. If `next_after` is not null, there are more \
              datasets: pass it as `after`. For other users' datasets, call `list_public_datasets`.",
    scope: Scope::Read,
    arguments: || {
        vec![
            ("after", schemas::positive("Only datasets with a greater dataset_id")),
            ("limit", schemas::at_most(MAX_LISTED, LISTED, "Maximum number of datasets")),
        ]
    },
    required: &[],
    like: None,
    call: |caller, arguments| Box::pin(list(caller, arguments)),
};

pub(super) const LIST_PUBLIC_DATASETS: Tool = Tool {
    name: "list_public_datasets",
    summary: "Lists the public datasets that owners chose to list, ordered by ID, one page at a time",
    details: "Next: `profile` for the fields of a dataset, then `read`. If `next_after` is not null, there are more \
              datasets. Counts as a read.",
    scope: Scope::Read,
    arguments: || {
        vec![
            ("q", schemas::text("Text in the name or description")),
            ("after", schemas::positive("Only datasets with a greater dataset_id")),
            ("limit", schemas::at_most(MAX_LISTED, LISTED, "Maximum number of datasets")),
        ]
    },
    required: &[],
    like: None,
    call: |caller, arguments| Box::pin(list_public(caller, arguments)),
};

#[derive(Serialize)]
struct Page<T> {
    datasets: Vec<T>,
    /// The last `dataset_id`, if there are more after it.
    next_after: Option<u64>,
}

/// The dataset as a caller with this scope can see it.
fn listed(dataset: &Dataset, scope: Scope) -> Value {
    let source = dataset.source.to_string();
    json!({
        "dataset_id": dataset.id.get(),
        "name": dataset.name.as_str(),
        "name_slug": dataset.name.slug(),
        "description": dataset.about.description,
        "licence": dataset.about.licence,
        "listed": dataset.about.listed,
        "private": dataset.is_private(),
        "source": match scope {
            Scope::Read => without_credentials(&source, dataset.publish_query),
            Scope::Write => source,
        },
        "active_version": dataset.active_version().map(|version| version.get()),
        "latest_version": dataset.latest_version.map(|version| version.get()),
        "pinned": dataset.pinned_version.is_some(),
        "frozen": dataset.frozen,
        "created_at": time(dataset.created_at),
    })
}

async fn list(caller: &Caller, arguments: Fields) -> ToolResult {
    let (after, limit) = page(&arguments)?;
    // One more shows whether there is another page.
    let found = caller.services.datasets.list_bare(&caller.user, after, limit + 1).await?;
    page_of(found, limit, |dataset| (dataset.id, listed(dataset, caller.scope)))
}

async fn list_public(caller: &Caller, arguments: Fields) -> ToolResult {
    let query = arguments.optional_text("q")?;
    let (after, limit) = page(&arguments)?;
    Datasets::check_listing_query(query)?;
    rate::admit(&caller.services, caller.client, Bucket::Public, &mut HeaderMap::new()).await?;
    let found = caller.services.datasets.listed(caller.client, query, after, limit + 1).await?;
    page_of(found, limit, |listing| (listing.dataset.id, ListedDataset::from(listing)))
}

/// A page of up to `limit` records, and the ID of the last one if there are more. If descriptions are long, the page is
/// shorter, so that every caller can read all pages.
fn page_of<T, R: Serialize>(found: Vec<T>, limit: u32, record: impl Fn(&T) -> (DatasetId, R)) -> ToolResult {
    let mut bytes = AROUND_BYTES;
    let fits = |(_, dataset): &(DatasetId, R)| {
        bytes += serde_json::to_string(dataset).map_or(0, |text| text.len()) + 1;
        bytes <= BYTES
    };
    let (ids, datasets): (Vec<DatasetId>, Vec<R>) =
        found.iter().map(record).take(limit as usize).take_while(fits).unzip();
    let next_after = ids.last().filter(|_| ids.len() < found.len()).map(|id| id.get());
    tool::record(&Page { datasets, next_after }, BYTES, "Use a smaller limit.")
}

fn page(arguments: &Fields) -> Result<(Option<DatasetId>, u32), CallError> {
    let after = arguments.optional_positive("after")?.map(DatasetId::new);
    let limit = arguments.optional_positive("limit")?.unwrap_or(LISTED.into());
    let limit = u32::try_from(limit).ok().filter(|limit| *limit <= MAX_LISTED);
    let wrong = || CallError::field("limit", format!("too large; valid: 1 to {MAX_LISTED}"));
    Ok((after, limit.ok_or_else(wrong)?))
}
