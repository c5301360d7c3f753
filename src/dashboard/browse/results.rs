//! The result of the read of a page, and the pages around it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_service::{Answer, AuthorizedRead, Weight};
use strata_types::limits::{PAGE_BYTES, PAGE_ENTITIES};
use strata_types::path::Path;
use strata_types::request::{Format, ReadRequest};

use super::conditions::{self, Part};
use super::entities::Entities;
use super::hints::{self, Hint};
use super::links::{Counting, Links};
use super::rows::{self, JsonRow, RowLabel, TABLE_COLUMNS, Table, TableContext};
use super::{COLUMNS, PAGE};
use crate::context::Opened;
use crate::format;
use crate::highlight::Highlighter;
use crate::visit::Visit;

/// How long a page waits for the number of matches if counting is not light work. Most counts of a column in memory
/// take less.
const COUNT_WAIT: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct PageResults {
    /// `1 to 50 of 250 entities`.
    pub(super) summary: String,
    pub(super) count: Option<String>,
    /// The link that counts all matches, if that would delay this page.
    pub(super) counting: Option<Counting>,
    pub(super) table: Option<Table>,
    pub(super) json: Option<Vec<JsonRow>>,
    /// The first entity of the page if it is larger than a page.
    pub(super) too_large: Option<RowLabel>,
    pub(super) notes: Vec<String>,
    pub(super) next_steps: Vec<Part>,
    pub(super) pages: Pages,
}

impl PageResults {
    pub(super) fn shows_entities(&self) -> bool {
        self.table.as_ref().is_some_and(|table| !table.rows.is_empty())
            || self.json.as_ref().is_some_and(|rows| !rows.is_empty())
    }
}

#[derive(Default)]
pub(super) struct Pages {
    pub(super) first: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
    pub(super) last: Option<String>,
}

pub(super) async fn find(
    visit: &Visit,
    opened: &Opened,
    links: &Links<'_>,
    request: ReadRequest,
    in_json: bool,
    hints: &mut Vec<Hint>,
) -> Result<PageResults, HttpError> {
    let reads = &visit.services.reads;
    let admitted = &opened.admitted;
    if request.strict {
        reads.check_fields(admitted, &request).await?;
    }
    let asked = request.limit.unwrap_or(PAGE);
    let limit = asked.min(PAGE_ENTITIES as u64);
    let told = async {
        let (mut told, absent) = hints::for_fields(visit, opened, &request, links).await;
        told.extend(hints::for_columns(visit, opened, &request, links).await);
        (told, absent)
    };
    let ((told, absent), read) = tokio::join!(told, Box::pin(read(visit, opened, &request, limit)));
    hints.extend(told);
    let Read { answer, positions, shown, matches } = read?;
    let returned = answer.total;
    if request.count {
        let count = format::counted(returned, "entity", "entities");
        let summary = "The query returns only a count.".to_owned();
        return Ok(PageResults { summary, count: Some(count), ..PageResults::default() });
    }
    let entities = Entities::take(answer.body, PAGE_BYTES).await?;
    let look = TableContext {
        links,
        positions: &positions,
        offset: shown.offset,
        marks: Highlighter::new(&request.keywords),
        columns: chosen_columns(links, &request),
    };
    let mut notes = Vec::new();
    if let Some(more) = look.columns.len().checked_sub(TABLE_COLUMNS).filter(|more| *more > 0) {
        let more = format::counted(more as u64, "column is", "columns are");
        notes.push(format!("A table shows at most {TABLE_COLUMNS} columns, so {more} not shown."));
    }
    let table = (!in_json).then(|| Table::new(&entities, &look));
    let json = in_json.then(|| rows::json(&entities, &look));
    let fits = table.as_ref().map_or(0, |table| table.rows.len()).max(json.as_ref().map_or(0, Vec::len)) as u64;
    let too_large = (fits == 0 && returned > 0).then(|| look.label(0));
    if fits > 0 && fits < returned {
        notes.push(format!(
            "These entities are large, so only {} of {} fit on this page. The next page continues where this one ends.",
            format::grouped(fits),
            format::grouped(returned)
        ));
    }
    let drawn = request.is_drawn_anew();
    if drawn {
        notes.push("This sample is different each time. To page through a fixed sample, set a seed.".to_owned());
    }
    let all = matches.map(|matches| request.sample.map_or(matches, |sample| sample.min(matches)));
    let leaves_out = all.map_or(returned == limit, |all| all > shown.offset.saturating_add(limit));
    if asked > limit && leaves_out {
        notes.push(format!(
            "A page shows at most {limit} entities. The API call returns up to {}.",
            format::grouped(asked)
        ));
    }
    let pages = if drawn { Pages::default() } else { pages(links, &shown, fits, returned, all) };
    let finds_nothing = returned == 0 && all == Some(0);
    let summary = match finds_nothing && !request.has_conditions() {
        true => "This version has no entities.".to_owned(),
        false => range(shown.offset, fits.max(returned.min(1)), all),
    };
    let has_steps = finds_nothing && request.has_conditions();
    let next_steps = if has_steps { conditions::next_steps(links, &absent) } else { Vec::new() };
    let counting = all.is_none().then(|| links.counting(limit));
    Ok(PageResults { summary, count: None, counting, table, json, too_large, notes, next_steps, pages })
}

struct Read {
    answer: Answer,
    positions: Vec<u64>,
    /// The request that was executed.
    shown: Arc<ReadRequest>,
    /// How many entities match, if that is known by now.
    matches: Option<u64>,
}

/// Executes a request with at most `limit` entities.
async fn read(visit: &Visit, opened: &Opened, request: &ReadRequest, limit: u64) -> Result<Read, HttpError> {
    let reads = &visit.services.reads;
    let admitted = &opened.admitted;
    let is_asked_for = request.total || request.count || request.sample.is_some() || is_plain(request);
    let weight = match is_asked_for {
        true => Weight::Light,
        false => Box::pin(reads.count_weight(admitted, request)).await?,
    };
    let is_counted = weight == Weight::Light;
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
            let answer = reads.respond(AuthorizedRead::new(admitted, &shown), ContentCoding::Identity).await?;
            let end = shown.offset.saturating_add(answer.total);
            (answer, (shown.offset..end).take(PAGE_ENTITIES).collect())
        }
    };
    let matches = match answer.matches.or_else(|| shown.matches_told_by(answer.total)) {
        // If the count takes long or fails, the page has a link to it instead.
        None if weight == Weight::Medium => {
            tokio::time::timeout(COUNT_WAIT, Box::pin(reads.count(admitted, request))).await.ok().and_then(Result::ok)
        }
        matches => matches,
    };
    Ok(Read { answer, positions, shown, matches })
}

fn range(offset: u64, shown: u64, all: Option<u64>) -> String {
    let first = format::grouped(offset.saturating_add(1));
    let total = all.map(|all| format::counted(all, "entity", "entities"));
    let of = total.as_ref().map(|total| format!(" of {total}")).unwrap_or_default();
    match (shown, total) {
        (0, _) if all == Some(0) => "No entities match.".to_owned(),
        (0, Some(total)) => format!("No entities to show from number {first} onward ({total} in total)."),
        (0, None) => format!("No entities to show from number {first} onward."),
        (1, _) => format!("{first}{of}"),
        _ => format!("{first} to {}{of}", format::grouped(offset.saturating_add(shown))),
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
    // An entity that does not fit has its own page, so that it can be skipped.
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

/// The requested columns. In flattened entities a path is the name of a field.
fn chosen_columns(links: &Links<'_>, request: &ReadRequest) -> Vec<String> {
    let paths = Path::parse_list(&links.query.all(COLUMNS).collect::<Vec<_>>().join(","));
    let names = paths.iter().filter_map(|path| match path.keys() {
        [field] => Some(field.clone()),
        keys if request.flatten => Some(keys.join(".")),
        _ => None,
    });
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Whether the entities of a response are consecutive in the version.
fn is_plain(request: &ReadRequest) -> bool {
    !request.has_conditions() && request.sort.is_none() && !request.dedup && request.sample.is_none()
}
