//! The estimated work of a request, from the request and the layout of the version. Heavy requests wait for a permit,
//! and light ones pass.
//!
//! The unit is bytes. The estimate assumes the worst case: that every predicate is evaluated for every entity.
//!
//! | Work | Bytes |
//! |---|---|
//! | an entity in a stored column: a filter, a sort or a dedup by indexed columns, a dedup by hashes, a sample | 16 |
//! | an entity that the hash index of a column lists for an exact filter | 64 |
//! | an entity in the sort index of a column that a sort with a limit builds | 64 |
//! | an entity of a response to a sort or a dedup that a cached index contains | 16 |
//! | the full-text column: keywords, or a filter on a path without an indexed column | a quarter of the documents |
//! | the same, as far as the keyword index replaces it | between a thousandth and a hundredth of the documents for each word |
//! | documents, such as for a range of strings on a path without an indexed column | the documents, and 16 for each entity and each further such condition |
//! | the count of the matches, for `total` | as much as a request for that count |
//! | the columns of a table; the order of a sorted response; again, the types of columns | the documents of at most `limit` entities |
//!
//! Otherwise the documents of the response do not count, because they are fetched a few at a time while it is sent.

use strata_format::aux_index::AuxLookup;
use strata_format::keywords::cut::{Class, Plan};
use strata_format::reader::VersionReader;
use strata_types::request::{Format, ReadRequest};

use crate::cached_answer;
use crate::fetch::reshape::Reshape;
use crate::fetch::selection::Outcome;
use crate::scan::access::Condition;
use crate::scan::dedup_key::GroupSpec;
use crate::scan::predicate::Predicate;
use crate::scan::report::AccessName;
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::{distinct_cache, hash_index, sort_index};

/// The work of a value in a stored column.
const VALUE_BYTES: u64 = 16;

/// The work of an entity that a hash index lists.
const CANDIDATE_BYTES: u64 = 64;

/// The work of building a sort index, as a multiple of reading its column.
const SORT_INDEX_FACTOR: u64 = 4;

// The work of reading all documents, as a multiple of other work: searching the full-text column, a word of the keyword
// index, a word that can be part of a hexadecimal number, and a word that is short or has several tokens.
const SEARCH_DIVISOR: u64 = 4;
const WORD_DIVISOR: u64 = 1_024;
const HEXADECIMAL_DIVISOR: u64 = 256;
const EXPENSIVE_WORD_DIVISOR: u64 = 128;

/// The work of a request before its response begins, in bytes. Costs a few lookups in the cache.
pub async fn work_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let finds_columns = request.format.is_table() && !request.count;
    if cached_answer::is_by_position(request) && !finds_columns {
        return 0;
    }
    let answering = Box::pin(answering_bytes(reader, request)).await;
    if !request.total {
        return answering;
    }
    answering.saturating_add(Box::pin(answering_bytes(reader, &request.matching())).await)
}

async fn answering_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let selecting = match cached_answer::try_cached(reader, request).await {
        Some(Outcome::Count(_)) => VALUE_BYTES,
        Some(Outcome::Selection(selection)) => VALUE_BYTES.saturating_mul(selection.len()),
        None => selecting_bytes(reader, request).await,
    };
    if !(request.format.is_table() || request.sort.is_some()) || request.count {
        return selecting;
    }
    let most = [request.limit, request.sample].into_iter().flatten().fold(layout.entity_count, u64::min);
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default();
    // The columns, then their types.
    let passes = if request.typed && request.format == Format::Parquet { 2 } else { 1 };
    selecting.saturating_add(most.saturating_mul(mean).saturating_mul(passes))
}

async fn selecting_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let column = VALUE_BYTES.saturating_mul(layout.entity_count);
    let documents = layout.document_bytes;
    let reshape = Reshape::of(request);
    let order = OrderSpec::from_request(request, &reshape);
    let mut work = 0_u64;
    let mut add = |bytes: u64| work = work.saturating_add(bytes);
    let mut walks_documents = false;
    for condition in conditions(reader, request) {
        add(condition.work_bytes(reader, &mut walks_documents).await);
    }
    let is_of_all = cached_answer::is_of_all(request);
    if let (Some(sort), false) = (&request.sort, request.count) {
        add(match &order {
            _ if sort_key::order_column(layout, &sort.field).is_none() => documents,
            Some(order) if is_of_all && request.limit.is_some() && !request.dedup => {
                match sort_index::lookup(reader, order).await {
                    AuxLookup::Miss => column.saturating_mul(SORT_INDEX_FACTOR),
                    AuxLookup::Hit(_) | AuxLookup::Unsupported => column,
                }
            }
            _ => column,
        });
    }
    if let Some(groups) = GroupSpec::from_request(request, &reshape) {
        let is_cached = is_of_all && order.is_none() && distinct_cache::lookup(reader, &groups).await.is_some();
        add(match groups.compared() {
            _ if is_cached || groups.is_stored() => column,
            Some(paths) => {
                let reads = groups.reads(reader, reader.cached_paths().await.as_deref()).await;
                let from_documents = share(documents, reads.entities_in_documents(reader), layout.entity_count);
                column.saturating_mul(paths.len().max(1) as u64).saturating_add(from_documents)
            }
            None => documents,
        });
    }
    if request.sample.is_some() && !request.count {
        add(column);
    }
    work
}

impl Condition {
    /// The work of evaluating the condition in all row groups. `walks_documents` is whether another condition reads all
    /// documents: one walk tests all conditions.
    async fn work_bytes(&self, reader: &VersionReader, walks_documents: &mut bool) -> u64 {
        let documents = reader.layout().document_bytes;
        let all_values = VALUE_BYTES.saturating_mul(reader.layout().entity_count);
        if let Some(column) = self.indexed_column(reader) {
            let candidates = hash_index::candidate_count(reader, column.column, column.compare).await;
            return candidates.map_or(all_values, |count| CANDIDATE_BYTES.saturating_mul(count)).min(all_values);
        }
        let needs_exact_text = matches!(&self.predicate, Predicate::Compare(compare) if compare.needs_exact_text());
        match self.access {
            // Documents verify only the matches, which are rarely most of the entities.
            AccessName::SearchText | AccessName::SearchTextThenDocuments => self.full_text_bytes(reader),
            AccessName::SearchTextAndShapes if self.predicate.searched().is_some() => self.full_text_bytes(reader),
            // The path index knows which entities have the path, and the full-text column contains their values.
            AccessName::SearchTextAndShapes if !needs_exact_text => {
                let rows = reader.shape_index().row_groups().filter_map(|row_group| reader.row_groups().get(row_group));
                let indexed: u64 = rows.map(|row_group| row_group.rows as u64).sum();
                let saved = documents - documents / SEARCH_DIVISOR;
                documents - share(saved, indexed.min(reader.entity_count()), reader.entity_count())
            }
            _ if std::mem::replace(walks_documents, true) => all_values.min(documents),
            _ => documents,
        }
    }

    /// The work of searching the full-text column, as far as the keyword index does not replace it.
    fn full_text_bytes(&self, reader: &VersionReader) -> u64 {
        let documents = reader.layout().document_bytes;
        let scan = documents / SEARCH_DIVISOR;
        let indexed = reader.keyword_index().rows;
        if indexed == 0 {
            return scan;
        }
        let texts = self.predicate.searched().map_or(&[][..], |(texts, _)| texts);
        let work = |text: &Vec<u8>| match Plan::of(text) {
            Plan::Exact(piece) if piece.bytes.len() < 3 => documents / EXPENSIVE_WORD_DIVISOR,
            Plan::Exact(piece) if piece.may_be_in(Class::Hexadecimal) => documents / HEXADECIMAL_DIVISOR,
            Plan::Exact(_) => documents / WORD_DIVISOR,
            Plan::Pieces(_) => documents / EXPENSIVE_WORD_DIVISOR,
            Plan::Scan => scan,
        };
        let index = texts.iter().map(work).fold(0, u64::saturating_add);
        let entities = reader.entity_count();
        let unindexed = share(scan, entities.max(1).saturating_sub(indexed), entities);
        share(index, indexed, entities).saturating_add(unindexed).min(scan)
    }
}

/// `rows / entities` of some work.
fn share(work: u64, rows: u64, entities: u64) -> u64 {
    (u128::from(work) * u128::from(rows) / u128::from(entities.max(1))) as u64
}

/// The conditions of a request. See [`Predicate::from_request`].
pub fn conditions(reader: &VersionReader, request: &ReadRequest) -> Vec<Condition> {
    let reshape = Reshape::of(request);
    Predicate::from_request(request, &reshape).map(|predicate| Condition::new(reader, predicate)).collect()
}
