//! `…/diff`: compares two versions of a dataset, or a version with its alternate (edited copy). Only the owner sees the
//! page, whose query string has the parameters of `GET /dataset/diff`. [`version_changes`] shows the same results for a
//! version and its predecessor to everyone who can query the dataset.

mod path_summary;
mod records;
mod version_changes;

use askama::Template;
use axum::http::StatusCode;
use strata_diff::{ChangeType, DiffPage};
use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_http::page_support::{self, DiffCall};
use strata_service::{DiffError, DiffFormat, DiffSummary, ManageError, ReadError, VersionDiff};
use strata_types::limits::{MAX_PAGE_ENTITIES, MAX_PAGE_ENTITY_BYTES};
use strata_types::version::{VersionNumber, describe_versions};

use self::path_summary::PathSummary;
use self::records::DiffRecord;
pub(super) use self::version_changes::show_version_changes;
use super::browse::PageEntities;
use super::context::{DatasetHeading, DatasetTab, LINKING_VERSION_PARAM};
use super::entity_diff::{ComparisonBudget, EntityComparison, LeafEquality, ShownPaths};
use super::form_handling::load_owner_context;
use super::format;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::QueryParams;
use super::urls::{DatasetUrls, VersionUrls};

const RECORDS_PER_PAGE: u64 = 20;
const MAX_FIELD_CHARACTERS: usize = 200;
const VIEW_PARAM: &str = "view";
const WHOLE_VIEW: &str = "whole";
const VIEW_VALUES: [&str; 2] = ["changes", WHOLE_VIEW];

#[derive(Template)]
#[template(path = "diff.html")]
struct CompareVersionsPage {
    layout: PageLayout,
    heading: DatasetHeading,
    form: CompareForm,
    problem: Option<String>,
    results: Option<DiffResults>,
    /// The equivalent API call, as an absolute URL and as a path.
    api: String,
    api_href: String,
}

struct CompareForm {
    v1: String,
    v2: String,
    alt: bool,
    change_type: String,
}

struct DiffResults {
    title: String,
    totals: DiffSummary,
    names: [String; 2],
    total_differences: u64,
    change_type_filters: Vec<ChangeTypeFilter>,
    summary: Option<PathSummary>,
    summary_href: Option<String>,
    records: String,
    notes: Vec<String>,
    list: Vec<DiffRecordHtml>,
    pages: Vec<(&'static str, &'static str, String)>,
    shows_unchanged: bool,
    toggle_view_url: String,
}

/// The URL and the query of the page that shows a comparison.
struct ComparisonLinks<'a> {
    dataset: &'a DatasetUrls,
    page_url: String,
    query: &'a QueryParams,
}

impl ComparisonLinks<'_> {
    fn shows_unchanged(&self) -> bool {
        self.query.first(VIEW_PARAM) == Some(WHOLE_VIEW)
    }
}

struct ChangeTypeFilter {
    name: &'static str,
    number: String,
    href: String,
    current: bool,
}

struct DiffRecordHtml {
    change_label: &'static str,
    class: &'static str,
    old: Option<(String, String)>,
    new: Option<(String, String)>,
    changed_paths_text: Option<String>,
    comparison: EntityComparison,
}

pub(super) async fn show_diff(req: &mut PageRequest) -> PageResult {
    let uri = req.head.uri.clone();
    page_support::check_query_utf8(&req.head)?;
    let urls = DatasetUrls::parse(uri.path())?;
    let own = load_owner_context(req).await?;
    let dataset = &own.view.dataset;
    let raw_query = QueryParams::parse(uri.query());
    // Users can copy the query of an API call, so `dataset_id` and `format` are not reported as ignored parameters.
    let names: Vec<&str> = DiffCall::parameter_names().chain([VIEW_PARAM, LINKING_VERSION_PARAM]).collect();
    let displayed_names: Vec<&str> =
        names.iter().copied().filter(|name| !["dataset_id", "format"].contains(name)).collect();
    req.note_ignored_parameters(&raw_query.without(&["dataset_id", "format"]), &displayed_names);
    let pairs = raw_query.pairs().iter().filter(|(name, value)| !value.is_empty() && names.contains(&name.as_str()));
    let query: QueryParams = pairs.cloned().collect();
    let field = |name| query.first(name).unwrap_or_default().chars().take(MAX_FIELD_CHARACTERS).collect::<String>();
    // By default, the page compares the version whose page links here, or else the latest, with its predecessor.
    let latest = dataset.latest_version.map_or(0, VersionNumber::get);
    let compares_alternate = query.is_true("alt");
    let has_pair = latest > 1 || (compares_alternate && latest > 0);
    let uses_defaults = has_pair && query.first("v1").is_none() && query.first("v2").is_none();
    let linking_version = parse_linking_version(&query, latest);
    let [v1, v2] = propose_versions(*linking_version.as_ref().unwrap_or(&None), latest, compares_alternate);
    let field_or_default = |name, number: u64| if uses_defaults { number.to_string() } else { field(name) };
    let form = CompareForm {
        v1: field_or_default("v1", v1),
        v2: field_or_default("v2", v2),
        alt: compares_alternate,
        change_type: field("change_type"),
    };
    let load = async {
        linking_version?;
        let has_versions = query.first("v1").is_some() || query.first("v2").is_some();
        let call = build_diff_call(&urls, &query, (!has_versions).then_some([v1, v2]))?;
        if !has_versions {
            return Ok(None);
        }
        let diff = call.compare(&req.services, &req.require_user()?).await?;
        let links = ComparisonLinks { dataset: &urls, page_url: urls.page_url("diff"), query: &query };
        Box::pin(DiffResults::load(&diff, &call.page, &links)).await.map(Some)
    };
    let (status, problem, results) = match load.await {
        Ok(results) => (StatusCode::OK, None, results),
        Err(error) if is_form_error(&error) => {
            let (status, text) = req.log_and_render(error);
            (status, Some(text), None)
        }
        Err(error) => return Err(error),
    };
    let title = results.as_ref().map_or("Compare versions", |results: &DiffResults| &results.title);
    let api_href = diff_call_href(&urls, &query);
    let page = CompareVersionsPage {
        layout: req.layout(format!("{title}, {}", dataset.name.as_str())),
        heading: own.heading(req, DatasetTab::Compare),
        form,
        problem,
        results,
        api: req.absolute_url(&api_href),
        api_href,
    };
    render(status, &page)
}

fn propose_versions(version: Option<u64>, latest: u64, alt: bool) -> [u64; 2] {
    let version = version.filter(|number| (1..=latest).contains(number)).unwrap_or(latest);
    match version {
        version if alt => [version, version],
        0 | 1 => [1, 2],
        version => [version - 1, version],
    }
}

/// Parses the number of the version whose page links to the diff. Returns 404 if the version does not exist.
fn parse_linking_version(query: &QueryParams, latest: u64) -> Result<Option<u64>, HttpError> {
    let version = query.parse_number(LINKING_VERSION_PARAM)?;
    match version.filter(|number| !(1..=latest).contains(number)) {
        None => Ok(version),
        Some(number) => {
            let existing = describe_versions(Some(VersionNumber::new(latest)).filter(|_| latest > 0));
            let text = format!("There is no version {number}; {existing}.");
            Err(HttpError::InvalidRequest { status: StatusCode::NOT_FOUND, text })
        }
    }
}

/// Returns the API call that is equivalent to the page. If the query names no versions, the call compares `versions`.
fn build_diff_call(urls: &DatasetUrls, query: &QueryParams, versions: Option<[u64; 2]>) -> Result<DiffCall, HttpError> {
    query.parse_choice(VIEW_PARAM, &VIEW_VALUES)?;
    let mut parameters = vec![("dataset_id".to_owned(), urls.id.to_string())];
    let versions = ["v1", "v2"].into_iter().zip(versions.into_iter().flatten());
    parameters.extend(versions.map(|(name, number)| (name.to_owned(), number.max(1).to_string())));
    parameters.extend(diff_call_params(urls, query).pairs().iter().cloned());
    DiffCall::parse(parameters)
}

fn diff_call_params(urls: &DatasetUrls, query: &QueryParams) -> QueryParams {
    let params = query.without(&[VIEW_PARAM, LINKING_VERSION_PARAM]);
    // If `dataset_id` names another dataset, it stays, so that the API call fails because the parameter is repeated.
    if params.values("dataset_id").eq([urls.id.to_string()]) { params.without(&["dataset_id"]) } else { params }
}

/// Returns the path of the API call that returns the records of the page.
fn diff_call_href(urls: &DatasetUrls, query: &QueryParams) -> String {
    let call = diff_call_params(urls, query).without(&["format"]);
    let call = if call.first("limit").is_some() { call } else { call.with_added("limit", RECORDS_PER_PAGE) };
    format!("/dataset/diff?{}&{call}", QueryParams::default().with_added("dataset_id", urls.id))
}

fn is_form_error(error: &HttpError) -> bool {
    use HttpError::{Call, Diff, InvalidRequest};
    matches!(
        error,
        Call(_)
            | InvalidRequest { .. }
            | Diff(DiffError::Manage(ManageError::UnknownVersion { .. } | ManageError::NoVersionYet))
            | Diff(DiffError::Read(ReadError::AltNotFound(_)))
    )
}

impl DiffResults {
    async fn load(
        diff: &VersionDiff,
        requested: &DiffPage,
        links: &ComparisonLinks<'_>,
    ) -> Result<DiffResults, HttpError> {
        let ComparisonLinks { dataset: urls, page_url: url, query } = links;
        let shows_unchanged = links.shows_unchanged();
        let requested_limit = requested.limit.unwrap_or(RECORDS_PER_PAGE);
        let page = DiffPage { limit: Some(requested_limit.min(MAX_PAGE_ENTITIES as u64)), ..*requested };
        let response =
            diff.page_response(&page, DiffFormat::Jsonl, ContentCoding::Identity).await.map_err(DiffError::from)?;
        let lines = PageEntities::read_from_body(response.body, MAX_PAGE_ENTITY_BYTES).await?;

        let [v1, v2] = diff.versions;
        let names = [format!("Version {v1}"), format!("Version {v2}{}", if diff.alt { ", alternate" } else { "" })];
        let version_urls = [urls.for_version_number(v1), VersionUrls { alt: diff.alt, ..urls.for_version_number(v2) }];
        let mut budget = ComparisonBudget::for_page();
        let paths = if shows_unchanged { ShownPaths::All } else { ShownPaths::Changed };
        let mut list = Vec::new();
        for (index, record) in lines.iter().filter_map(DiffRecord::parse).enumerate() {
            list.push(build_record_html(
                &record,
                page.offset + index as u64,
                &names,
                &version_urls,
                paths,
                &mut budget,
            ));
        }

        let count = diff.page_change_count(&page);
        let shown = list.len() as u64;
        let mut notes = Vec::new();
        if requested_limit > MAX_PAGE_ENTITIES as u64 {
            notes.push(format!(
                "A page shows at most {MAX_PAGE_ENTITIES} records. The API call below returns up to {}.",
                format::truncate_digits(query.first("limit").unwrap_or_default())
            ));
        }
        if shown < count {
            let fitting = format::group_thousands(shown);
            let all = format::pluralize(count, "record", "records");
            notes.push(format!(
                "Only {fitting} of {all} fit on this page. The next page continues where this one ends."
            ));
        }
        let total = diff.change_count(page.change_type);
        if let Some(last) = total.checked_sub(1).filter(|last| page.offset > *last) {
            let [number, last] = [page.offset, last].map(format::group_thousands);
            notes.push(format!("There is no record {number}. The last record is {last}."));
        }
        if shown == 0 && count > 0 {
            notes.push("The first record is too large for this page. The API call below returns it.".to_owned());
        }
        let next = page.offset.saturating_add(shown.max(count.min(1)));
        let page_url = |offset: u64| {
            let query = if offset == 0 { query.without(&["offset"]) } else { query.with_replaced("offset", offset) };
            query.to_url(url)
        };
        let step = page.limit.unwrap_or(RECORDS_PER_PAGE).max(1);
        let mut pages = Vec::new();
        if page.offset > 0 {
            pages.push(("First", "", page_url(0)));
            pages.push(("Previous", "prev", page_url(page.offset.min(total).saturating_sub(step))));
        }
        if next < total && page.limit != Some(0) {
            pages.push(("Next", "next", page_url(next)));
            pages.push(("Last", "", page_url((total - 1) / step * step)));
        }
        let has_summary = page.offset == 0 && matches!(page.change_type, None | Some(ChangeType::Modified));
        let has_summary_link = !has_summary && diff.change_count(Some(ChangeType::Modified)) > 0;
        let toggled =
            if shows_unchanged { query.without(&[VIEW_PARAM]) } else { query.with_replaced(VIEW_PARAM, WHOLE_VIEW) };
        Ok(DiffResults {
            title: format!("{} and {}", names[0], names[1].to_lowercase()),
            totals: diff.summary(),
            names,
            total_differences: diff.change_count(None),
            change_type_filters: build_change_type_filters(diff, &page, links),
            summary: if has_summary { path_summary::summarize_paths(diff).await? } else { None },
            summary_href: has_summary_link.then(|| query.without(&["offset", "change_type"]).to_url(url)),
            records: format::pluralize(total, "record", "records"),
            notes,
            list,
            pages,
            shows_unchanged,
            toggle_view_url: toggled.to_url(url),
        })
    }
}

fn change_type_label(change_type: ChangeType) -> &'static str {
    match change_type {
        ChangeType::Added => "Added",
        ChangeType::Subtracted => "Removed",
        ChangeType::Modified => "Changed",
    }
}

fn build_change_type_filters(
    diff: &VersionDiff,
    page: &DiffPage,
    links: &ComparisonLinks<'_>,
) -> Vec<ChangeTypeFilter> {
    let rest = links.query.without(&["offset", "change_type"]);
    let types = [None, Some(ChangeType::Modified), Some(ChangeType::Subtracted), Some(ChangeType::Added)];
    let kind = |change_type: Option<ChangeType>| ChangeTypeFilter {
        name: change_type.map_or("All", change_type_label),
        number: format::group_thousands(diff.change_count(change_type)),
        href: rest.clone().with_optional("change_type", change_type.map(ChangeType::name)).to_url(&links.page_url),
        current: page.change_type == change_type,
    };
    types.into_iter().map(kind).collect()
}

fn build_record_html(
    record: &DiffRecord<'_>,
    number: u64,
    names: &[String; 2],
    version_urls: &[VersionUrls; 2],
    paths: ShownPaths,
    budget: &mut ComparisonBudget,
) -> DiffRecordHtml {
    let [old, new] = [0, 1].map(|side: usize| {
        record.positions[side].map(|position| {
            let text = format!("{} of {}", format::group_thousands(position), names[side].to_lowercase());
            (text, version_urls[side].entity_url(position))
        })
    });
    let change_label = change_type_label(record.change_type);
    let caption = format!("{change_label}: record {}", format::group_thousands(number));
    let titles = names.each_ref().map(String::as_str);
    let comparison = EntityComparison::new(caption, titles, record.entities, LeafEquality::Value, paths, budget);
    let is_modified = record.change_type == ChangeType::Modified;
    let changed_paths_text =
        is_modified.then(|| format::pluralize(comparison.changed_count as u64, "path differs", "paths differ"));
    DiffRecordHtml { change_label, class: record.change_type.name(), old, new, changed_paths_text, comparison }
}
