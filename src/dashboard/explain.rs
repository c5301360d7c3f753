//! `…/explain`: what the service does for a read, as a picture of its stages and as text. For the owner alone, as the
//! operation is.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_http::error::HttpError;
use strata_http::params;
use strata_http::visit::{self, BaseUrl};
use strata_service::{Explanation, IgnoredParameter};
use strata_types::text::with_names;

use super::acting::own;
use super::browse::{check_view, read_query};
use super::figures;
use super::opened::{Heading, Tab};
use super::place::Place;
use super::query::Query;
use super::shown::{Sentence, Shown};
use super::visit::{Reply, Shell, Visit, render};

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
    /// The parts of each hint, and whether a link to the settings of the index follows them.
    hints: Vec<Vec<(Sentence, bool)>>,
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

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(explain(visit))).await
}

async fn explain(visit: &Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let view = own(visit).await?.view;
    let user = visit.user()?;
    let query = Query::parse(uri.query());
    visit::check_utf8(&visit.head)?;
    check_view(&query)?;
    let read = read_query(&query);
    let (mut request, unknown) = params::parse(Some(&read.to_string()))?;
    request.alt |= place.alt;
    let ignored: Vec<IgnoredParameter> = unknown.into_iter().map(IgnoredParameter::from).collect();
    let reads = visit.app.reads();
    let found = Box::pin(reads.explain(Some(&user), place.dataset.id, place.selector, request, ignored)).await?;

    let own = Query::default().and("dataset_id", place.dataset.id.get()).and("version", place.selector);
    let own = if place.alt { own.and("alt", true) } else { own };
    let api = read.pairs().iter().fold(own, |query, (name, value)| query.and(name, value));
    let page = ExplainPage {
        shell: visit.shell(format!("Explain query, {}", view.dataset.name.as_str())),
        heading: Heading {
            version: Some(Heading::version(&view.dataset, found.version, found.alt)),
            ..Heading::around(visit, &view.dataset, &place, Tab::Data)
        },
        summary: format!(
            "{} for {}",
            figures::duration(found.total_us),
            figures::counted(found.answer.total, "entity", "entities")
        ),
        stages: bars(found.stages.iter().map(|stage| (stage.stage.about(), stage.duration_us)), found.total_us),
        facts: facts(&found),
        hints: found.hints.iter().map(|hint| parts(hint).collect()).collect(),
        text: Shown::new(&with_names(&found.to_string()), CHARACTERS),
        api: BaseUrl::of(&visit.head, &visit.app).url(&api.at("/dataset/explain")),
        back: query.at(&place.browse()),
    };
    render(StatusCode::OK, &page)
}

fn bars(stages: impl Iterator<Item = (&'static str, u64)> + Clone, total_us: u64) -> Vec<Bar> {
    let staged: u64 = stages.clone().map(|(_, duration_us)| duration_us).sum();
    let all = staged.max(total_us).max(1);
    // What lies between the stages, so that the rows make up the total.
    let stages = stages.chain((all > staged).then_some(("other", all - staged)));
    let mut from = 0;
    let bars = stages.map(|(name, duration_us)| {
        let share = |us: u64| (u128::from(us) * u128::from(WIDTH) / u128::from(all)) as u64;
        let width = share(duration_us).max(LEAST);
        let start = share(from).min(WIDTH - width);
        from += duration_us;
        Bar { name, took: figures::duration(duration_us), start, width }
    });
    bars.collect()
}

/// A hint with its code told apart, and with a link to the settings of the index behind the advice to change them.
fn parts(hint: &str) -> impl Iterator<Item = (Sentence, bool)> {
    const INDEX: &str = "list it in `index.always`";
    hint.split_inclusive(INDEX).map(|text| (Sentence::new(text), text.ends_with(INDEX)))
}

fn facts(found: &Explanation) -> Vec<(&'static str, String)> {
    let documents = &found.documents;
    let read = documents.pages.saturating_sub(documents.pages_not_read);
    let mut facts = vec![
        ("Entities in the version", figures::counted(found.entity_count, "entity", "entities")),
        ("Estimated work", figures::size(found.work.work_bytes)),
        ("Document pages read", format!("{} of {}", figures::grouped(read), figures::grouped(documents.pages))),
        ("Read from the store", figures::size(found.parts.request_bytes)),
        ("Response", figures::size(found.answer.body_bytes)),
    ];
    if let Some(scan) = &found.scan {
        let groups = &scan.row_groups;
        let scanned = format!("{} of {}", figures::grouped(groups.scanned), figures::grouped(groups.total));
        facts.insert(1, ("Row groups scanned", scanned));
    }
    if let Some(distributed) = found.distributed.as_ref().filter(|distributed| distributed.fallback.is_none()) {
        let nodes = distributed.nodes.len();
        facts.insert(1, ("Scanning nodes", nodes.to_string()));
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bars_make_up_the_total() {
        let shown = |total_us: u64| -> Vec<(&'static str, u64, u64)> {
            let bars = bars([("open", 100), ("read", 300)].into_iter(), total_us);
            bars.iter().map(|bar| (bar.name, bar.start, bar.width)).collect()
        };
        assert_eq!(shown(800), [("open", 0, 125), ("read", 125, 375), ("other", 500, 500)]);
        assert_eq!(shown(400), [("open", 0, 250), ("read", 250, 750)]);
        assert_eq!(shown(0), shown(400));
    }

    #[test]
    fn a_hint_has_a_link() {
        let hint = "To index `a.b`, list it in `index.always`, or not.";
        let told = parts(hint).flat_map(|(text, has_link)| {
            let text = text.to_string().replace("<bdi>", "").replace("</bdi>", "");
            [text].into_iter().chain(has_link.then(|| "->".to_owned()))
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told, ["To index <code>a.b</code>, list it in <code>index.always</code>", "->", ", or not."]);
    }
}
