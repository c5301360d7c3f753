//! The results of a page's read, and the links to the other pages.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use strata_encode::ContentCoding;
use strata_http::error::HttpError;
use strata_service::{AuthorizedRead, CostClass, ReadResponse};
use strata_types::field_path::FieldPath;
use strata_types::limits::{MAX_PAGE_ENTITIES, MAX_PAGE_ENTITY_BYTES};
use strata_types::read_request::{ReadRequest, ResponseFormat};

use super::conditions::{self, SuggestedQuery};
use super::entity_table::{self, EntityTable, JsonRow, MAX_TABLE_COLUMNS, RowLabel, TableContext};
use super::hints::{self, QueryHint};
use super::links::{BrowseLinks, CountLink};
use super::page_entities::PageEntities;
use super::{COLUMNS_PARAM, ENTITIES_PER_PAGE};
use crate::context::VersionContext;
use crate::format;
use crate::highlight::KeywordHighlighter;
use crate::page_request::PageRequest;

/// How long a page waits for the number of matches. Most counts of a column in the cache finish in this time.
const COUNT_TIMEOUT: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(super) struct PageResults {
    pub(super) summary: String,
    pub(super) count: Option<String>,
    pub(super) count_link: Option<CountLink>,
    pub(super) table: Option<EntityTable>,
    pub(super) json: Option<Vec<JsonRow>>,
    pub(super) oversized_entity: Option<RowLabel>,
    pub(super) notes: Vec<String>,
    pub(super) suggested_queries: Vec<SuggestedQuery>,
    pub(super) pages: PageLinks,
}

impl PageResults {
    pub(super) fn shows_entities(&self) -> bool {
        self.table.as_ref().is_some_and(|table| !table.rows.is_empty())
            || self.json.as_ref().is_some_and(|rows| !rows.is_empty())
    }
}

#[derive(Default)]
pub(super) struct PageLinks {
    pub(super) first: Option<String>,
    pub(super) previous: Option<String>,
    pub(super) next: Option<String>,
    pub(super) last: Option<String>,
}

pub(super) async fn load_results(
    req: &PageRequest,
    context: &VersionContext,
    links: &BrowseLinks<'_>,
    request: ReadRequest,
    in_json: bool,
    hints: &mut Vec<QueryHint>,
) -> Result<PageResults, HttpError> {
    if request.strict {
        req.services.reads.reject_unknown_fields(&context.authorized_target, &request).await?;
    }
    let requested_limit = request.limit.unwrap_or(ENTITIES_PER_PAGE);
    let limit = requested_limit.min(MAX_PAGE_ENTITIES as u64);
    let field_hints = async {
        let (mut field_hints, absent) = hints::load_field_hints(req, context, &request, links).await;
        field_hints.extend(hints::load_column_hints(req, context, &request, links).await);
        (field_hints, absent)
    };
    let ((field_hints, absent), read) =
        tokio::join!(field_hints, Box::pin(execute_read(req, context, &request, limit)));
    hints.extend(field_hints);
    let PageRead { response, positions, executed_request, match_count } = read?;
    let returned = response.total;
    if request.count {
        let count = format::pluralize(returned, "entity", "entities");
        let summary = "The query returns only a count.".to_owned();
        return Ok(PageResults { summary, count: Some(count), ..PageResults::default() });
    }
    let entities = PageEntities::read_from_body(response.body, MAX_PAGE_ENTITY_BYTES).await?;
    let context = TableContext {
        links,
        positions: &positions,
        offset: executed_request.offset,
        highlighter: KeywordHighlighter::new(&request.keywords),
        requested_columns: requested_columns(links, &request),
    };
    let mut notes = Vec::new();
    if let Some(more) = context.requested_columns.len().checked_sub(MAX_TABLE_COLUMNS).filter(|more| *more > 0) {
        let more = format::pluralize(more as u64, "column is", "columns are");
        notes.push(format!("A table shows at most {MAX_TABLE_COLUMNS} columns, so {more} not shown."));
    }
    let table = (!in_json).then(|| EntityTable::new(&entities, &context));
    let json = in_json.then(|| entity_table::build_json_rows(&entities, &context));
    let fits = table.as_ref().map_or(0, |table| table.rows.len()).max(json.as_ref().map_or(0, Vec::len)) as u64;
    let oversized_entity = (fits == 0 && returned > 0).then(|| context.row_label(0));
    if fits > 0 && fits < returned {
        let [fits, returned] = [fits, returned].map(format::group_thousands);
        notes.push(format!(
            "These entities are large, so only {fits} of {returned} fit on this page. The next page continues where \
             this one ends."
        ));
    }
    let is_random = request.is_random();
    if is_random {
        notes.push("This sample is different each time. To page through a fixed sample, set a seed.".to_owned());
    }
    let all = match_count.map(|match_count| request.sample.map_or(match_count, |sample| sample.min(match_count)));
    let has_omitted = all.map_or(returned == limit, |all| all > executed_request.offset.saturating_add(limit));
    if requested_limit > limit && has_omitted {
        let requested = format::group_thousands(requested_limit);
        notes.push(format!("A page shows at most {limit} entities. The API call returns up to {requested}."));
    }
    let pages =
        if is_random { PageLinks::default() } else { page_links(links, &executed_request, fits, returned, all) };
    let finds_nothing = returned == 0 && all == Some(0);
    let summary = match finds_nothing && !request.has_predicates() {
        true => "This version has no entities.".to_owned(),
        false => range_summary(executed_request.offset, fits.max(returned.min(1)), all),
    };
    let has_suggestions = finds_nothing && request.has_predicates();
    let suggested_queries = if has_suggestions { conditions::suggest_queries(links, &absent) } else { Vec::new() };
    let count_link = all.is_none().then(|| links.count_link(limit));
    Ok(PageResults { summary, count: None, count_link, table, json, oversized_entity, notes, suggested_queries, pages })
}

struct PageRead {
    response: ReadResponse,
    positions: Vec<u64>,
    executed_request: Arc<ReadRequest>,
    match_count: Option<u64>,
}

async fn execute_read(
    req: &PageRequest,
    context: &VersionContext,
    request: &ReadRequest,
    limit: u64,
) -> Result<PageRead, HttpError> {
    let reads = &req.services.reads;
    let target = &context.authorized_target;
    let includes_count =
        request.total || request.count || request.sample.is_some() || has_consecutive_entities(request);
    let cost_class = match includes_count {
        true => CostClass::Light,
        false => Box::pin(reads.classify_count_cost(target, request)).await?,
    };
    let mut executed = ReadRequest { pretty: false, ..request.clone() };
    if !request.count {
        let total = cost_class == CostClass::Light;
        executed = ReadRequest { format: ResponseFormat::Jsonl, typed: false, limit: Some(limit), total, ..executed };
    }
    let executed = Arc::new(executed);
    let (response, positions) = match executed.count || has_consecutive_entities(&executed) {
        false => Box::pin(reads.respond_with_positions(target, executed.clone())).await?,
        true => {
            let response = reads.respond(AuthorizedRead::new(target, &executed), ContentCoding::Identity).await?;
            let end = executed.offset.saturating_add(response.total);
            (response, (executed.offset..end).take(MAX_PAGE_ENTITIES).collect())
        }
    };
    let match_count = match response.matches.or_else(|| executed.infer_match_count(response.total)) {
        // If counting takes too long or fails, the page has a link with which users can request the count.
        None if cost_class == CostClass::Medium => {
            let counting = Box::pin(reads.count_matches(target, request));
            tokio::time::timeout(COUNT_TIMEOUT, counting).await.ok().and_then(Result::ok)
        }
        match_count => match_count,
    };
    Ok(PageRead { response, positions, executed_request: executed, match_count })
}

fn range_summary(offset: u64, shown: u64, all: Option<u64>) -> String {
    let first = format::group_thousands(offset.saturating_add(1));
    let total = all.map(|all| format::pluralize(all, "entity", "entities"));
    let of = total.as_ref().map(|total| format!(" of {total}")).unwrap_or_default();
    match (shown, total) {
        (0, _) if all == Some(0) => "No entities match.".to_owned(),
        (0, Some(total)) => format!("No entities to show from number {first} onward ({total} in total)."),
        (0, None) => format!("No entities to show from number {first} onward."),
        (1, _) => format!("{first}{of}"),
        _ => format!("{first} to {}{of}", format::group_thousands(offset.saturating_add(shown))),
    }
}

fn page_links(links: &BrowseLinks<'_>, request: &ReadRequest, fits: u64, returned: u64, all: Option<u64>) -> PageLinks {
    let limit = request.limit.unwrap_or(ENTITIES_PER_PAGE);
    let offset = request.offset;
    let page_url = |offset: u64| match offset {
        0 => links.page_url(&links.query.without(&["offset"])),
        offset => links.page_url(&links.query.with_replaced("offset", offset)),
    };
    if limit == 0 {
        return PageLinks::default();
    }
    // The next page begins after the entities that fit into this page. An entity that is too large has its own page, so
    // that users can skip it.
    let next = offset.saturating_add(if fits < returned { fits.max(1) } else { limit });
    let has_next = returned > 0 && all.map_or(returned == limit, |all| next < all);
    let last = all.filter(|all| *all > 0).map(|all| (all - 1) / limit * limit);
    PageLinks {
        first: (offset > 0).then(|| page_url(0)),
        previous: (offset > 0).then(|| page_url(offset.saturating_sub(limit).min(last.unwrap_or(u64::MAX)))),
        next: has_next.then(|| page_url(next)),
        last: last.filter(|last| *last > offset && has_next).map(page_url),
    }
}

/// Returns the names of the requested columns. Fields of flattened entities are named by their path.
fn requested_columns(links: &BrowseLinks<'_>, request: &ReadRequest) -> Vec<String> {
    let paths = FieldPath::parse_list(&links.query.values(COLUMNS_PARAM).collect::<Vec<_>>().join(","));
    let names = paths.iter().filter_map(|path| match path.keys() {
        [field] => Some(field.clone()),
        keys if request.flatten => Some(keys.join(".")),
        _ => None,
    });
    let mut seen = HashSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// Returns whether the read returns consecutive entities of the version, so that their positions are known.
fn has_consecutive_entities(request: &ReadRequest) -> bool {
    !request.has_predicates() && request.sort.is_none() && !request.dedup && request.sample.is_none()
}
