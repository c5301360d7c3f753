//! `/`: the visitor's own datasets, followed by the dataset list.

use askama::Template;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::DatasetListing;
use strata_http::error::HttpError;
use strata_http::page_support::{self, CurrentUser};
use strata_service::{DemoExample, ManageError, RateLimitBucket, Services};
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::user::User;
use strata_types::version::{VersionFile, VersionSelector};

use super::format::{self, FormattedTime};
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::QueryParams;
use super::safe_text::SafeText;
use super::urls::DatasetUrls;

const DATASETS_PER_PAGE: usize = 50;
const OWN_DATASETS_PER_PAGE: usize = 50;
const OWN_OFFSET_PARAM: &str = "own";
const MAX_LIST_LOOKUPS: usize = 20;
const MAX_TITLE_CHARACTERS: usize = 80;
const MAX_SEARCH_CHARACTERS: usize = 200;

#[derive(Template)]
#[template(path = "catalogue.html")]
struct DatasetListPage {
    layout: PageLayout,
    q: String,
    q_html: SafeText,
    problem: Option<String>,
    own_datasets: Option<OwnDatasets>,
    is_signed_in: bool,
    listed_datasets: Vec<DatasetCard>,
    first: Option<String>,
    next: Option<String>,
}

struct OwnDatasets {
    cards: Vec<DatasetCard>,
    previous: Option<String>,
    next: Option<String>,
    number: String,
}

struct DatasetCard {
    urls: DatasetUrls,
    dataset: Dataset,
    active_file: Option<(VersionFile, FormattedTime)>,
    examples: &'static [DemoExample],
}

impl DatasetCard {
    fn new(dataset: Dataset, file: Option<(VersionFile, DateTime<Utc>)>, now: DateTime<Utc>) -> DatasetCard {
        let active_file = file.map(|(file, created_at)| (file, FormattedTime::new(created_at, now)));
        DatasetCard { urls: DatasetUrls::new(&dataset), dataset, active_file, examples: &[] }
    }

    fn page_url(&self) -> String {
        match self.dataset.latest_version.is_some() && !self.dataset.frozen {
            true => self.example_url(""),
            false => self.urls.page_url("versions"),
        }
    }

    fn example_url(&self, query: &str) -> String {
        let query = QueryParams::parse(query.strip_prefix('?')).without(&["format", "pretty"]);
        query.to_url(&self.urls.active_version().browse_url())
    }
}

pub(super) async fn show_dataset_list(req: &mut PageRequest) -> PageResult {
    let services = req.services.clone();
    let now = Utc::now();
    let query = req.parse_query(&["q", "after", OWN_OFFSET_PARAM])?;
    let q = query.first("q").unwrap_or_default().trim().to_owned();
    let after = query.parse_number("after")?.map(DatasetId::new);
    page_support::count(&services, req.current_user.client, RateLimitBucket::Public, &mut req.response_headers).await?;

    let search = (!q.is_empty()).then_some(q.as_str());
    let from = query.parse_number(OWN_OFFSET_PARAM)?.unwrap_or(0);
    let (status, problem, (found, next)) = match load_listed_datasets(req, search, after).await {
        Ok(found) => (StatusCode::OK, None, found),
        Err(error) => {
            let (status, problem) = req.log_and_render(error.into());
            (status, Some(problem), (Vec::new(), None))
        }
    };
    let base = QueryParams::default().with_optional("q", search.filter(|_| problem.is_none()));
    let card = |DatasetListing { dataset, active_version: active, refreshed_at }| {
        DatasetCard::new(dataset, Some((active.file, refreshed_at)), now)
    };
    let mut listed_datasets: Vec<DatasetCard> = found.into_iter().map(card).collect();
    add_demo_examples(&services, &mut listed_datasets).await?;
    let own_datasets = match &req.current_user.user {
        Some(user) if after.is_none() => Some(load_own_datasets(req, user, &q, &base, from, now).await?),
        _ => None,
    };
    let title = match q.is_empty() {
        _ if problem.is_some() => "Error: Datasets".to_owned(),
        true => "Datasets".to_owned(),
        false => format!("Datasets: {}", SafeText::with_ellipsis(&q, MAX_TITLE_CHARACTERS).text),
    };
    let page = DatasetListPage {
        layout: req.layout(title),
        own_datasets,
        is_signed_in: req.current_user.user.is_some(),
        listed_datasets,
        first: after.map(|_| base.to_url("/")),
        next: next.map(|id| base.with_replaced("after", id).to_url("/")),
        q_html: SafeText::with_ellipsis(&q, MAX_SEARCH_CHARACTERS),
        q: if problem.is_some() { q.chars().take(MAX_SEARCH_CHARACTERS).collect() } else { q },
        problem,
    };
    render(status, &page)
}

/// Loads a page of other users' datasets. Also returns the last dataset of the page if there are more.
async fn load_listed_datasets(
    req: &PageRequest,
    search: Option<&str>,
    mut after: Option<DatasetId>,
) -> Result<(Vec<DatasetListing>, Option<DatasetId>), ManageError> {
    let CurrentUser { user, client, .. } = &req.current_user;
    let datasets = &req.services.datasets;
    let mut found = Vec::new();
    // The visitor's own datasets are skipped and can fill whole query results, so several queries can be necessary.
    for _ in 0..MAX_LIST_LOOKUPS {
        let listings = datasets.search_dataset_list(*client, search, after, DATASETS_PER_PAGE as u32 + 1).await?;
        let is_last = listings.len() <= DATASETS_PER_PAGE;
        for listing in listings.into_iter().take(DATASETS_PER_PAGE) {
            if found.len() == DATASETS_PER_PAGE {
                return Ok((found, after));
            }
            after = Some(listing.dataset.id);
            if user.as_ref().is_none_or(|user| listing.dataset.owner != user.id) {
                found.push(listing);
            }
        }
        if is_last {
            return Ok((found, None));
        }
    }
    Ok((found, after))
}

/// Loads a page of the visitor's datasets whose name or description contains `q`, ignoring case.
async fn load_own_datasets(
    req: &PageRequest,
    user: &User,
    q: &str,
    base: &QueryParams,
    from: u64,
    now: DateTime<Utc>,
) -> Result<OwnDatasets, HttpError> {
    let services = &req.services;
    // One query loads the first datasets of the user. The page omits all further ones, which only the API lists.
    let mut own =
        services.datasets.list_without_attempts(user, None, limits::MAX_OWNED_DATASETS_PER_PAGE as u32).await?;
    let is_complete = own.len() < limits::MAX_OWNED_DATASETS_PER_PAGE;
    let folded_q = q.to_lowercase();
    own.retain(|dataset| {
        let description = dataset.metadata.description.as_deref().unwrap_or_default();
        [dataset.name.as_str(), description].iter().any(|text| text.to_lowercase().contains(&folded_q))
    });
    let all = own.len();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(all);
    let page_url =
        |from: usize| if from == 0 { base.to_url("/") } else { base.with_replaced(OWN_OFFSET_PARAM, from).to_url("/") };
    let mut cards = Vec::new();
    for dataset in own.into_iter().skip(from).take(OWN_DATASETS_PER_PAGE) {
        let lookup = services.lookups.find_by_id(dataset.id, VersionSelector::Active).await;
        let version = lookup.as_ref().ok().and_then(|lookup| lookup.version_owned_by(user));
        cards.push(DatasetCard::new(dataset, version.map(|version| (version.file.clone(), version.created_at)), now));
    }
    add_demo_examples(services, &mut cards).await?;
    Ok(OwnDatasets {
        cards,
        previous: (from > 0).then(|| page_url(from.saturating_sub(OWN_DATASETS_PER_PAGE))),
        next: (all - from > OWN_DATASETS_PER_PAGE).then(|| page_url(from + OWN_DATASETS_PER_PAGE)),
        number: format::group_thousands(all as u64) + if is_complete { "" } else { " or more" },
    })
}

async fn add_demo_examples(services: &Services, cards: &mut [DatasetCard]) -> Result<(), HttpError> {
    let datasets: Vec<&Dataset> = cards.iter().map(|card| &card.dataset).collect();
    for (index, examples) in services.demo.find_examples(&datasets).await? {
        cards[index].examples = examples;
    }
    Ok(())
}
