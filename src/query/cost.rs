//! Estimates the work of a request. Heavy requests wait for a permit; light requests do not.
//!
//! The unit is bytes. The estimate is an upper limit: every predicate is evaluated for every entity.
//!
//! | Work | Bytes |
//! |---|---|
//! | an entity in a stored column: a filter, sort or dedup by indexed columns, a dedup by hashes, a sample | 16 |
//! | an entity that the hash index of a column lists for an exact filter | 64 |
//! | an entity in the sort index of a column that a sort builds for a large `limit` or `offset` | 64 |
//! | an entity of a response to a sort or a dedup that a cached index contains | 16 |
//! | the keyword index: keywords, or a text at a path without an indexed column | 1/1,024 to 1/128 of the documents for each word |
//! | documents, for other filters without an indexed column | the documents; 16 for each entity and further predicate |
//! | the count of the matches, for `total` | as much as a request for that count |
//! | the columns of a table, their types, and the order of a response | the documents of at most `limit` entities |
//!
//! The other documents of a response do not count, because they are read in small parts while the response is sent.

use strata_format::aux_index::AuxLookup;
use strata_format::keywords::tokenizer::{TermQuery, TokenClass};
use strata_format::reader::VersionReader;
use strata_types::read_request::ReadRequest;

use crate::cached_response;
use crate::fetch::entity_projection::EntityProjection;
use crate::fetch::selection::QueryOutcome;
use crate::scan::access_path::PlannedPredicate;
use crate::scan::dedup_spec::DedupSpec;
use crate::scan::predicate::Predicate;
use crate::scan::scan_report::AccessPath;
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::{distinct_cache, hash_index, sort_index};

const VALUE_WORK_BYTES: u64 = 16;
const CANDIDATE_WORK_BYTES: u64 = 64;
/// The work of building a sort index, as a multiple of reading its column.
const SORT_INDEX_BUILD_FACTOR: u64 = 4;

// The work of reading all documents, divided by the work of a lookup of a keyword in the keyword index. Keywords that
// can be part of a hexadecimal number, are short, or have several tokens cost more.
const KEYWORD_DIVISOR: u64 = 1_024;
const HEXADECIMAL_KEYWORD_DIVISOR: u64 = 256;
const EXPENSIVE_KEYWORD_DIVISOR: u64 = 128;

/// Estimates the work of a request before its response begins, in bytes. Costs a few cache lookups.
pub async fn estimate_request_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let needs_columns = request.format.is_table() && !request.count;
    if cached_response::selects_position_range(request) && !needs_columns {
        return 0;
    }
    let response_bytes = Box::pin(estimate_response_bytes(reader, request)).await;
    if !request.total {
        return response_bytes;
    }
    response_bytes.saturating_add(Box::pin(estimate_response_bytes(reader, &request.to_count_request())).await)
}

async fn estimate_response_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let selection_bytes = match cached_response::try_sort_or_dedup_index(reader, request).await {
        Some(QueryOutcome::Count(_)) => VALUE_WORK_BYTES,
        Some(QueryOutcome::Selection(selection)) => VALUE_WORK_BYTES.saturating_mul(selection.len()),
        None => estimate_selection_bytes(reader, request).await,
    };
    if !(request.format.is_table() || request.sort.is_some()) || request.count {
        return selection_bytes;
    }
    let max_entities = [request.limit, request.sample].into_iter().flatten().fold(layout.entity_count, u64::min);
    let mean_bytes = layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default();
    let passes = if request.typed && request.format.has_column_types() { 2 } else { 1 };
    selection_bytes.saturating_add(max_entities.saturating_mul(mean_bytes).saturating_mul(passes))
}

async fn estimate_selection_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let column = VALUE_WORK_BYTES.saturating_mul(layout.entity_count);
    let documents = layout.document_bytes;
    let projection = EntityProjection::from_request(request);
    let order = OrderSpec::from_request(request, &projection);
    let mut work = 0_u64;
    let mut add = |bytes: u64| work = work.saturating_add(bytes);
    let mut walks_documents = false;
    for condition in plan_predicates(reader, request) {
        add(condition.estimate_work_bytes(reader, &mut walks_documents).await);
    }
    let is_unfiltered = cached_response::covers_all_entities(request);
    if let (Some(sort), false) = (&request.sort, request.count) {
        let k = request.limit.map(|limit| limit.saturating_add(request.offset));
        let builds_index =
            is_unfiltered && !request.dedup && k.is_some_and(|k| sort_index::is_built_at_once(reader, k));
        add(match &order {
            _ if sort_key::sortable_column(layout, &sort.field).is_none() => documents,
            Some(order)
                if builds_index && matches!(sort_index::cached_sort_index(reader, order).await, AuxLookup::Miss) =>
            {
                column.saturating_mul(SORT_INDEX_BUILD_FACTOR)
            }
            _ => column,
        });
    }
    if let Some(dedup) = DedupSpec::from_request(request, &projection) {
        let is_cached =
            is_unfiltered && order.is_none() && distinct_cache::cached_first_entities(reader, &dedup).await.is_some();
        add(match dedup.compared_paths() {
            _ if is_cached || dedup.uses_stored_hashes() => column,
            Some(paths) => {
                let reads = dedup.plan_key_reads(reader, reader.cached_profile_paths().await.as_deref()).await;
                let document_work = scale_by_rows(documents, reads.max_documents_read(reader), layout.entity_count);
                column.saturating_mul(paths.len().max(1) as u64).saturating_add(document_work)
            }
            None => documents,
        });
    }
    if request.sample.is_some() && !request.count {
        add(column);
    }
    work
}

impl PlannedPredicate {
    /// The work of evaluating the predicate in all row groups. `walks_documents` is true after a predicate that reads
    /// all documents, because one walk tests all predicates.
    async fn estimate_work_bytes(&self, reader: &VersionReader, walks_documents: &mut bool) -> u64 {
        let documents = reader.layout().document_bytes;
        let all_values = VALUE_WORK_BYTES.saturating_mul(reader.layout().entity_count);
        if let Some(column) = self.indexed_comparison(reader) {
            let candidates = hash_index::candidate_count(reader, column.column, column.compare).await;
            return candidates.map_or(all_values, |count| CANDIDATE_WORK_BYTES.saturating_mul(count)).min(all_values);
        }
        match self.access_path {
            // Documents do not count, because only candidates of the index are verified, rarely most entities.
            AccessPath::KeywordIndex => self.estimate_keyword_index_bytes(reader),
            _ if std::mem::replace(walks_documents, true) => all_values.min(documents),
            _ => documents,
        }
    }

    fn estimate_keyword_index_bytes(&self, reader: &VersionReader) -> u64 {
        let documents = reader.layout().document_bytes;
        let indexed = reader.keyword_index().indexed_rows;
        let texts = self.predicate.full_text_needles().map_or(&[][..], |(texts, _)| texts);
        let work = |text: &Vec<u8>| match TermQuery::from_needle(text) {
            TermQuery::ExactFragment(piece) if piece.bytes.len() < 3 => documents / EXPENSIVE_KEYWORD_DIVISOR,
            TermQuery::ExactFragment(piece) if piece.may_match_class(TokenClass::Hexadecimal) => {
                documents / HEXADECIMAL_KEYWORD_DIVISOR
            }
            TermQuery::ExactFragment(_) => documents / KEYWORD_DIVISOR,
            TermQuery::Fragments(_) => documents / EXPENSIVE_KEYWORD_DIVISOR,
            // Other words exclude entities.
            TermQuery::Scan => 0,
        };
        let index = texts.iter().map(work).fold(0, u64::saturating_add);
        let entities = reader.entity_count();
        let unindexed = scale_by_rows(documents, entities.saturating_sub(indexed), entities);
        scale_by_rows(index, indexed, entities).saturating_add(unindexed).min(documents)
    }
}

fn scale_by_rows(work: u64, rows: u64, entities: u64) -> u64 {
    (u128::from(work) * u128::from(rows) / u128::from(entities.max(1))) as u64
}

pub fn plan_predicates(reader: &VersionReader, request: &ReadRequest) -> Vec<PlannedPredicate> {
    let projection = EntityProjection::from_request(request);
    Predicate::from_request(request, &projection).map(|predicate| PlannedPredicate::new(reader, predicate)).collect()
}
