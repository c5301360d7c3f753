//! How much work a read is, told from the request and the layout before anything runs, so that heavy ones can wait for
//! their turn while light ones pass.
//!
//! The measure is bytes, and assumes the worst: that every predicate looks at every entity.
//!
//! | Work | Bytes |
//! |---|---|
//! | an entity in a stored column: a filter, a sort or a dedup by shredded columns, a dedup by hashes, a sample | 16 |
//! | an entity that the hash index of a column names for an exact filter | 64 |
//! | an entity in the order of a column that a sort with a limit makes first | 64 |
//! | an entity of the answer to a sort or a dedup that is read off what is kept of the version | 16 |
//! | the search text: keywords, a filter on a path without a shredded column that it or shapes settle | a quarter of the documents |
//! | the same, as far as the keyword index answers | between a thousandth and a hundredth of the documents for each word |
//! | documents: what only they can answer, as a range of texts on a path without a shredded column | the documents, and 16 for each entity and each further such condition |
//! | the count of what matches, for `total` | what a request for that count is |
//! | the columns of a table; the order of a sorted answer; once more, the types of columns | the documents of at most `limit` entities |
//!
//! Otherwise the documents of the answer do not count: they are fetched while it is sent, a few at a time.

use strata_format::aux_index::AuxLookup;
use strata_format::keywords::cut::{Class, Plan};
use strata_format::reader::VersionReader;
use strata_types::request::{Format, ReadRequest};

use crate::fetch::reshape::Reshape;
use crate::fetch::selection::Outcome;
use crate::kept;
use crate::scan::access::Condition;
use crate::scan::dedup_key::GroupSpec;
use crate::scan::kept_groups::kept_firsts;
use crate::scan::kept_index;
use crate::scan::kept_order::kept_order;
use crate::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::scan::report::AccessName;
use crate::scan::sort_key::{self, OrderSpec};

/// Bytes that one value of a stored column counts.
const VALUE_BYTES: u64 = 16;

/// The same of an entity that a hash index names: its value is looked at by itself.
const CANDIDATE_BYTES: u64 = 64;

/// Making the order of a column is as much work as so many look at it.
const ORDER_MAKING: u64 = 4;

/// The documents of a version are this many times the work of its search text.
const SEARCH_DIVISOR: u64 = 4;

/// The documents of a version are this many times the work of a word in its keyword index,
const WORD_DIVISOR: u64 = 1_024;

/// of one that may be part of hexadecimal numbers, of which there may be many,
const HEXADECIMAL_DIVISOR: u64 = 256;

/// and of one that is short or has several pieces: many entities may have to be listed, or verified.
const DEAR_DIVISOR: u64 = 128;

/// The work of a request before its answer begins, in bytes. Costs a few look-ups in the cache.
pub async fn work_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    // Nothing is to be found out about the entities, nor about columns.
    let finds_columns = request.format.is_table() && !request.count;
    if kept::is_by_position(request) && !finds_columns {
        return 0;
    }
    let answering = Box::pin(answering_bytes(reader, request)).await;
    if !request.total {
        return answering;
    }
    // Counted once more, where the answer does not tell.
    answering.saturating_add(Box::pin(answering_bytes(reader, &request.matching())).await)
}

async fn answering_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let selecting = match kept::read_off(reader, request).await {
        Some(Outcome::Count(_)) => VALUE_BYTES,
        Some(Outcome::Selection(selection)) => VALUE_BYTES.saturating_mul(selection.len()),
        None => selecting_bytes(reader, request).await,
    };
    if !(request.format.is_table() || request.sort.is_some()) || request.count {
        return selecting;
    }
    let most = [request.limit, request.sample].into_iter().flatten().fold(layout.entity_count, u64::min);
    let mean = layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default();
    // Columns, then their types.
    let passes = if request.typed && request.format == Format::Parquet { 2 } else { 1 };
    selecting.saturating_add(most.saturating_mul(mean).saturating_mul(passes))
}

async fn selecting_bytes(reader: &VersionReader, request: &ReadRequest) -> u64 {
    let layout = reader.layout();
    let (column, documents) = (VALUE_BYTES.saturating_mul(layout.entity_count), layout.document_bytes);
    let reshape = Reshape::of(request);
    let order = OrderSpec::of(request, &reshape);
    let mut work = 0_u64;
    let mut add = |bytes: u64| work = work.saturating_add(bytes);
    // A few walks of a document test all of them.
    let mut walks_documents = false;
    for condition in conditions(reader, request) {
        add(condition.work_bytes(reader, &mut walks_documents).await);
    }
    let is_of_all = kept::is_of_all(request);
    if let (Some(sort), false) = (&request.sort, request.count) {
        add(match &order {
            _ if sort_key::order_column(layout, &sort.field).is_none() => documents,
            Some(order) if is_of_all && request.limit.is_some() && !request.dedup => {
                match kept_order(reader, order).await {
                    AuxLookup::Miss => column.saturating_mul(ORDER_MAKING),
                    AuxLookup::Hit(_) | AuxLookup::Unsupported => column,
                }
            }
            _ => column,
        });
    }
    if let Some(groups) = GroupSpec::of(request, &reshape) {
        let is_kept = is_of_all && order.is_none() && kept_firsts(reader, &groups).await.is_some();
        add(match groups.sources(reader).await {
            _ if is_kept || groups.is_stored() => column,
            Some((paths, entities)) => {
                let from_documents = share(documents, entities, layout.entity_count);
                column.saturating_mul(paths.max(1) as u64).saturating_add(from_documents)
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
            let candidates = kept_index::candidate_count(reader, column.column, column.compare).await;
            return candidates.map_or(all_values, |count| CANDIDATE_BYTES.saturating_mul(count)).min(all_values);
        }
        match self.access {
            // Documents verify the matches, which are hardly ever most of them.
            AccessName::SearchText | AccessName::SearchTextThenDocuments => self.full_text_bytes(reader),
            AccessName::SearchTextAndShapes if self.predicate.searched().is_some() => self.full_text_bytes(reader),
            // The path index tells which entities have the path, and the full-text column what their values are.
            AccessName::SearchTextAndShapes if !self.predicate.needs_exact_text() => {
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
            Plan::Exact(piece) if piece.bytes.len() < 3 => documents / DEAR_DIVISOR,
            Plan::Exact(piece) if piece.may_be_in(Class::Hexadecimal) => documents / HEXADECIMAL_DIVISOR,
            Plan::Exact(_) => documents / WORD_DIVISOR,
            Plan::Pieces(_) => documents / DEAR_DIVISOR,
            Plan::Scan => scan,
        };
        let index = texts.iter().map(work).fold(0, u64::saturating_add);
        let entities = reader.entity_count();
        let unindexed = share(scan, entities.max(1).saturating_sub(indexed), entities);
        share(index, indexed, entities).saturating_add(unindexed).min(scan)
    }
}

/// The part of some work that these rows of all entities are.
fn share(work: u64, rows: u64, entities: u64) -> u64 {
    (u128::from(work) * u128::from(rows) / u128::from(entities.max(1))) as u64
}

/// The conditions of a request, even if earlier steps remove the fields that they test.
pub fn conditions(reader: &VersionReader, request: &ReadRequest) -> impl Iterator<Item = Condition> {
    let denull = request.denull;
    let compares = Comparison::of(request).map(move |(comparison, condition)| {
        let compare = Compare::new(comparison, condition.path.clone(), &condition.value, denull);
        Predicate::Compare(Box::new(compare))
    });
    let keywords = (!request.keywords.is_empty()).then(|| {
        let words = request.keywords.clone();
        Predicate::Keywords(Keywords::new(words, request.keywords_mode, Reshape::of(request)))
    });
    compares.chain(keywords).map(move |predicate| Condition::new(reader, predicate))
}
