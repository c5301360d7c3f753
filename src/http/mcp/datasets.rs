//! The tools that list the caller's datasets and public datasets.

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::{Value, json};
use strata_ingest::egress::{UrlQuery, strip_credentials};
use strata_service::{DatasetService, RateLimitBucket};
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::token_scope::TokenScope;

use super::ToolCaller;
use super::argument_schemas::{limit_schema, positive_schema, text_schema};
use super::tool::{self, ToolArgument, ToolResult, ToolSpec};
use crate::error::CallError;
use crate::management::CallFields;
use crate::management::listings::ListedDataset;
use crate::management::records::format_time;
use crate::read::rate_limiting;

const DEFAULT_PAGE_DATASETS: u32 = 50;
const MAX_PAGE_DATASETS: u32 = limits::MAX_TOOL_DATASETS_PER_PAGE as u32;
const MAX_RESULT_BYTES: usize = limits::MAX_TOOL_RESULT_BYTES;
/// Max bytes of the JSON around the datasets of a page.
const PAGE_ENVELOPE_BYTES: usize = 100;

pub(super) const LIST_DATASETS_TOOL: ToolSpec = ToolSpec {
    name: "list_datasets",
    summary: "Lists your datasets, ordered by ID, one page at a time",
    details: "Next: `profile` for the fields of a dataset, then `read`. If `next_after` is not null, there are more \
              datasets: pass it as `after`. For other users' datasets, call `list_public_datasets`.",
    scope: TokenScope::Read,
    arguments: page_arguments,
    required: &[],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(list_own_datasets(caller, arguments)),
};

pub(super) const LIST_PUBLIC_DATASETS_TOOL: ToolSpec = ToolSpec {
    name: "list_public_datasets",
    summary: "Lists the public datasets that owners chose to list, ordered by ID, one page at a time",
    details: "Next: `profile` for the fields of a dataset, then `read`. If `next_after` is not null, there are more \
              datasets. Counts as a read.",
    scope: TokenScope::Read,
    arguments: || [vec![("q", text_schema("Text in the name or description"))], page_arguments()].concat(),
    required: &[],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(list_public_datasets(caller, arguments)),
};

fn page_arguments() -> Vec<ToolArgument> {
    vec![
        ("after", positive_schema("Only datasets with a greater dataset_id")),
        ("limit", limit_schema(MAX_PAGE_DATASETS, DEFAULT_PAGE_DATASETS, "Maximum number of datasets")),
    ]
}

#[derive(Serialize)]
struct DatasetToolPage<T> {
    datasets: Vec<T>,
    next_after: Option<u64>,
}

/// Returns the JSON of a dataset. For a read-only token, it does not contain the credentials in the source URL.
fn dataset_json(dataset: &Dataset, scope: TokenScope) -> Value {
    let source = dataset.source.to_string();
    json!({
        "dataset_id": dataset.id.get(),
        "name": dataset.name.as_str(),
        "name_slug": dataset.name.slug(),
        "description": dataset.metadata.description,
        "licence": dataset.metadata.license,
        "listed": dataset.metadata.listed,
        "private": dataset.is_private(),
        "source": match scope {
            TokenScope::Read => strip_credentials(&source, UrlQuery::from_publish_query(dataset.publish_query)),
            TokenScope::Write => source,
        },
        "active_version": dataset.active_version().map(|version| version.get()),
        "latest_version": dataset.latest_version.map(|version| version.get()),
        "pinned": dataset.pinned_version.is_some(),
        "frozen": dataset.frozen,
        "created_at": format_time(dataset.created_at),
    })
}

async fn list_own_datasets(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let (after, limit) = parse_page_arguments(&arguments)?;
    // The page needs one dataset more than its limit, which shows whether there is another page.
    let datasets = caller.services.datasets.list_without_attempts(&caller.user, after, limit + 1).await?;
    build_page(datasets, limit, |dataset| (dataset.id, dataset_json(dataset, caller.scope)))
}

async fn list_public_datasets(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let query = arguments.optional_text("q")?;
    let (after, limit) = parse_page_arguments(&arguments)?;
    DatasetService::check_listing_query(query)?;
    rate_limiting::admit_request(&caller.services, caller.client, RateLimitBucket::Public, &mut HeaderMap::new())
        .await?;
    let listings = caller.services.datasets.search_dataset_list(caller.client, query, after, limit + 1).await?;
    build_page(listings, limit, |listing| (listing.dataset.id, ListedDataset::from(listing)))
}

/// Builds a page of at most `limit` records. If descriptions are long, the page is shorter, so that the result does not
/// exceed [`MAX_RESULT_BYTES`] and every caller can read all pages.
fn build_page<T, R: Serialize>(rows: Vec<T>, limit: u32, record: impl Fn(&T) -> (DatasetId, R)) -> ToolResult {
    let mut bytes = PAGE_ENVELOPE_BYTES;
    let fits = |(_, dataset): &(DatasetId, R)| {
        bytes += serde_json::to_string(dataset).map_or(0, |text| text.len()) + 1;
        bytes <= MAX_RESULT_BYTES
    };
    let (ids, datasets): (Vec<DatasetId>, Vec<R>) =
        rows.iter().map(record).take(limit as usize).take_while(fits).unzip();
    let next_after = ids.last().filter(|_| ids.len() < rows.len()).map(|id| id.get());
    tool::json_output(&DatasetToolPage { datasets, next_after }, MAX_RESULT_BYTES, "Use a smaller limit.")
}

fn parse_page_arguments(arguments: &CallFields) -> Result<(Option<DatasetId>, u32), CallError> {
    let after = arguments.optional_positive_integer("after")?.map(DatasetId::new);
    let limit = arguments.optional_positive_integer("limit")?.unwrap_or(DEFAULT_PAGE_DATASETS.into());
    let limit = u32::try_from(limit).ok().filter(|limit| *limit <= MAX_PAGE_DATASETS);
    let too_large = || CallError::for_field("limit", format!("too large; valid: 1 to {MAX_PAGE_DATASETS}"));
    Ok((after, limit.ok_or_else(too_large)?))
}
