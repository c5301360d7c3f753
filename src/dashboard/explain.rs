//! `…/explain`: what the service does for a read, as a picture of its stages and as text. For the owner alone, as the
//! operation is.

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::browse::read_query;
use super::figures;
use super::opened::{Heading, Tab};
use super::place::Place;
use super::query::Query;
use super::shown::Shown;
use super::visit::{Reply, Shell, Visit, render};
use crate::http::error::HttpError;
use crate::http::params;
use crate::http::visit::BaseUrl;
use crate::service::{App, Explanation, IgnoredParameter, ReadError};

/// The width of the picture in its own units.
const WIDTH: u64 = 1_000;

/// The width of the shortest bar.
const LEAST: u64 = 4;

/// Characters of the text. Plans repeat the request, which is bounded.
const CHARACTERS: usize = 400_000;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    shell: Shell,
    heading: Heading,
    /// What was found, and how long that took.
    summary: String,
    stages: Vec<Bar>,
    facts: Vec<(&'static str, String)>,
    hints: Vec<Shown>,
    text: Shown,
    /// The call that gives the same.
    api: String,
    back: String,
}

/// A stage: it begins where the one before ended.
struct Bar {
    name: &'static str,
    took: String,
    start: u64,
    width: u64,
}

/// The handler.
pub(super) async fn show(State(app): State<App>, head: Parts) -> Response {
    let visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = Box::pin(explain(&visit)).await;
    visit.answer(outcome).await
}

async fn explain(visit: &Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let user = visit.user()?;
    let view = visit.app.datasets().view(&user, place.dataset.id).await?;
    if view.dataset.name.slug() != place.dataset.slug {
        return Err(ReadError::DatasetNotFound.into());
    }
    let query = Query::parse(uri.query());
    let read = read_query(&query);
    let (mut request, unknown) = params::parse(Some(&read.to_string()))?;
    request.alt |= place.alt;
    let ignored: Vec<IgnoredParameter> = unknown.into_iter().map(IgnoredParameter::from).collect();
    let explains = visit.app.explains();
    let found = Box::pin(explains.explain(&user, place.dataset.id, place.selector, request, ignored)).await?;

    let own = Query::default().and("dataset_id", place.dataset.id.get()).and("version", place.selector);
    let own = if place.alt { own.and("alt", true) } else { own };
    let api = read.pairs().iter().fold(own, |query, (name, value)| query.and(name, value));
    let page = ExplainPage {
        shell: visit.shell(format!("Why this long, {}", view.dataset.name.as_str())),
        heading: Heading {
            version: Some(format!("v{}{}", found.version, if found.alt { ", alternate" } else { "" })),
            ..Heading::around(visit, &view.dataset, &place, Tab::Data)
        },
        summary: format!(
            "{} for {}",
            figures::duration(found.total_us),
            figures::counted(found.answer.total, "entity", "entities")
        ),
        stages: bars(&found),
        facts: facts(&found),
        hints: found.hints.iter().map(|hint| Shown::whole(hint)).collect(),
        text: Shown::new(&found.to_string(), CHARACTERS),
        api: BaseUrl::of(&visit.head, &visit.app).url(&api.at("/dataset/explain")),
        back: query.at(&place.browse()),
    };
    render(StatusCode::OK, &page)
}

fn bars(found: &Explanation) -> Vec<Bar> {
    let all: u64 = found.stages.iter().map(|stage| stage.duration_us).sum::<u64>().max(1);
    let mut from = 0;
    let bar = |stage: &crate::service::StageTime| {
        let share = |us: u64| (u128::from(us) * u128::from(WIDTH) / u128::from(all)) as u64;
        let (start, width) = (share(from), share(stage.duration_us).max(LEAST));
        from += stage.duration_us;
        let took = figures::duration(stage.duration_us);
        Bar { name: stage.stage.about(), took, start: start.min(WIDTH - width), width }
    };
    found.stages.iter().map(bar).collect()
}

fn facts(found: &Explanation) -> Vec<(&'static str, String)> {
    let documents = &found.documents;
    let read = documents.pages.saturating_sub(documents.pages_not_read);
    let mut facts = vec![
        ("The version holds", figures::counted(found.entity_count, "entity", "entities")),
        ("Work, estimated before", figures::size(found.work.work_bytes)),
        ("Pages of documents read", format!("{} of {}", figures::grouped(read), figures::grouped(documents.pages))),
        ("From the store", figures::size(found.parts.request_bytes)),
        ("The answer", figures::size(found.answer.body_bytes)),
    ];
    if let Some(scan) = &found.scan {
        let groups = &scan.row_groups;
        let scanned = format!("{} of {}", figures::grouped(groups.scanned), figures::grouped(groups.total));
        facts.insert(1, ("Row groups scanned", scanned));
    }
    facts
}
