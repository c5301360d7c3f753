//! The tools that list datasets: the caller's, and the public ones that their owners list.

use serde::Serialize;

use super::tool::{self, Effect, Tool, ToolResult};
use super::{Caller, schemas};
use crate::http::error::CallError;
use crate::http::management::records::time;
use crate::http::management::{Fields, listings};
use crate::http::read::rate;
use crate::model::dataset::Dataset;
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::model::scope::Scope;
use crate::net::without_credentials;
use crate::service::{Bucket, Datasets};

/// Datasets in a page, unless asked otherwise, and at most.
const LISTED: u32 = 50;
const MOST_LISTED: u32 = limits::TOOL_LISTED_DATASETS as u32;

/// Most bytes of a page: sources may be long.
const BYTES: usize = limits::TOOL_RESULT_BYTES;

/// More than the names and the braces around the datasets of a page.
const AROUND_BYTES: usize = 100;

pub(super) const LIST_DATASETS: Tool = Tool {
    name: "list_datasets",
    summary: "Lists the caller's datasets, by id, a page at a time",
    details: "Next: `profile` for the fields of one, then `read`. Where `next_after` is not null there are more: call again \
              with it as `after`. For those of others: `list_public_datasets`.",
    effect: Effect::Nothing,
    arguments: || {
        vec![
            ("after", schemas::positive("Those with a greater dataset_id")),
            ("limit", schemas::at_most(MOST_LISTED, LISTED, "At most so many")),
        ]
    },
    required: &[],
    like: None,
    call: |caller, arguments| Box::pin(list(caller, arguments)),
};

pub(super) const LIST_PUBLIC_DATASETS: Tool = Tool {
    name: "list_public_datasets",
    summary: "Lists the public datasets that their owners list for everybody, by id, a page at a time",
    details: "Next: `profile` for the fields of one, then `read`. Where `next_after` \
              is not null there are more. Counts as a read.",
    effect: Effect::Nothing,
    arguments: || {
        vec![
            ("q", schemas::text("A part of the name or description")),
            ("after", schemas::positive("Those with a greater dataset_id")),
            ("limit", schemas::at_most(MOST_LISTED, LISTED, "At most so many")),
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

#[derive(Serialize)]
struct ListedDataset {
    dataset_id: u64,
    name: String,
    name_slug: String,
    description: Option<String>,
    licence: Option<String>,
    listed: bool,
    private: bool,
    source: String,
    active_version: Option<u64>,
    latest_version: Option<u64>,
    pinned: bool,
    frozen: bool,
    created_at: String,
}

impl ListedDataset {
    /// The dataset as the scope lets its caller see it.
    fn new(dataset: Dataset, scope: Scope) -> Self {
        let source = dataset.source.to_string();
        ListedDataset {
            dataset_id: dataset.id.get(),
            listed: dataset.about.listed,
            private: dataset.is_private(),
            active_version: dataset.active_version().map(|version| version.get()),
            latest_version: dataset.latest_version.map(|version| version.get()),
            pinned: dataset.pinned_version.is_some(),
            frozen: dataset.frozen,
            created_at: time(dataset.created_at),
            name: dataset.name.as_str().to_owned(),
            description: dataset.about.description,
            licence: dataset.about.licence,
            name_slug: dataset.name.slug().to_owned(),
            source: match scope {
                Scope::Read => without_credentials(&source, dataset.publish_query),
                Scope::Write => source,
            },
        }
    }
}

async fn list(caller: &Caller, arguments: Fields) -> ToolResult {
    let (after, limit) = page(&arguments)?;
    // One more tells whether there are more.
    let found = caller.app.datasets().list_bare(&caller.user, after, limit + 1).await?;
    let found = found.into_iter().map(|dataset| ListedDataset::new(dataset, caller.scope)).collect();
    page_of(found, limit, |dataset: &ListedDataset| dataset.dataset_id)
}

async fn list_public(caller: &Caller, arguments: Fields) -> ToolResult {
    let (query, (after, limit)) = (arguments.optional_text("q")?, page(&arguments)?);
    Datasets::check_listing_query(query)?;
    rate::check(rate::count(&caller.app, caller.client, Bucket::Public).await.as_ref())?;
    let found = caller.app.datasets().listed(caller.client, query, after, limit + 1).await?;
    let found = found.iter().map(listings::ListedDataset::from).collect();
    page_of(found, limit, |dataset: &listings::ListedDataset| dataset.dataset_id)
}

/// The first of the datasets, at most `limit` and as many as a result may hold, and the id of the last one where there
/// are more. Owners may write long descriptions: a page is shorter then, so that every caller comes to its end.
fn page_of<T: Serialize>(mut found: Vec<T>, limit: u32, id: impl Fn(&T) -> u64) -> ToolResult {
    let (all, mut bytes) = (found.len(), AROUND_BYTES);
    let mut fits = |dataset: &&T| {
        bytes += serde_json::to_string(dataset).map_or(0, |text| text.len()) + 1;
        bytes <= BYTES
    };
    let fitting = found.iter().take(limit as usize).take_while(&mut fits).count();
    found.truncate(fitting);
    let next_after = found.last().filter(|_| fitting < all).map(id);
    tool::record(&Page { datasets: found, next_after }, BYTES, "Ask for less: a smaller limit.")
}

fn page(arguments: &Fields) -> Result<(Option<DatasetId>, u32), CallError> {
    let after = arguments.optional_positive("after")?.map(DatasetId::new);
    let limit = arguments.optional_positive("limit")?.unwrap_or(LISTED.into());
    let limit = u32::try_from(limit).ok().filter(|limit| *limit <= MOST_LISTED);
    let wrong = || CallError::field("limit", format!("it is too large; valid: 1 to {MOST_LISTED}"));
    Ok((after, limit.ok_or_else(wrong)?))
}
