//! `…/{version}/changes`: what changed from the previous version to this one, for everyone who can query the dataset.
//!
//! The page shows the results of a comparison ([`DiffResults`]) and has the same parameters, except for the versions
//! and the number of records. It counts as a read of the version.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use strata_types::version::VersionNumber;

use super::{ComparisonLinks, DiffResults, VIEW_PARAM, build_diff_call};
use crate::browse::with_version_number;
use crate::context::{DatasetHeading, DatasetTab, find_other_version, load_version_context};
use crate::page_request::{PageLayout, PageRequest, PageResult, render};
use crate::query_params::QueryParams;
use crate::unavailable;
use crate::urls::VersionUrls;

const PARAMS: [&str; 3] = ["change_type", "offset", VIEW_PARAM];

#[derive(Template)]
#[template(path = "changes.html")]
struct VersionChangesPage {
    layout: PageLayout,
    heading: DatasetHeading,
    /// `None` for the first version.
    results: Option<DiffResults>,
    /// The API call that returns the changes as edits, and its path if a browser can open it.
    api: String,
    api_href: Option<String>,
}

pub(crate) async fn show_version_changes(req: PageRequest) -> Response {
    req.respond_on_worker(|req| {
        Box::pin(unavailable::run_or_show_unavailable(req, DatasetTab::Changes, render_version_changes))
    })
    .await
}

async fn render_version_changes(req: &mut PageRequest) -> PageResult {
    let (urls, _) = VersionUrls::parse(req.head.uri.path())?;
    let query = req.parse_query(&PARAMS)?;
    let pairs = query.pairs().iter().filter(|(name, value)| !value.is_empty() && PARAMS.contains(&name.as_str()));
    let query: QueryParams = pairs.cloned().collect();
    let context = load_version_context(req, &urls, false).await?;
    let version = context.version.number;
    let previous = version.get().checked_sub(1).filter(|number| *number > 0).map(VersionNumber::new);
    // Links on the page use the version number, because another version can become active.
    let urls = with_version_number(&urls, version);
    let results = match previous {
        Some(previous) => {
            let call = build_diff_call(&urls.dataset, &query, Some([previous, version].map(VersionNumber::get)))?;
            let previous = find_other_version(req, &urls, previous).await?;
            let targets = [&previous, &context.authorized_target];
            let diff = req.services.diffs.compare_targets(&context.dataset, targets).await?;
            let links = ComparisonLinks { dataset: &urls.dataset, page_url: urls.changes_url(), query: &query };
            Some(Box::pin(DiffResults::load(&diff, &call.page, &links)).await?)
        }
        None => None,
    };
    let since = QueryParams::default().with_optional("since", previous.map(|previous| format!("v{previous}")));
    let api = since.to_url(&urls.changes_path());
    let page = VersionChangesPage {
        layout: req.layout(format!("Changes in {}", context.title())),
        heading: DatasetHeading::new(req, &context, &urls, DatasetTab::Changes),
        results,
        api: req.absolute_url(&api),
        api_href: (!context.dataset.is_private()).then_some(api),
    };
    render(StatusCode::OK, &page)
}
