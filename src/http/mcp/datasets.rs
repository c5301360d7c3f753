//! The tools that list datasets: the caller's, and the public ones that their owners list.

use futures::future::BoxFuture;
use serde::Serialize;

use super::error::ToolError;
use super::output::Output;
use super::tool::{Effect, Tool};
use super::{Caller, output, schemas};
use crate::http::error::CallError;
use crate::http::management::records::time;
use crate::http::management::{Fields, listings};
use crate::http::read::rate;
use crate::model::dataset::Dataset;
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::model::scope::Scope;
use crate::net::without_credentials;
use crate::service::Bucket;

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
        let properties = [
            ("after", schemas::positive("Those with a greater dataset_id")),
            ("limit", schemas::at_most(MOST_LISTED, LISTED, "At most so many")),
        ];
        schemas::object(properties, &[])
    },
    like: None,
    call: list,
};

pub(super) const LIST_PUBLIC_DATASETS: Tool = Tool {
    name: "list_public_datasets",
    summary: "Lists the public datasets that their owners list for everybody, by id, a page at a time",
    details: "Next: `profile` for the fields of one, then `read`. Where `next_after` \
              is not null there are more. Counts as a read.",
    effect: Effect::Nothing,
    arguments: || {
        let properties = [
            ("q", schemas::text("A part of the name or description")),
            ("after", schemas::positive("Those with a greater dataset_id")),
            ("limit", schemas::at_most(MOST_LISTED, LISTED, "At most so many")),
        ];
        schemas::object(properties, &[])
    },
    like: None,
    call: list_public,
};

/// Some of the datasets that everybody may find.
#[derive(Serialize)]
struct PublicPage {
    datasets: Vec<listings::ListedDataset>,
    /// The last `dataset_id`, if there are more after it.
    next_after: Option<u64>,
}

/// Some of the caller's datasets.
#[derive(Serialize)]
struct DatasetPage {
    datasets: Vec<ListedDataset>,
    /// The last `dataset_id`, if there are more after it.
    next_after: Option<u64>,
}

/// A dataset without what opens it.
#[derive(Serialize)]
struct ListedDataset {
    dataset_id: u64,
    name: String,
    name_slug: String,
    description: Option<String>,
    /// The terms under which its entities may be used.
    licence: Option<String>,
    /// Whether everybody finds it in the list of public datasets.
    listed: bool,
    /// Whether only its owner, and who has its key, may read it.
    private: bool,
    /// `push`, or the URL that its entities are fetched from.
    source: String,
    /// The version that `active` means; null where there is none yet.
    active_version: Option<u64>,
    latest_version: Option<u64>,
    /// Whether the owner has pinned the active version.
    pinned: bool,
    /// Whether it is frozen: it gets no new versions and cannot be read, but its alternates can be edited.
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

fn list(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let (after, limit) = page(&arguments)?;
        // One more tells whether there are more.
        let found = caller.app.datasets().list_bare(&caller.user, after, limit + 1).await?;
        let found = found.into_iter().map(|dataset| ListedDataset::new(dataset, caller.scope)).collect();
        let (datasets, next_after) = fitting(found, limit, |dataset| dataset.dataset_id);
        output::record(&DatasetPage { datasets, next_after }, BYTES, "Ask for less: a smaller limit.")
    })
}

fn list_public(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let (query, (after, limit)) = (arguments.optional_text("q")?, page(&arguments)?);
        let public = caller.app.listings();
        public.check(query)?;
        rate::check(rate::count(&caller.app, caller.client, Bucket::Public).await.as_ref())?;
        let found = public.find(caller.client, query, after, limit + 1).await?;
        let found = found.iter().map(listings::ListedDataset::from).collect();
        let (datasets, next_after) = fitting(found, limit, listings::ListedDataset::id);
        output::record(&PublicPage { datasets, next_after }, BYTES, "Ask for less: a smaller limit.")
    })
}

/// The first of the datasets, at most `limit` and as many as a result may hold, and the id of the last one where there
/// are more. Owners may write long descriptions: a page is shorter then, so that every caller comes to its end.
fn fitting<T: Serialize>(mut found: Vec<T>, limit: u32, id: impl Fn(&T) -> u64) -> (Vec<T>, Option<u64>) {
    let (all, mut bytes) = (found.len(), AROUND_BYTES);
    let mut fits = |dataset: &&T| {
        bytes += serde_json::to_string(dataset).map_or(0, |text| text.len()) + 1;
        bytes <= BYTES
    };
    let fitting = found.iter().take(limit as usize).take_while(&mut fits).count();
    found.truncate(fitting);
    let next_after = found.last().filter(|_| fitting < all).map(id);
    (found, next_after)
}

/// After which dataset, and how many.
fn page(arguments: &Fields) -> Result<(Option<DatasetId>, u32), CallError> {
    let after = arguments.optional_positive("after")?.map(DatasetId::new);
    let limit = arguments.optional_positive("limit")?.unwrap_or(LISTED.into());
    let limit = u32::try_from(limit).ok().filter(|limit| *limit <= MOST_LISTED);
    let wrong = || CallError::field("limit", format!("it is too large; valid: 1 to {MOST_LISTED}"));
    Ok((after, limit.ok_or_else(wrong)?))
}
