//! A version's entities: `/ui/{dataset_id}/{name_slug}/{version}/[alt/]`.
//!
//! The query string is that of a read, and the parser is the read endpoint's. A page shows what that read returns, but
//! [`PAGE_ENTITIES`] and [`PAGE_BYTES`] at most, and [`PAGE`] entities where no limit is given. What is wrong with a
//! parameter is said beside its field, in the words of the read endpoint.
//!
//! | Module | Holds |
//! |---|---|
//! | `form` | the form, and the query string that it stands for |
//! | `fields` | the paths of the version, each with what a click adds |
//! | `rows` | entities as a table, or as JSON |
//! | `entities` | the entities of an answer, within bounds |
//! | `snippets` | the same query for other tools |

mod entities;
mod fields;
mod form;
mod rows;
mod snippets;

use std::collections::HashSet;
use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;

use super::marks::Marks;
use super::opened::{Heading, Opened, Tab, open};
use super::place::{DatasetPlace, Place};
use super::query::Query;
use super::visit::{Reply, Shell, Visit, render};
use super::{closed, figures};
use crate::encode::ContentCoding;
use crate::http::error::HttpError;
use crate::http::params::{self, ParameterError, UnknownParameter};
use crate::http::visit::BaseUrl;
use crate::http::visit::{quoted, told};
use crate::model::limits::{PAGE_BYTES, PAGE_ENTITIES};
use crate::model::path::Path;
use crate::model::request::{Format, ReadRequest};
use crate::model::version::{VersionNumber, VersionSelector};
use crate::service::{App, UnknownCause, deep_sort_hint};
pub(super) use entities::Entities;
use fields::Fields;
pub(super) use fields::{text as value_text, types};
use form::Form;
pub(super) use rows::summary;
use rows::{Cell, JsonRow, Look, Table};
use snippets::Snippet;

/// Entities in a page, unless asked otherwise.
const PAGE: u64 = 50;

/// Parameters of pages, not of reads: what entities look like, and what only forms send.
const VIEW: &str = "view";
const COLUMNS: &str = "columns";
const OWN: [&str; 6] = [VIEW, COLUMNS, form::SENT, form::ADD_PATH, form::ADD_OPERATOR, form::ADD_VALUE];

/// Most bytes of a query string that links to fields and columns repeat: there are hundreds of them.
const REPEATED_BYTES: usize = 1_024;

/// The handler of a path without a version: leads to the active one.
pub(super) async fn active(State(app): State<App>, head: Parts) -> Response {
    let visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let place = DatasetPlace::parse(visit.head.uri.path());
    let outcome = place.map(|place| Reply::SeeOther(place.version(VersionSelector::Active, false).browse()));
    visit.answer(outcome).await
}

/// The handler.
pub(super) async fn show(State(app): State<App>, head: Parts) -> Response {
    let mut visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = Box::pin(browse(&mut visit)).await;
    let outcome = closed::told(&visit, outcome, Tab::Data).await;
    visit.answer(outcome).await
}

#[derive(Template)]
#[template(path = "browse.html")]
struct BrowsePage {
    shell: Shell,
    heading: Heading,
    form: Form,
    fields: Option<Fields>,
    hints: Vec<String>,
    found: Option<Found>,
    /// The call that makes this page: as people read it, and as a link where a browser can make it.
    api: String,
    api_href: Option<String>,
    as_table: String,
    as_json: String,
    downloads: Vec<(&'static str, String)>,
    snippets: Vec<Snippet>,
    /// For the owner: what this read does.
    explain: Option<String>,
    all_columns: String,
    private: bool,
}

/// What a read has found.
struct Found {
    /// `1 to 50 of 250 entities`.
    summary: String,
    count: Option<String>,
    /// Where all that match are counted, if that would hold up this page.
    counting: Option<Counting>,
    table: Option<Table>,
    json: Option<Vec<JsonRow>>,
    notes: Vec<String>,
    pages: Pages,
}

/// Counting all that match is left to whoever wants to know, or to the script.
struct Counting {
    /// This page with the count.
    page: String,
    /// The count as JSON.
    call: String,
    /// Entities of a page.
    limit: u64,
}

/// The pages around one, each where there is one.
#[derive(Default)]
struct Pages {
    first: Option<String>,
    previous: Option<String>,
    next: Option<String>,
    last: Option<String>,
}

impl Pages {
    fn any(&self) -> bool {
        self.first.is_some() || self.next.is_some()
    }
}

/// The paths of pages that a browse page leads to.
struct Links<'a> {
    place: &'a Place,
    /// The page's query string without parameters that only the form has.
    query: Query,
    /// Whether links to columns and fields may repeat it.
    repeated: bool,
}

impl Links<'_> {
    fn here(&self, query: &Query) -> String {
        query.at(&self.place.browse())
    }

    /// This page with a condition more, from its beginning.
    fn with_condition(&self, name: &str, value: &str) -> Option<String> {
        self.repeated.then(|| self.here(&self.query.without(&["offset"]).and(name, value)))
    }

    /// This page with a condition begun: its value is for the form.
    fn with_begun(&self, path: &str, operator: &str) -> Option<String> {
        let query = self.query.without(&["offset"]).and(form::ADD_PATH, path).and(form::ADD_OPERATOR, operator);
        self.repeated.then(|| self.here(&query) + form::ADD_ANCHOR)
    }

    /// Where all that match are counted.
    fn counting(&self, limit: u64) -> Counting {
        // The key under which the count is kept knows nothing of pages and orders.
        let count =
            self.query.without(&[VIEW, COLUMNS, "format", "typed", "pretty", "sort", "offset", "limit", "total"]);
        Counting {
            page: self.here(&self.query.with("total", true)),
            call: count.and("count", true).at(&self.place.download()),
            limit,
        }
    }

    /// This page in another order, from its beginning.
    fn sorted(&self, field: &str, direction: &str) -> Option<String> {
        let query = self.query.without(&["offset"]).with("sort", format!("{field}:{direction}"));
        self.repeated.then(|| self.here(&query))
    }
}

async fn browse(visit: &mut Visit) -> Result<Reply, HttpError> {
    let uri = visit.head.uri.clone();
    let (place, _) = Place::parse(uri.path())?;
    let query = Query::parse(uri.query());
    if let Some(clean) = form::cleaned(&query) {
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
    let repeated = uri.query().unwrap_or_default().len() <= REPEATED_BYTES;
    let links = Links { place: &place, query, repeated };

    let (mut status, mut problem, mut hints, mut found) = (StatusCode::OK, None, Vec::new(), None);
    let refused = match &parsed {
        Err(ParameterError::Invalid { name, value, .. } | ParameterError::GivenTwice { name, value }) => {
            Some((*name, value.clone()))
        }
        _ => None,
    };
    let outcome = match parsed {
        Ok((request, unknown)) => {
            hints.extend(unknown.iter().map(ignored));
            Box::pin(find(visit, &opened, &links, request, in_json, &mut hints)).await
        }
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(is) => found = Some(is),
        Err(error) => {
            let told = told(error, &visit.head);
            visit.headers.extend(told.headers);
            (status, problem) = (told.status, Some(told.text));
        }
    }
    let fields = fields::of(visit, &opened, &links).await;
    let private = opened.dataset.is_private();
    let read = read_query(&links.query);
    // Programs want all that match, unless a page of them was asked for.
    let pasted = match links.query.first("limit") {
        Some(_) => read.clone(),
        None => read.without(&["limit", "offset"]),
    };
    let base = BaseUrl::of(&visit.head, &visit.app);
    let api = read.at(&place.api());
    let heading = Heading::of(visit, &opened, &place, Tab::Data);
    let all = read.without(&["offset", "limit", "count", "format", "typed", "pretty", "total"]);
    let download = if private { place.download() } else { place.api() };
    let download = |format: Format| {
        let query = all.clone().and("format", format.name());
        (format.name(), if format == Format::Parquet { query.and("typed", true) } else { query }.at(&download))
    };
    let page = BrowsePage {
        shell: visit.shell(opened.dataset.name.as_str()),
        form: Form::new(
            &links,
            fields.as_ref().map(Fields::names).unwrap_or_default(),
            added,
            problem,
            refused.as_ref(),
        ),
        fields,
        hints,
        found,
        api: base.url(&api),
        api_href: (!private).then_some(api),
        as_table: links.here(&links.query.without(&[VIEW])),
        as_json: links.here(&links.query.with(VIEW, "json")),
        downloads: Format::ALL.map(download).into(),
        snippets: snippets::of(&base, &place, &pasted, private),
        explain: heading.settings.is_some().then(|| read.at(&place.explain())),
        all_columns: links.here(&links.query.without(&[COLUMNS])),
        heading,
        private,
    };
    render(status, &page)
}

/// The read that a page shows, with the limit that holds where none is given.
pub(super) fn read_query(query: &Query) -> Query {
    let read = query.without(&[VIEW, COLUMNS]);
    match read.first("limit").is_some() || is_count(&read) {
        true => read,
        false => read.and("limit", PAGE),
    }
}

fn is_count(query: &Query) -> bool {
    query.first("count").is_some_and(|count| count == "1" || count.eq_ignore_ascii_case("true"))
}

fn ignored(UnknownParameter(name): &UnknownParameter) -> String {
    let nearest = crate::model::similar::nearest(name, params::PARAMETERS.iter().map(|parameter| parameter.name));
    let meant = nearest.map(|nearest| format!(" Did you mean {nearest}?")).unwrap_or_default();
    format!("There is no parameter {}. It is ignored.{meant}", quoted(name))
}

/// Makes the read.
async fn find(
    visit: &Visit,
    opened: &Opened,
    links: &Links<'_>,
    request: ReadRequest,
    in_json: bool,
    hints: &mut Vec<String>,
) -> Result<Found, HttpError> {
    let (reads, admitted) = (visit.app.reads(), &opened.admitted);
    if request.strict {
        reads.check_fields(admitted, &request).await?;
    } else {
        hints.extend(unknown_fields(visit, opened, &request).await);
    }
    let asked = request.limit.unwrap_or(PAGE);
    let limit = asked.min(PAGE_ENTITIES as u64);
    let is_counted = request.total
        || request.count
        || request.sample.is_some()
        || is_plain(&request)
        || !Box::pin(reads.is_count_heavy(admitted, &request)).await?;
    let shown = match request.count {
        true => ReadRequest { pretty: false, ..request.clone() },
        false => {
            let paged = ReadRequest { limit: Some(limit), total: is_counted, ..request.clone() };
            ReadRequest { format: Format::Jsonl, pretty: false, typed: false, ..paged }
        }
    };
    let shown = Arc::new(shown);
    let (answer, positions) = match shown.count || is_plain(&shown) {
        false => Box::pin(reads.locate(admitted, shown.clone())).await?,
        true => {
            let answer = reads.answer(admitted, shown.clone(), ContentCoding::Identity).await?;
            let end = shown.offset.saturating_add(answer.total);
            (answer, (shown.offset..end).take(PAGE_ENTITIES).collect())
        }
    };
    if request.count {
        let count = figures::counted(answer.total, "entity", "entities");
        let summary = "This is the count that the query asks for.".to_owned();
        return Ok(Found {
            summary,
            count: Some(count),
            counting: None,
            table: None,
            json: None,
            notes: Vec::new(),
            pages: Pages::default(),
        });
    }
    let returned = answer.total;
    let matches = answer.matches.or_else(|| shown.matches_told_by(returned));
    let entities = Entities::take(answer.body, PAGE_BYTES).await?;
    let columns = Path::parse_list(&links.query.all(COLUMNS).collect::<Vec<_>>().join(","));
    let columns = columns.iter().filter_map(|path| match path.keys() {
        [field] => Some(field.clone()),
        _ => None,
    });
    let look = Look {
        links,
        positions: &positions,
        offset: shown.offset,
        marks: Marks::of(&request.keywords),
        columns: each_once(columns),
    };
    let mut notes = Vec::new();
    if asked > limit {
        notes.push(format!(
            "A page shows {limit} entities at most. The API call returns up to {}.",
            figures::grouped(asked)
        ));
    }
    let (table, json, fits) = match in_json {
        false => {
            let table = Table::new(&entities, &look);
            let fits = table.rows.len() as u64;
            (Some(table), None, fits)
        }
        true => {
            let rows = rows::json(&entities, &look);
            let fits = rows.len() as u64;
            (None, Some(rows), fits)
        }
    };
    if fits < returned {
        notes.push(format!(
            "These entities are large: {} of {} fit into this page. The next page goes on after them.",
            figures::grouped(fits),
            figures::grouped(returned)
        ));
    }
    let drawn = request.is_drawn_anew();
    if drawn {
        notes.push("This sample is drawn anew each time. With a seed it stays the same, and has pages.".to_owned());
    }
    let all = matches.map(|matches| request.sample.map_or(matches, |sample| sample.min(matches)));
    let pages = if drawn { Pages::default() } else { pages(links, &shown, fits, returned, all) };
    let summary = range(shown.offset, fits, all);
    let counting = all.is_none().then(|| links.counting(limit));
    Ok(Found { summary, count: None, counting, table, json, notes, pages })
}

/// Which entities are shown, of how many.
fn range(offset: u64, shown: u64, all: Option<u64>) -> String {
    let of = all.map(|all| format!(" of {}", figures::counted(all, "entity", "entities"))).unwrap_or_default();
    match (shown, all) {
        (0, Some(0)) => "No entity matches.".to_owned(),
        (0, _) => format!("No entities from {} on{of}.", figures::grouped(offset.saturating_add(1))),
        (1, _) => format!("{}{of}", figures::grouped(offset.saturating_add(1))),
        _ => {
            let last = offset.saturating_add(shown);
            format!("{} to {}{of}", figures::grouped(offset.saturating_add(1)), figures::grouped(last))
        }
    }
}

/// The pages around one that shows the first `fits` of `returned` entities.
fn pages(links: &Links<'_>, request: &ReadRequest, fits: u64, returned: u64, all: Option<u64>) -> Pages {
    let limit = request.limit.unwrap_or(PAGE);
    let offset = request.offset;
    let at = |offset: u64| match offset {
        0 => links.here(&links.query.without(&["offset"])),
        offset => links.here(&links.query.with("offset", offset)),
    };
    if limit == 0 {
        return Pages::default();
    }
    // One that does not fit at all has a page of its own to be skipped by.
    let step = if fits < returned { fits.max(1) } else { limit };
    let next = offset.saturating_add(step);
    let has_next = returned > 0 && all.map_or(returned == limit, |all| next < all);
    let last = all.filter(|all| *all > 0).map(|all| (all - 1) / limit * limit);
    Pages {
        first: (offset > 0).then(|| at(0)),
        previous: (offset > 0).then(|| at(offset.saturating_sub(limit).min(last.unwrap_or(u64::MAX)))),
        next: has_next.then(|| at(next)),
        last: last.filter(|last| *last > offset && has_next).map(at),
    }
}

fn each_once(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Whether the entities of an answer follow each other in the version from its offset on.
fn is_plain(request: &ReadRequest) -> bool {
    !request.has_conditions() && request.sort.is_none() && !request.dedup && request.sample.is_none()
}

/// Paths that the request names and that are not there.
async fn unknown_fields(visit: &Visit, opened: &Opened, request: &ReadRequest) -> Vec<String> {
    let unknown = visit.app.reads().explained_unknown_fields(&opened.admitted, request).await.unwrap_or_default();
    let hint = |field: crate::service::UnknownField| {
        if let Some(nearest) = field.deep_sort() {
            return deep_sort_hint(quoted(nearest));
        }
        let path = quoted(&field.path.to_string());
        match field.cause {
            UnknownCause::Absent { nearest: Some(nearest) } => {
                format!("No entity has {path} ({}). Did you mean {}?", field.parameter, quoted(&nearest))
            }
            UnknownCause::Absent { nearest: None } => format!("No entity has {path} ({}).", field.parameter),
            UnknownCause::Taken { step } => {
                format!("{step} has removed {path} from every entity before {} looks for it.", field.parameter)
            }
        }
    };
    unknown.into_iter().take(10).map(hint).collect()
}

/// The number of the version, as its own place.
pub(super) fn numbered(place: &Place, number: VersionNumber) -> Place {
    Place { selector: VersionSelector::Number(number), ..place.clone() }
}
