//! A version's entities: `/ui/{dataset_id}/{name_slug}/{version}/[alt/]`.
//!
//! The query string is that of a read, and the parser is the read endpoint's. A page shows what that read returns, but
//! [`PAGE_ENTITIES`] and [`PAGE_BYTES`] at most, and [`PAGE`] entities where no limit is given. What is wrong with a
//! parameter is said beside its field, in the words of the read endpoint.
//!
//! | Module | Holds |
//! |---|---|
//! | `form` | the form, and the query string that it stands for |
//! | `conditions` | what is in force, in words, and the next steps where nothing matches |
//! | `hints` | what is not there, and what was perhaps meant |
//! | `fields` | the paths of the version, each with what a click adds |
//! | `found` | what the read has found, and the pages around it |
//! | `rows`, `cells`, `widths` | entities as a table, or as JSON |
//! | `entities` | the entities of an answer, within bounds |
//! | `snippets` | the same query for other tools |
//! | `links` | the paths of pages that it leads to |

mod cells;
mod conditions;
mod entities;
mod fields;
mod form;
mod found;
mod hints;
mod links;
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

use super::closed;
use super::opened::{Heading, Tab, open};
use super::place::{DatasetPlace, Place};
use super::query::Query;
use super::visit::{Reply, Shell, Visit, render};
use cells::Cell;
pub(super) use cells::summary;
use conditions::{InForce, OPERATORS};
pub(super) use entities::Entities;
use fields::Fields;
pub(super) use fields::{text as value_text, types};
use form::Form;
use found::Found;
use hints::Hint;
use links::{ADD_OPERATOR, ADD_PATH, ADD_VALUE, Links};
use snippets::Snippet;

/// Entities in a page, unless asked otherwise.
pub(super) const PAGE: u64 = 50;

/// Parameters of pages, not of reads: what entities look like, and what only forms send.
const VIEW: &str = "view";
const VIEWS: [&str; 2] = ["table", "json"];
const COLUMNS: &str = "columns";
const OWN: [&str; 6] = [VIEW, COLUMNS, form::SENT, ADD_PATH, ADD_OPERATOR, ADD_VALUE];

/// The handler of a path without a version: leads to the active one.
pub(super) async fn active(visit: &mut Visit) -> Result<Reply, HttpError> {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let query = Query::parse(visit.head.uri.query());
    Ok(Reply::SeeOther(query.at(&place.version(VersionSelector::Active, false).browse())))
}

pub(super) async fn show(visit: Visit) -> Response {
    visit.build(|visit| Box::pin(closed::or_told(visit, Tab::Data, browse))).await
}

#[derive(Template)]
#[template(path = "browse.html")]
struct BrowsePage {
    shell: Shell,
    heading: Heading,
    form: Form,
    fields: Option<Fields>,
    /// What is in force, each with the page without it.
    in_force: InForce,
    hints: Vec<Hint>,
    found: Option<Found>,
    /// The call that makes this page: as people read it, and as a link where a browser can make it.
    api: String,
    api_href: Option<String>,
    as_table: String,
    as_json: String,
    downloads: Vec<Download>,
    /// Those without the limit and the offset, where downloads keep a limit.
    all_downloads: Vec<Download>,
    /// Whether downloads and programs keep a limit.
    is_limited: bool,
    snippets: Vec<Snippet>,
    /// For the owner: what this read does.
    explain: Option<String>,
    all_columns: String,
}

struct Download {
    format: &'static str,
    href: String,
    file: String,
}

async fn browse(visit: &mut Visit) -> Result<Reply, HttpError> {
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
    let added = form::Added::of(&query);
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
        hints.extend(unknown.iter().map(|name| Hint::of_parameter(name, &links)));
        found::find(seen, &opened, &links, request, in_json, &mut hints).await
    };
    let (outcome, fields) = tokio::join!(Box::pin(finds), Box::pin(fields::of(seen, &opened, &links)));
    let (status, found, problem) = match outcome {
        Ok(found) => (StatusCode::OK, Some(found), None),
        Err(error) => {
            let (status, text) = visit.tell(error);
            (status, None, Some(text))
        }
    };
    let private = opened.dataset.is_private();
    let read = read_query(&links.query);
    // Programs and downloads want all that match, unless a part of them was asked for.
    let is_limited = links.query.first("limit").is_some();
    let wanted = if is_limited { read.clone() } else { read.without(&["limit", "offset"]) };
    let base = BaseUrl::of(&visit.head, &visit.app);
    let api = read.at(&place.api());
    let mut heading = Heading::of(visit, &opened, &place, Tab::Data).with_failure(visit, &opened.dataset).await;
    // The same query of another version, and of the alternate.
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
        snippets: snippets::of(&base, &place, &wanted, private),
        explain: heading.owned.then(|| read.at(&place.page("explain"))),
        all_columns: links.here(&links.query.without(&[COLUMNS])),
        heading,
    };
    render(status, &page)
}

/// `…/download`: a read for whoever is signed in. The read endpoint takes the private key of a private dataset, which a
/// browser does not send with a link; the session of its owner opens this one.
pub(super) async fn download(visit: &mut Visit) -> Result<Reply, HttpError> {
    let page = async |visit: &mut Visit| {
        let uri = visit.head.uri.clone();
        let (place, _) = Place::parse(uri.path())?;
        let (mut request, unknown) = params::parse(uri.query())?;
        request.alt |= place.alt;
        // A file has no other place to name what was ignored.
        let named = params::unknown_parameters_header(&unknown);
        visit.headers.extend(named.map(|named| (HeaderName::from_static("x-unknown-parameters"), named)));
        let opened = open(visit, &place, request.alt).await?;
        if request.strict {
            visit.app.reads().check_fields(&opened.admitted, &request).await?;
        }
        let response = visit::download(&visit.app, &visit.head, &opened.admitted, request).await?;
        Ok(Reply::Other(response))
    };
    closed::or_told(visit, Tab::Data, page).await
}

/// Checks what entities are to look like.
pub(super) fn check_view(query: &Query) -> Result<(), HttpError> {
    query.one_of(VIEW, &VIEWS).map(|_| ())
}

/// Checks the parameters that pages have and reads do not: the name of a wrong one, and what is wrong.
fn check_own(query: &Query) -> Result<(), (&'static str, HttpError)> {
    check_view(query).map_err(|error| (VIEW, error))?;
    for name in [form::SENT, ADD_PATH, ADD_VALUE] {
        query.once(name).map_err(|error| (name, error))?;
    }
    let operators = OPERATORS.map(|(name, _)| name);
    query.one_of(ADD_OPERATOR, &operators).map_err(|error| (ADD_OPERATOR, error))?;
    Ok(())
}

/// The read that a page shows, with the limit that holds where none is given.
pub(super) fn read_query(query: &Query) -> Query {
    let read = query.without(&[VIEW, COLUMNS]);
    if read.first("limit").is_some() || read.is_true("count") { read } else { read.and("limit", PAGE) }
}

/// The number of the version, as its own place.
pub(super) fn numbered(place: &Place, number: VersionNumber) -> Place {
    Place { selector: VersionSelector::Number(number), ..place.clone() }
}
