//! `/ui/{dataset_id}/{name_slug}/{version}/[alt/]`: the entities of a version.
//!
//! The page has the query string of the read endpoint. It shows the response of that read, but at most
//! `MAX_PAGE_ENTITIES` entities and `MAX_PAGE_ENTITY_BYTES` bytes, and [`ENTITIES_PER_PAGE`] entities by default. The
//! page shows the error for an invalid parameter next to its form field.

mod cells;
mod column_widths;
mod conditions;
mod entity_table;
mod field_tree;
mod form;
mod hints;
mod links;
mod page_entities;
mod results;
mod snippets;

use askama::Template;
use axum::http::{HeaderName, StatusCode};
use axum::response::Response;
use strata_http::error::HttpError;
use strata_http::page_support::{self, BaseUrl};
use strata_http::params::{self, ParameterError};
use strata_http::read;
use strata_service::AuthorizedTarget;
use strata_types::read_request::ResponseFormat;
use strata_types::version::{VersionNumber, VersionSelector};

use super::context::{DatasetHeading, DatasetTab, load_version_context};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::unavailable;
use super::urls::{DatasetUrls, VersionUrls};
use cells::TableCell;
pub(super) use cells::summarize_container;
use conditions::{ActiveQuery, CONDITION_OPERATORS};
use field_tree::FieldTree;
pub(super) use field_tree::{describe_types, filter_value_text as value_text};
use form::BrowseForm;
use hints::QueryHint;
use links::{ADD_OPERATOR_PARAM, ADD_PATH_PARAM, ADD_VALUE_PARAM, BrowseLinks};
pub(super) use page_entities::PageEntities;
use results::PageResults;
use snippets::QuerySnippet;

pub(super) const ENTITIES_PER_PAGE: u64 = 50;

/// Parameters of the page that the read endpoint does not have.
const VIEW_PARAM: &str = "view";
const VIEW_VALUES: [&str; 2] = ["table", "json"];
const COLUMNS_PARAM: &str = "columns";
const PAGE_ONLY_PARAMS: [&str; 6] =
    [VIEW_PARAM, COLUMNS_PARAM, form::SUBMITTED_PARAM, ADD_PATH_PARAM, ADD_OPERATOR_PARAM, ADD_VALUE_PARAM];

pub(super) async fn redirect_to_active_version(req: &mut PageRequest) -> PageResult {
    let urls = DatasetUrls::parse(req.head.uri.path())?;
    let query = QueryParams::parse(req.head.uri.query());
    Ok(PageResponse::SeeOther(query.to_url(&urls.active_version().browse_url())))
}

pub(super) async fn show_entities(req: PageRequest) -> Response {
    req.respond_on_worker(|req| Box::pin(unavailable::run_or_show_unavailable(req, DatasetTab::Data, render_entities)))
        .await
}

#[derive(Template)]
#[template(path = "browse.html")]
struct BrowsePage {
    layout: PageLayout,
    heading: DatasetHeading,
    form: BrowseForm,
    fields: Option<FieldTree>,
    active_query: ActiveQuery,
    hints: Vec<QueryHint>,
    results: Option<PageResults>,
    /// The API call that is equivalent to the page, and the URL of the call if a browser can open it.
    api: String,
    api_href: Option<String>,
    as_table: String,
    as_json: String,
    downloads: Vec<DownloadLink>,
    all_downloads: Vec<DownloadLink>,
    is_limited: bool,
    snippets: Vec<QuerySnippet>,
    explain: Option<String>,
    all_columns: String,
}

struct DownloadLink {
    format: &'static str,
    href: String,
    file_name: String,
}

async fn render_entities(req: &mut PageRequest) -> PageResult {
    let uri = req.head.uri.clone();
    let (urls, _) = VersionUrls::parse(uri.path())?;
    let query = QueryParams::parse(uri.query());
    let page_params = check_page_params(&query);
    if let (Ok(()), Some(clean)) = (&page_params, form::clean_submitted_query(&query)) {
        return Ok(PageResponse::SeeOther(clean.to_url(&urls.browse_url())));
    }
    let parsed = params::parse_query_except(uri.query(), &PAGE_ONLY_PARAMS);
    if let Err(error @ ParameterError::QueryTooLong { .. }) = parsed {
        return Err(error.into());
    }
    let alt = urls.alt || parsed.as_ref().is_ok_and(|(request, _)| request.alt);
    let urls = VersionUrls { alt, ..urls };
    let draft_condition = form::DraftCondition::from_query(&query);
    let context = load_version_context(req, &urls, alt).await?;
    let in_json = query.first(VIEW_PARAM) == Some("json");
    let query = query.without(&PAGE_ONLY_PARAMS[2..]);
    let links = BrowseLinks::new(&urls, query, uri.query());

    let mut hints = Vec::new();
    let refused = match (&page_params, &parsed) {
        (Err((name, _)), _) => Some((*name, String::new())),
        (_, Err(ParameterError::InvalidText { name, value, .. } | ParameterError::SpecifiedTwice { name, value })) => {
            Some((*name, value.clone()))
        }
        _ => None,
    };
    let shared_req: &PageRequest = req;
    let load = async {
        page_params.map_err(|(_, error)| error)?;
        let (request, unknown) = parsed?;
        hints.extend(unknown.iter().map(|name| QueryHint::for_parameter(name, &links)));
        results::load_results(shared_req, &context, &links, request, in_json, &mut hints).await
    };
    let (outcome, fields) =
        tokio::join!(Box::pin(load), Box::pin(field_tree::load_field_tree(shared_req, &context, &links)));
    let (status, results, problem) = match outcome {
        Ok(results) => (StatusCode::OK, Some(results), None),
        Err(error) => {
            let (status, text) = req.log_and_render(error);
            (status, None, Some(text))
        }
    };
    let private = context.dataset.is_private();
    let read = to_read_query(&links.query);
    // Code snippets and downloads return all matches unless the user chose a limit.
    let is_limited = links.query.first("limit").is_some();
    let exported = if is_limited { read.clone() } else { read.without(&["limit", "offset"]) };
    let base = BaseUrl::from_request_head(&req.head, &req.services);
    let api = read.to_url(&urls.api_path());
    let mut heading =
        DatasetHeading::new(req, &context, &urls, DatasetTab::Data).with_refresh_status(req, &context.dataset).await;
    let portable_query = links.query.without(&["offset", "alt"]);
    let version_links = heading.active_version_link.iter_mut().map(|(_, href)| href);
    let counterpart_links = heading.counterpart_link.iter_mut().map(|(_, href)| href);
    version_links.chain(counterpart_links).for_each(|href| *href = portable_query.to_url(href));
    let downloaded = exported.without(&["count", "format", "typed", "pretty", "total"]);
    let all_downloaded = downloaded.without(&["limit", "offset"]);
    let download = if private { urls.page_url("download") } else { urls.api_path() };
    let download_link = |query: &QueryParams, format: ResponseFormat| {
        let query = query.clone().with_added("format", format.name());
        let query = if format == ResponseFormat::Parquet { query.with_added("typed", true) } else { query };
        let AuthorizedTarget { name_slug, version, variant, .. } = &context.authorized_target;
        let file_name = read::file_name(name_slug, *version, *variant, format);
        DownloadLink { format: format.name(), href: query.to_url(&download), file_name }
    };
    let active_query = conditions::describe_active_query(&links);
    let error = if problem.is_some() { "Error: " } else { "" };
    let title = conditions::query_title(&links, &active_query);
    let separator = if title.is_empty() { "" } else { ": " };
    let paths = fields.as_ref().map(|fields| fields.path_names.clone()).unwrap_or_default();
    let page = BrowsePage {
        layout: req.layout(format!("{error}{}{separator}{title}", context.title())),
        form: BrowseForm::new(&links, paths, draft_condition, problem, refused.as_ref()),
        active_query,
        fields,
        hints,
        results,
        api: base.absolute_url(&api),
        api_href: (!private).then_some(api),
        as_table: links.page_url(&links.query.without(&[VIEW_PARAM])),
        as_json: links.page_url(&links.query.with_replaced(VIEW_PARAM, "json")),
        downloads: ResponseFormat::ALL.map(|format| download_link(&downloaded, format)).into(),
        all_downloads: ResponseFormat::ALL.map(|format| download_link(&all_downloaded, format)).into(),
        is_limited,
        snippets: snippets::to_snippets(&base, &urls, &exported, private),
        explain: heading.is_owner.then(|| read.to_url(&urls.page_url("explain"))),
        all_columns: links.page_url(&links.query.without(&[COLUMNS_PARAM])),
        heading,
    };
    render(status, &page)
}

/// `…/download`: a read with the owner's session, because browsers cannot send a private key with a link.
pub(super) async fn download(req: &mut PageRequest) -> PageResult {
    let page = async |req: &mut PageRequest| {
        let (urls, _) = VersionUrls::parse(req.head.uri.path())?;
        let (mut request, unknown) = params::parse_query(req.head.uri.query())?;
        request.alt |= urls.alt;
        // A downloaded file cannot contain a note about ignored parameters, so a response header lists them.
        let header = params::unknown_parameters_header(&unknown);
        req.response_headers.extend(header.map(|header| (HeaderName::from_static("x-unknown-parameters"), header)));
        let context = load_version_context(req, &urls, request.alt).await?;
        if request.strict {
            req.services.reads.reject_unknown_fields(&context.authorized_target, &request).await?;
        }
        let response =
            page_support::download_response(&req.services, &req.head, &context.authorized_target, request).await?;
        Ok(PageResponse::Raw(response))
    };
    unavailable::run_or_show_unavailable(req, DatasetTab::Data, page).await
}

pub(super) fn check_view_param(query: &QueryParams) -> Result<(), HttpError> {
    query.parse_choice(VIEW_PARAM, &VIEW_VALUES).map(|_| ())
}

fn check_page_params(query: &QueryParams) -> Result<(), (&'static str, HttpError)> {
    check_view_param(query).map_err(|error| (VIEW_PARAM, error))?;
    for name in [form::SUBMITTED_PARAM, ADD_PATH_PARAM, ADD_VALUE_PARAM] {
        query.single(name).map_err(|error| (name, error))?;
    }
    let operators = CONDITION_OPERATORS.map(|(name, _)| name);
    query.parse_choice(ADD_OPERATOR_PARAM, &operators).map(|_| ()).map_err(|error| (ADD_OPERATOR_PARAM, error))
}

/// Returns the query of the API call that is equivalent to a page, with the default limit of the page.
pub(super) fn to_read_query(query: &QueryParams) -> QueryParams {
    let read = query.without(&[VIEW_PARAM, COLUMNS_PARAM]);
    let has_limit = read.first("limit").is_some() || read.is_true("count");
    if has_limit { read } else { read.with_added("limit", ENTITIES_PER_PAGE) }
}

pub(super) fn with_version_number(urls: &VersionUrls, number: VersionNumber) -> VersionUrls {
    VersionUrls { selector: VersionSelector::Number(number), ..urls.clone() }
}
