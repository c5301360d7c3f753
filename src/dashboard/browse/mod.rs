//! A version's entities: `/ui/{dataset_id}/{name_slug}/{version}/[alt/]`.
//!
//! The query string and its parser are those of the read endpoint. A page shows what that read returns, but at most
//! `PAGE_ENTITIES` and `PAGE_BYTES`, and [`PAGE`] entities without a limit. A problem with a parameter is shown next to
//! its field, in the words of the read endpoint.

mod cells;
mod conditions;
mod entities;
mod fields;
mod form;
mod hints;
mod links;
mod results;
mod rows;
mod snippets;
mod widths;

use askama::Template;
use axum::http::{HeaderName, StatusCode};
use axum::response::Response;
use strata_http::error::HttpError;
use strata_http::params::{self, ParameterError};
use strata_http::read;
use strata_http::visit::{self, BaseUrl};
use strata_service::Admitted;
use strata_types::request::Format;
use strata_types::version::{VersionNumber, VersionSelector};

use super::context::{Heading, Tab, open};
use super::query::Query;
use super::unavailable;
use super::urls::{DatasetPlace, Place};
use super::visit::{PageResult, Reply, Shell, Visit, render};
use cells::Cell;
pub(super) use cells::summary;
use conditions::{InForce, OPERATORS};
pub(super) use entities::Entities;
use fields::Fields;
pub(super) use fields::{text as value_text, types};
use form::Form;
use hints::Hint;
use links::{ADD_OPERATOR, ADD_PATH, ADD_VALUE, Links};
use results::PageResults;
use snippets::Snippet;

/// Entities on a page without a limit.
pub(super) const PAGE: u64 = 50;

/// Parameters of pages, not of reads.
const VIEW: &str = "view";
const VIEWS: [&str; 2] = ["table", "json"];
const COLUMNS: &str = "columns";
const OWN: [&str; 6] = [VIEW, COLUMNS, form::SENT, ADD_PATH, ADD_OPERATOR, ADD_VALUE];

/// Redirects from a path without a version to the active one.
pub(super) async fn active(visit: &mut Visit) -> PageResult {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let query = Query::parse(visit.head.uri.query());
    Ok(Reply::SeeOther(query.at(&place.version(VersionSelector::Active, false).browse())))
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(unavailable::or_told(visit, Tab::Data, browse))).await
}

#[derive(Template)]
#[template(path = "browse.html")]
struct BrowsePage {
    shell: Shell,
    heading: Heading,
    form: Form,
    fields: Option<Fields>,
    in_force: InForce,
    hints: Vec<Hint>,
    found: Option<PageResults>,
    /// The API call that corresponds to this page, and its link if a browser can send it.
    api: String,
    api_href: Option<String>,
    as_table: String,
    as_json: String,
    downloads: Vec<Download>,
    /// Those without the limit and the offset.
    all_downloads: Vec<Download>,
    is_limited: bool,
    snippets: Vec<Snippet>,
    explain: Option<String>,
    all_columns: String,
}

struct Download {
    format: &'static str,
    href: String,
    file: String,
}

async fn browse(visit: &mut Visit) -> PageResult {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let query = Query::parse(uri.query());
    let own = check_own(&query);
    if let (Ok(()), Some(clean)) = (&own, form::cleaned(&query)) {
        return Ok(Reply::SeeOther(clean.at(&place.browse())));
    }
    let parsed = params::parse_beside(uri.query(), &OWN);
    if let Err(error @ ParameterError::QueryTooLong { .. }) = parsed {
        return Err(error.into());
    }
    let alt = place.alt || parsed.as_ref().is_ok_and(|(request, _)| request.alt);
    let place = Place { alt, ..place };
    let added = form::Added::new(&query);
    let opened = open(visit, &place, alt).await?;
    let in_json = query.first(VIEW) == Some("json");
    let query = query.without(&OWN[2..]);
    let links = Links::new(&place, query, uri.query());

    let mut hints = Vec::new();
    let refused = match (&own, &parsed) {
        (Err((name, _)), _) => Some((*name, String::new())),
        (_, Err(ParameterError::Invalid { name, value, .. } | ParameterError::GivenTwice { name, value })) => {
            Some((*name, value.clone()))
        }
        _ => None,
    };
    let seen: &Visit = visit;
    let finds = async {
        own.map_err(|(_, error)| error)?;
        let (request, unknown) = parsed?;
        hints.extend(unknown.iter().map(|name| Hint::for_parameter(name, &links)));
        results::find(seen, &opened, &links, request, in_json, &mut hints).await
    };
    let (outcome, fields) = tokio::join!(Box::pin(finds), Box::pin(fields::load(seen, &opened, &links)));
    let (status, found, problem) = match outcome {
        Ok(found) => (StatusCode::OK, Some(found), None),
        Err(error) => {
            let (status, text) = visit.tell(error);
            (status, None, Some(text))
        }
    };
    let private = opened.dataset.is_private();
    let read = read_query(&links.query);
    // Programs and downloads get all matches, unless a limit was chosen.
    let is_limited = links.query.first("limit").is_some();
    let wanted = if is_limited { read.clone() } else { read.without(&["limit", "offset"]) };
    let base = BaseUrl::of(&visit.head, &visit.services);
    let api = read.at(&place.api());
    let mut heading = Heading::new(visit, &opened, &place, Tab::Data).with_failure(visit, &opened.dataset).await;
    let elsewhere = links.query.without(&["offset", "alt"]);
    let others = heading.active.iter_mut().map(|(_, href)| href);
    others.chain(heading.beside.iter_mut().map(|(_, href)| href)).for_each(|href| *href = elsewhere.at(href));
    let downloaded = wanted.without(&["count", "format", "typed", "pretty", "total"]);
    let all_downloaded = downloaded.without(&["limit", "offset"]);
    let download = if private { place.page("download") } else { place.api() };
    let download_of = |query: &Query, format: Format| {
        let query = query.clone().and("format", format.name());
        let query = if format == Format::Parquet { query.and("typed", true) } else { query };
        let Admitted { name_slug, version, alt, .. } = &opened.admitted;
        let file = read::file_name(name_slug, *version, *alt, format);
        Download { format: format.name(), href: query.at(&download), file }
    };
    let in_force = conditions::in_force(&links);
    let error = if problem.is_some() { "Error: " } else { "" };
    let of = conditions::title(&links, &in_force);
    let colon = if of.is_empty() { "" } else { ": " };
    let paths = fields.as_ref().map(|fields| fields.names.clone()).unwrap_or_default();
    let page = BrowsePage {
        shell: visit.shell(format!("{error}{}{colon}{of}", opened.title())),
        form: Form::new(&links, paths, added, problem, refused.as_ref()),
        in_force,
        fields,
        hints,
        found,
        api: base.url(&api),
        api_href: (!private).then_some(api),
        as_table: links.here(&links.query.without(&[VIEW])),
        as_json: links.here(&links.query.with(VIEW, "json")),
        downloads: Format::ALL.map(|format| download_of(&downloaded, format)).into(),
        all_downloads: Format::ALL.map(|format| download_of(&all_downloaded, format)).into(),
        is_limited,
        snippets: snippets::snippets(&base, &place, &wanted, private),
        explain: heading.owned.then(|| read.at(&place.page("explain"))),
        all_columns: links.here(&links.query.without(&[COLUMNS])),
        heading,
    };
    render(status, &page)
}

/// `…/download`: a read with the session of the owner. For a private dataset, the read endpoint requires the private
/// key, which a browser does not send with a link.
pub(super) async fn download(visit: &mut Visit) -> PageResult {
    let page = async |visit: &mut Visit| {
        let uri = visit.head.uri.clone();
        let (place, _) = Place::parse(uri.path())?;
        let (mut request, unknown) = params::parse(uri.query())?;
        request.alt |= place.alt;
        // A file cannot name ignored parameters.
        let named = params::unknown_parameters_header(&unknown);
        visit.headers.extend(named.map(|named| (HeaderName::from_static("x-unknown-parameters"), named)));
        let opened = open(visit, &place, request.alt).await?;
        if request.strict {
            visit.services.reads.check_fields(&opened.admitted, &request).await?;
        }
        let response = visit::download(&visit.services, &visit.head, &opened.admitted, request).await?;
        Ok(Reply::Other(response))
    };
    unavailable::or_told(visit, Tab::Data, page).await
}

pub(super) fn check_view(query: &Query) -> Result<(), HttpError> {
    query.one_of(VIEW, &VIEWS).map(|_| ())
}

/// Checks the parameters that pages have and reads do not.
fn check_own(query: &Query) -> Result<(), (&'static str, HttpError)> {
    check_view(query).map_err(|error| (VIEW, error))?;
    for name in [form::SENT, ADD_PATH, ADD_VALUE] {
        query.once(name).map_err(|error| (name, error))?;
    }
    let operators = OPERATORS.map(|(name, _)| name);
    query.one_of(ADD_OPERATOR, &operators).map(|_| ()).map_err(|error| (ADD_OPERATOR, error))
}

/// The read that a page shows, with the default limit.
pub(super) fn read_query(query: &Query) -> Query {
    let read = query.without(&[VIEW, COLUMNS]);
    if read.first("limit").is_some() || read.is_true("count") { read } else { read.and("limit", PAGE) }
}

pub(super) fn numbered(place: &Place, number: VersionNumber) -> Place {
    Place { selector: VersionSelector::Number(number), ..place.clone() }
}
