//! `…/explain`: the stages of a read as a chart, and its explanation as text, for the owner.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_http::params;
use strata_http::visit::{self, BaseUrl};
use strata_service::{Explanation, IgnoredParameter};
use strata_types::text::with_names;

use super::browse::{check_view, read_query};
use super::context::{Heading, Tab};
use super::form_handling::own;
use super::format;
use super::query::Query;
use super::safe_text::{SafeText, Sentence};
use super::urls::Place;
use super::visit::{PageResult, Shell, Visit, render};

/// The width of the chart in its units.
const WIDTH: u64 = 1_000;

/// The width of the shortest bar.
const MIN_WIDTH: u64 = 4;

/// Characters of the text. Plans repeat the request, whose length is limited.
const CHARACTERS: usize = 400_000;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    shell: Shell,
    heading: Heading,
    found: Explanation,
    stages: Vec<Bar>,
    /// The parts of each hint, and whether a link to the settings of the index follows them.
    hints: Vec<Vec<(Sentence, bool)>>,
    text: SafeText,
    api: String,
    back: String,
}

/// A stage, which begins at the end of the previous one.
struct Bar {
    name: &'static str,
    took: String,
    start: u64,
    width: u64,
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(explain(visit))).await
}

async fn explain(visit: &Visit) -> PageResult {
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
    let reads = &visit.services.reads;
    let found = Box::pin(reads.explain(Some(&user), place.dataset.id, place.selector, request, ignored)).await?;

    let own = Query::default().and("dataset_id", place.dataset.id.get()).and("version", place.selector);
    let own = if place.alt { own.and("alt", true) } else { own };
    let api = read.pairs().iter().fold(own, |query, (name, value)| query.and(name, value));
    let page = ExplainPage {
        shell: visit.shell(format!("Explain query, {}", view.dataset.name.as_str())),
        heading: Heading {
            version: Some(Heading::version(&view.dataset, found.version, found.alt)),
            ..Heading::for_dataset(visit, &view.dataset, &place, Tab::Data)
        },
        stages: bars(found.stages.iter().map(|stage| (stage.stage.about(), stage.duration_us)), found.total_us),
        hints: found.hints.iter().map(|hint| parts(hint).collect()).collect(),
        text: SafeText::new(&with_names(&found.to_string()), CHARACTERS),
        found,
        api: BaseUrl::of(&visit.head, &visit.services).url(&api.at("/dataset/explain")),
        back: query.at(&place.browse()),
    };
    render(StatusCode::OK, &page)
}

fn bars(stages: impl Iterator<Item = (&'static str, u64)> + Clone, total_us: u64) -> Vec<Bar> {
    let staged: u64 = stages.clone().map(|(_, duration_us)| duration_us).sum();
    let all = staged.max(total_us).max(1);
    // The time between the stages, so that the bars add up to the total.
    let stages = stages.chain((all > staged).then_some(("other", all - staged)));
    let mut from = 0;
    let bars = stages.map(|(name, duration_us)| {
        let share = |us: u64| (u128::from(us) * u128::from(WIDTH) / u128::from(all)) as u64;
        let width = share(duration_us).max(MIN_WIDTH);
        let start = share(from).min(WIDTH - width);
        from += duration_us;
        Bar { name, took: format::duration(duration_us), start, width }
    });
    bars.collect()
}

/// The parts of a hint, and whether a link to the settings of the index follows them.
fn parts(hint: &str) -> impl Iterator<Item = (Sentence, bool)> {
    const INDEX: &str = "list it in `index.always`";
    hint.split_inclusive(INDEX).map(|text| (Sentence::new(text), text.ends_with(INDEX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_bars_add_up_to_the_total() {
        let shown = |total_us: u64| -> Vec<(&'static str, u64, u64)> {
            let bars = bars([("open", 100), ("read", 300)].into_iter(), total_us);
            bars.iter().map(|bar| (bar.name, bar.start, bar.width)).collect()
        };
        assert_eq!(shown(800), [("open", 0, 125), ("read", 125, 375), ("other", 500, 500)]);
        assert_eq!(shown(400), [("open", 0, 250), ("read", 250, 750)]);
        assert_eq!(shown(0), shown(400));
    }

    #[test]
    fn index_hint_is_followed_by_a_link() {
        let hint = "To index `a.b`, list it in `index.always`, or not.";
        let told = parts(hint).flat_map(|(text, has_link)| {
            let text = text.to_string().replace("<bdi>", "").replace("</bdi>", "");
            [text].into_iter().chain(has_link.then(|| "->".to_owned()))
        });
        let told: Vec<String> = told.collect();
        assert_eq!(told, ["To index <code>a.b</code>, list it in <code>index.always</code>", "->", ", or not."]);
    }
}
