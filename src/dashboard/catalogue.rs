//! `/`: the public datasets that their owners list, after the visitor's own.

use askama::Template;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::Listing;
use strata_http::error::HttpError;
use strata_http::visit;
use strata_service::{Bucket, DemoExample, ManageError, Services};
use strata_types::dataset::Dataset;
use strata_types::ids::DatasetId;
use strata_types::limits;
use strata_types::user::User;
use strata_types::version::{VersionFile, VersionSelector};

use super::format::{self, Time};
use super::query::Query;
use super::safe_text::SafeText;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Shell, Visit, render};

const PAGE: usize = 50;

const OWN: usize = 50;

/// The parameter with the offset in the visitor's datasets.
const OWN_FROM: &str = "own";

/// Pages of listed datasets that are read for one page.
const LOOKS: usize = 20;

const TITLE_CHARACTERS: usize = 80;

/// Characters of the search text.
const CHARACTERS: usize = 200;

#[derive(Template)]
#[template(path = "catalogue.html")]
struct CataloguePage {
    shell: Shell,
    q: String,
    shown_q: SafeText,
    problem: Option<String>,
    own: Option<OwnDatasets>,
    of_others: bool,
    listed: Vec<Card>,
    first: Option<String>,
    next: Option<String>,
}

struct OwnDatasets {
    cards: Vec<Card>,
    previous: Option<String>,
    next: Option<String>,
    number: String,
}

struct Card {
    place: DatasetPlace,
    dataset: Dataset,
    /// The active file and its time.
    held: Option<(VersionFile, Time)>,
    examples: &'static [DemoExample],
}

impl Card {
    fn new(dataset: Dataset, held: Option<(VersionFile, DateTime<Utc>)>, now: DateTime<Utc>) -> Card {
        let held = held.map(|(file, made)| (file, Time::new(made, now)));
        Card { place: DatasetPlace::new(&dataset), dataset, held, examples: &[] }
    }

    fn href(&self) -> String {
        match self.dataset.latest_version.is_some() && !self.dataset.frozen {
            true => self.example(""),
            false => self.place.page("versions"),
        }
    }

    /// The page of the read of an example.
    fn example(&self, query: &str) -> String {
        let query = Query::parse(query.strip_prefix('?')).without(&["format", "pretty"]);
        query.at(&self.place.version(VersionSelector::Active, false).browse())
    }
}

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let services = visit.services.clone();
    let now = Utc::now();
    let query = visit.query(&["q", "after", OWN_FROM])?;
    let q = query.first("q").unwrap_or_default().trim().to_owned();
    let after = query.number("after")?.map(DatasetId::new);
    visit::count(&services, visit.visitor.client, Bucket::Public, &mut visit.headers).await?;

    let asked = (!q.is_empty()).then_some(q.as_str());
    let from = query.number(OWN_FROM)?.unwrap_or(0);
    let (status, problem, (found, next)) = match listed(visit, asked, after).await {
        Ok(found) => (StatusCode::OK, None, found),
        Err(error) => {
            let (status, problem) = visit.tell(error.into());
            (status, Some(problem), (Vec::new(), None))
        }
    };
    // A search text that is too long is not repeated.
    let base = if q.is_empty() || problem.is_some() { Query::default() } else { Query::default().and("q", &q) };
    let card = |Listing { dataset, active, refreshed_at }| Card::new(dataset, Some((active.file, refreshed_at)), now);
    let mut listed: Vec<Card> = found.into_iter().map(card).collect();
    add_examples(&services, &mut listed).await?;
    let own = match &visit.visitor.user {
        Some(user) if after.is_none() => Some(own(visit, user, &q, &base, from, now).await?),
        _ => None,
    };
    let title = match q.is_empty() {
        _ if problem.is_some() => "Error: Datasets".to_owned(),
        true => "Datasets".to_owned(),
        false => format!("Datasets: {}", SafeText::short(&q, TITLE_CHARACTERS).text),
    };
    let page = CataloguePage {
        shell: visit.shell(title),
        own,
        of_others: visit.visitor.user.is_some(),
        listed,
        first: after.map(|_| base.at("/")),
        next: next.map(|id| base.with("after", id).at("/")),
        shown_q: SafeText::short(&q, CHARACTERS),
        q: if problem.is_some() { q.chars().take(CHARACTERS).collect() } else { q },
        problem,
    };
    render(status, &page)
}

/// A page of the datasets that other users list, and the one after which the next page begins.
async fn listed(
    visit: &Visit,
    asked: Option<&str>,
    mut after: Option<DatasetId>,
) -> Result<(Vec<Listing>, Option<DatasetId>), ManageError> {
    let user = visit.visitor.user.as_ref();
    let mut found = Vec::new();
    // The visitor's own datasets, which are skipped, can fill whole pages.
    for _ in 0..LOOKS {
        let looked = visit.services.datasets.listed(visit.visitor.client, asked, after, PAGE as u32 + 1).await?;
        let is_last = looked.len() <= PAGE;
        for listing in looked.into_iter().take(PAGE) {
            if found.len() == PAGE {
                return Ok((found, after));
            }
            after = Some(listing.dataset.id);
            if user.is_none_or(|user| listing.dataset.owner != user.id) {
                found.push(listing);
            }
        }
        if is_last {
            return Ok((found, None));
        }
    }
    Ok((found, after))
}

/// A page of the visitor's datasets whose name or description contains a text.
async fn own(
    visit: &Visit,
    user: &User,
    q: &str,
    base: &Query,
    from: u64,
    now: DateTime<Utc>,
) -> Result<OwnDatasets, HttpError> {
    let services = &visit.services;
    // One look-up: an owner of more datasets finds the others with the API.
    let mut own = services.datasets.list_bare(user, None, limits::LISTED_DATASETS as u32).await?;
    let are_all = own.len() < limits::LISTED_DATASETS;
    let wanted = q.to_lowercase();
    own.retain(|dataset| {
        let description = dataset.about.description.as_deref().unwrap_or_default();
        [dataset.name.as_str(), description].iter().any(|text| text.to_lowercase().contains(&wanted))
    });
    let all = own.len();
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(all);
    let at = |from: usize| if from == 0 { base.at("/") } else { base.with(OWN_FROM, from).at("/") };
    let mut cards = Vec::new();
    for dataset in own.into_iter().skip(from).take(OWN) {
        let lookup = services.lookups.find_by_id(dataset.id, VersionSelector::Active).await;
        let version = lookup.as_ref().ok().and_then(|lookup| lookup.owned_version(user));
        cards.push(Card::new(dataset, version.map(|version| (version.file.clone(), version.created_at)), now));
    }
    add_examples(services, &mut cards).await?;
    Ok(OwnDatasets {
        cards,
        previous: (from > 0).then(|| at(from.saturating_sub(OWN))),
        next: (all - from > OWN).then(|| at(from + OWN)),
        number: format::grouped(all as u64) + if are_all { "" } else { " or more" },
    })
}

async fn add_examples(services: &Services, cards: &mut [Card]) -> Result<(), HttpError> {
    let datasets: Vec<&Dataset> = cards.iter().map(|card| &card.dataset).collect();
    for (at, examples) in services.demo.examples(&datasets).await? {
        cards[at].examples = examples;
    }
    Ok(())
}
