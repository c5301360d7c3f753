//! `…/explain`: the stages of a read as a chart and its explanation as text; only for the owner.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_http::page_support;
use strata_http::params;
use strata_service::{IgnoredParameter, ReadExplanation};
use strata_types::invisible_text::format_escapes_as_code_points;

use super::browse::{check_view_param, to_read_query};
use super::context::{DatasetHeading, DatasetTab};
use super::form_handling::load_owner_context;
use super::format;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::QueryParams;
use super::safe_text::{InlineCodeText, SafeText};
use super::urls::VersionUrls;

const CHART_WIDTH: u64 = 1_000;
const MIN_BAR_WIDTH: u64 = 4;

/// Max characters of an explanation. None is that long, because it mainly repeats a request, whose length is limited.
const MAX_EXPLANATION_CHARACTERS: usize = 400_000;

#[derive(Template)]
#[template(path = "explain.html")]
struct ExplainPage {
    layout: PageLayout,
    heading: DatasetHeading,
    explanation: ReadExplanation,
    stages: Vec<StageBar>,
    /// Each hint, split into parts. The flag is true if a link to the index settings follows the part.
    hints: Vec<Vec<(InlineCodeText, bool)>>,
    text: SafeText,
    api: String,
    back: String,
}

struct StageBar {
    name: &'static str,
    took: String,
    start: u64,
    width: u64,
}

pub(super) async fn show_explanation(req: PageRequest) -> Response {
    req.respond_on_worker(|req| Box::pin(render_explain(req))).await
}

async fn render_explain(req: &PageRequest) -> PageResult {
    let uri = req.head.uri.clone();
    let (urls, _) = VersionUrls::parse(uri.path())?;
    let view = load_owner_context(req).await?.view;
    let user = req.require_user()?;
    let query = QueryParams::parse(uri.query());
    page_support::check_query_utf8(&req.head)?;
    check_view_param(&query)?;
    let read = to_read_query(&query);
    let (mut request, unknown) = params::parse_query(Some(&read.to_string()))?;
    request.alt |= urls.alt;
    let ignored: Vec<IgnoredParameter> = unknown.into_iter().map(IgnoredParameter::from).collect();
    let reads = &req.services.reads;
    let explanation = Box::pin(reads.explain(Some(&user), urls.dataset.id, urls.selector, request, ignored)).await?;

    let own =
        QueryParams::default().with_added("dataset_id", urls.dataset.id.get()).with_added("version", urls.selector);
    let own = if urls.alt { own.with_added("alt", true) } else { own };
    let api = read.pairs().iter().fold(own, |query, (name, value)| query.with_added(name, value));
    let page = ExplainPage {
        layout: req.layout(format!("Explain query, {}", view.dataset.name.as_str())),
        heading: DatasetHeading {
            version: Some(DatasetHeading::version_label(&view.dataset, explanation.version, explanation.alt)),
            ..DatasetHeading::for_dataset(req, &view.dataset, &urls, DatasetTab::Data)
        },
        stages: build_stage_bars(
            explanation.stages.iter().map(|stage| (stage.stage.description(), stage.duration_us)),
            explanation.total_us,
        ),
        hints: explanation.hints.iter().map(|hint| split_hint_at_links(hint).collect()).collect(),
        text: SafeText::new(&format_escapes_as_code_points(&explanation.to_string()), MAX_EXPLANATION_CHARACTERS),
        explanation,
        api: req.absolute_url(&api.to_url("/dataset/explain")),
        back: query.to_url(&urls.browse_url()),
    };
    render(StatusCode::OK, &page)
}

fn build_stage_bars(stages: impl Iterator<Item = (&'static str, u64)> + Clone, total_us: u64) -> Vec<StageBar> {
    let staged: u64 = stages.clone().map(|(_, duration_us)| duration_us).sum();
    let all = staged.max(total_us).max(1);
    let mut from = 0;
    let bars = stages.chain((all > staged).then_some(("other", all - staged))).map(|(name, duration_us)| {
        let share = |us: u64| (u128::from(us) * u128::from(CHART_WIDTH) / u128::from(all)) as u64;
        let width = share(duration_us).max(MIN_BAR_WIDTH);
        let start = share(from).min(CHART_WIDTH - width);
        from += duration_us;
        StageBar { name, took: format::duration_us(duration_us), start, width }
    });
    bars.collect()
}

/// Splits a hint into parts, each of which ends where the page inserts a link to the index settings.
fn split_hint_at_links(hint: &str) -> impl Iterator<Item = (InlineCodeText, bool)> {
    const INDEX_HINT: &str = "list it in `index.always`";
    hint.split_inclusive(INDEX_HINT).map(|text| (InlineCodeText::new(text), text.ends_with(INDEX_HINT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stage_bars_add_up_to_the_total() {
        let bars_for = |total_us: u64| -> Vec<(&'static str, u64, u64)> {
            let bars = build_stage_bars([("open", 100), ("read", 300)].into_iter(), total_us);
            bars.iter().map(|bar| (bar.name, bar.start, bar.width)).collect()
        };
        assert_eq!(bars_for(800), [("open", 0, 125), ("read", 125, 375), ("other", 500, 500)]);
        assert_eq!(bars_for(400), [("open", 0, 250), ("read", 250, 750)]);
        assert_eq!(bars_for(0), bars_for(400));
    }

    #[test]
    fn index_hint_is_followed_by_a_link() {
        let hint = "To index `a.b`, list it in `index.always`, or not.";
        let parts = split_hint_at_links(hint).flat_map(|(text, has_link)| {
            let text = text.to_string().replace("<bdi>", "").replace("</bdi>", "");
            [text].into_iter().chain(has_link.then(|| "->".to_owned()))
        });
        let parts: Vec<String> = parts.collect();
        assert_eq!(parts, ["To index <code>a.b</code>, list it in <code>index.always</code>", "->", ", or not."]);
    }
}
