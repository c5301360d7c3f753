//! Queries the keyword index for the predicates of a scan. Each segment is searched once for all of its row groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::{BooleanBuffer, Buffer};
use fixedbitset::FixedBitSet;
use futures::future::try_join_all;
use parking_lot::Mutex;
use strata_format::keywords::field_set::{FieldSet, OTHER_PATHS};
use strata_format::keywords::segment::{KeywordCandidates, StoredSegment};
use strata_format::keywords::tokenizer::TermQuery;
use strata_format::reader::{KeywordRows, VersionReader};
use strata_store::StorageError;
use strata_types::read_request::KeywordsMode;
use tokio::sync::OnceCell;

use crate::coop::YieldBudget;
use crate::fetch::entity_projection::EntityProjection;
use crate::scan::access_path::{ExactRows, PlannedPredicate};
use crate::scan::predicate::Predicate;
use crate::scan::scan_report::AccessPath;

/// Limits of the number of keyword index segments whose results a scan caches. Row groups are processed in order, so
/// that few segments are in use, but more while row groups wait for the store.
const CACHED_SEGMENTS_RANGE: Range<usize> = 4..256;
const MAX_CACHED_RESULT_BYTES: usize = 32 << 20;
/// At least this many predicates use the index, even if their results are larger.
const MIN_INDEX_PREDICATES: usize = 4;
const NEEDLE_WORK_BYTES: usize = 256 << 10;

struct KeywordIndexQuery {
    term_queries: Vec<TermQuery>,
    mode: KeywordsMode,
    searched_paths: SearchedPaths,
}

enum SearchedPaths {
    /// One path, as keys.
    Path(Vec<String>),
    Projection(EntityProjection),
}

/// The fields of a segment that a query searches.
struct SearchedFields {
    /// Fields with only searched paths.
    certain: FieldSet,
    /// Also fields that other paths share.
    possible: FieldSet,
}

impl SearchedPaths {
    fn fields(&self, segment: &StoredSegment) -> SearchedFields {
        match self {
            SearchedPaths::Path(keys) => {
                let field = segment.fields.find(keys);
                let certain = if field == OTHER_PATHS { FieldSet::EMPTY } else { FieldSet::single(field) };
                SearchedFields { certain, possible: FieldSet::single(field) }
            }
            SearchedPaths::Projection(projection) if !projection.has_hidden_fields() => {
                SearchedFields { certain: FieldSet::ALL, possible: FieldSet::ALL }
            }
            SearchedPaths::Projection(projection) => {
                let included = segment.fields.fields().filter(|(keys, _)| projection.is_path_included(keys));
                let certain = included.fold(FieldSet::EMPTY, |all, (_, field)| all.union(FieldSet::single(field)));
                SearchedFields { certain, possible: certain.union(FieldSet::single(OTHER_PATHS)) }
            }
        }
    }
}

/// The rows that the keyword index lists for a predicate. Other rows do not match it, and exact rows do.
#[derive(Clone)]
pub(super) struct KeywordIndexRows {
    pub(super) candidates: BooleanBuffer,
    pub(super) exact: ExactRows,
}

impl KeywordIndexRows {
    fn slice(&self, start: usize, rows: usize) -> KeywordIndexRows {
        let exact = match &self.exact {
            ExactRows::Rows(exact) => ExactRows::Rows(exact.slice(start, rows)),
            other => other.clone(),
        };
        KeywordIndexRows { candidates: self.candidates.slice(start, rows), exact }
    }
}

/// The rows of a keyword index segment for each predicate. `None` if the index cannot help the predicate.
type SegmentIndexRows = Arc<[Option<KeywordIndexRows>]>;

pub(super) struct KeywordIndexQueries {
    /// One query for each predicate. `None` if the predicate does not use the keyword index.
    queries: Vec<Option<KeywordIndexQuery>>,
    max_cached_segments: usize,
    segment_results: Mutex<BTreeMap<usize, Arc<OnceCell<SegmentIndexRows>>>>,
}

impl KeywordIndexQueries {
    /// Returns `None` if the version has no keyword index, or if no predicate can use it. `is_searched` excludes
    /// predicates, by their number, for which other indexes have already found the entities.
    pub(super) fn new(
        reader: &VersionReader,
        conditions: &[PlannedPredicate],
        is_searched: impl Fn(usize) -> bool,
    ) -> Option<KeywordIndexQueries> {
        if reader.keyword_index().is_empty() {
            return None;
        }
        let segments = &reader.keyword_index().segments;
        let rows = segments.iter().map(|segment| segment.rows).sum::<usize>() / segments.len();
        let max_queries = (MAX_CACHED_RESULT_BYTES / result_bitmap_bytes(rows).max(1)).max(MIN_INDEX_PREDICATES);
        let mut query_count = 0;
        let queries = conditions.iter().enumerate().map(|(number, condition)| {
            let query = KeywordIndexQuery::new(reader, condition);
            let query = query.filter(|_| is_searched(number) && query_count < max_queries)?;
            query_count += 1;
            Some(query)
        });
        let queries: Vec<Option<KeywordIndexQuery>> = queries.collect();
        let segment_bytes = queries.iter().flatten().count() * result_bitmap_bytes(rows);
        let max_cached_segments = (MAX_CACHED_RESULT_BYTES / segment_bytes.max(1))
            .clamp(CACHED_SEGMENTS_RANGE.start, CACHED_SEGMENTS_RANGE.end);
        let keywords = || KeywordIndexQueries { queries, max_cached_segments, segment_results: Mutex::default() };
        (segment_bytes > 0).then(keywords)
    }

    pub(super) fn estimate_row_group_bytes(&self, reader: &VersionReader, row_group: usize) -> u64 {
        let estimate = |number: usize| {
            let Some(segment) = reader.keyword_index().segments.get(number) else { return 0 };
            let entries: u64 = segment.pages.iter().map(|page| u64::from(page.bytes)).sum();
            let result_size = self.queries.iter().flatten().count() * result_bitmap_bytes(segment.rows);
            (2 * entries + result_size as u64) / segment.row_groups.len().max(1) as u64
        };
        segments_of(&reader.keyword_rows(row_group).collect::<Vec<_>>()).into_iter().map(estimate).sum()
    }

    pub(super) fn has_keyword_query(&self, predicate: usize) -> bool {
        self.queries.get(predicate).is_some_and(Option::is_some)
    }

    /// Returns the rows of a row group that the keyword index lists per predicate; empty if no segment has the group.
    pub(super) async fn search_row_group(
        &self,
        reader: &VersionReader,
        row_group: usize,
    ) -> Result<Vec<Option<KeywordIndexRows>>, StorageError> {
        let rows: Vec<KeywordRows<'_>> = reader.keyword_rows(row_group).collect();
        // While another task searches one of the segments, this one searches the others.
        let searches = segments_of(&rows).into_iter().map(|number| async move {
            let cell = self.result_cell(number);
            let found = cell.get_or_try_init(|| self.search_segment(reader, number)).await?;
            Ok::<_, StorageError>((number, found.clone()))
        });
        let results: HashMap<usize, SegmentIndexRows> = try_join_all(searches).await?.into_iter().collect();
        if results.is_empty() {
            return Ok(Vec::new());
        }
        let count = reader.row_groups()[row_group].rows;
        Ok((0..self.queries.len()).map(|predicate| collect_rows(&rows, count, &results, predicate)).collect())
    }

    fn result_cell(&self, segment: usize) -> Arc<OnceCell<SegmentIndexRows>> {
        let mut results = self.segment_results.lock();
        let cell = results.entry(segment).or_default().clone();
        while results.len() > self.max_cached_segments {
            results.pop_first();
        }
        cell
    }

    async fn search_segment(&self, reader: &VersionReader, segment: usize) -> Result<SegmentIndexRows, StorageError> {
        let mut budget = YieldBudget::default();
        let mut results = Vec::with_capacity(self.queries.len());
        for query in &self.queries {
            results.push(match query {
                Some(query) => match query.search(reader, segment, &mut budget).await {
                    // Damage of the keyword index has been reported. Documents then decide all predicates.
                    Err(error) if error.is_file_damage() => return Ok(self.queries.iter().map(|_| None).collect()),
                    outcome => outcome?,
                },
                None => None,
            });
        }
        Ok(results.into())
    }
}

impl KeywordIndexQuery {
    fn new(reader: &VersionReader, condition: &PlannedPredicate) -> Option<KeywordIndexQuery> {
        let indexed = condition.indexed_comparison(reader);
        if let Some(column) = indexed.filter(|column| column.is_sought_in_keyword_index()) {
            let needle = column.compare.whole_text_needle();
            let query = Some(TermQuery::from_needle(&needle)).filter(|query| *query != TermQuery::Scan)?;
            return Some(KeywordIndexQuery {
                term_queries: vec![query],
                mode: KeywordsMode::And,
                searched_paths: SearchedPaths::Path(column.compare.path.keys().to_vec()),
            });
        }
        let (texts, mode) =
            condition.predicate.full_text_needles().filter(|_| condition.access_path == AccessPath::KeywordIndex)?;
        let searched_paths = match &condition.predicate {
            Predicate::Comparison(compare) => SearchedPaths::Path(compare.path.keys().to_vec()),
            Predicate::Keywords(keywords) => SearchedPaths::Projection(keywords.projection.clone()),
        };
        let term_queries = texts.iter().map(|text| TermQuery::from_needle(text)).collect();
        Some(KeywordIndexQuery { term_queries, mode, searched_paths })
    }

    async fn search(
        &self,
        reader: &VersionReader,
        segment: usize,
        budget: &mut YieldBudget,
    ) -> Result<Option<KeywordIndexRows>, StorageError> {
        let Some(stored) = reader.keyword_index().segments.get(segment) else { return Ok(None) };
        let fields = self.searched_paths.fields(stored);
        let mut candidates: Option<FixedBitSet> = None;
        // The rows that match for certain: of all words or of one of them, depending on the mode.
        let mut exact: Option<FixedBitSet> = None;
        let mut is_exact_known = true;
        for term_query in &self.term_queries {
            budget.yield_after(NEEDLE_WORK_BYTES).await;
            let found = reader.keyword_candidates(segment, term_query, fields.possible).await?;
            let (rows, certain) = match found {
                KeywordCandidates::Exact(rows) if fields.certain == fields.possible => (rows.clone(), Some(rows)),
                KeywordCandidates::Exact(rows) if rows.is_clear() => (rows.clone(), Some(rows)),
                KeywordCandidates::Exact(rows) if fields.certain.is_empty() => (rows, None),
                KeywordCandidates::Exact(rows) => {
                    match reader.keyword_candidates(segment, term_query, fields.certain).await? {
                        KeywordCandidates::Exact(certain) => (rows, Some(certain)),
                        _ => (rows, None),
                    }
                }
                KeywordCandidates::Recheck(rows) => (rows, None),
                KeywordCandidates::Scan if self.mode == KeywordsMode::Or => return Ok(None),
                KeywordCandidates::Scan => {
                    is_exact_known = false;
                    continue;
                }
            };
            match (&mut exact, certain, self.mode) {
                (_, None, KeywordsMode::And) => is_exact_known = false,
                (_, None, KeywordsMode::Or) => {}
                (None, Some(certain), _) => exact = Some(certain),
                (Some(exact), Some(certain), KeywordsMode::And) => exact.intersect_with(&certain),
                (Some(exact), Some(certain), KeywordsMode::Or) => exact.union_with(&certain),
            }
            match (&mut candidates, self.mode) {
                (None, _) => candidates = Some(rows),
                (Some(candidates), KeywordsMode::And) => candidates.intersect_with(&rows),
                (Some(candidates), KeywordsMode::Or) => candidates.union_with(&rows),
            }
            let is_decided = match self.mode {
                KeywordsMode::And => candidates.as_ref().is_some_and(FixedBitSet::is_clear),
                KeywordsMode::Or => exact.as_ref().is_some_and(FixedBitSet::is_full),
            };
            if is_decided {
                break;
            }
        }
        let exact = exact.filter(|_| is_exact_known);
        Ok(candidates.map(|candidates| KeywordIndexRows {
            exact: match exact {
                _ if candidates.is_clear() => ExactRows::All,
                Some(exact) if exact == candidates || exact.is_full() => ExactRows::All,
                Some(exact) => ExactRows::Rows(to_boolean_buffer(&exact)),
                None => ExactRows::None,
            },
            candidates: to_boolean_buffer(&candidates),
        }))
    }
}

/// Returns the segments with rows, each once.
fn segments_of(rows: &[KeywordRows<'_>]) -> BTreeSet<usize> {
    rows.iter().filter_map(|rows| rows.segment_range().map(|(segment, _)| segment)).collect()
}

/// Returns the rows of a row group that the results of its segments list for a predicate. All rows outside of segments
/// are candidates. `None` if a segment has no result.
fn collect_rows(
    rows: &[KeywordRows<'_>],
    count: usize,
    results: &HashMap<usize, SegmentIndexRows>,
    predicate: usize,
) -> Option<KeywordIndexRows> {
    let result = |segment: usize| results.get(&segment)?.get(predicate)?.as_ref();
    // All rows of the row group are consecutive in the segment.
    if let [rows] = rows
        && let Some((segment, range)) = rows.segment_range().filter(|(_, range)| range.len() == count)
        && rows.ranges().nth(1).is_none()
    {
        return Some(result(segment)?.slice(range.start, count));
    }
    let mut candidates = FixedBitSet::with_capacity(count);
    // Candidates that do not match for certain.
    let mut uncertain: Vec<usize> = Vec::new();
    for rows in rows {
        let Some((segment, range)) = rows.segment_range() else {
            for range in rows.ranges() {
                candidates.insert_range(range.clone());
                uncertain.extend(range);
            }
            continue;
        };
        let found = result(segment)?;
        let found_rows = found.candidates.slice(range.start, range.len());
        for (row, at) in rows.rows_of(found_rows.set_indices().map(|row| range.start + row)) {
            candidates.insert(at);
            if !found.exact.contains(row) {
                uncertain.push(at);
            }
        }
    }
    let exact = if uncertain.is_empty() {
        ExactRows::All
    } else {
        let mut exact = candidates.clone();
        uncertain.into_iter().for_each(|row| exact.remove(row));
        ExactRows::Rows(to_boolean_buffer(&exact))
    };
    Some(KeywordIndexRows { candidates: to_boolean_buffer(&candidates), exact })
}

/// Whether the keyword index can exclude entities: a text consists only of white space if it cannot.
pub(super) fn can_search(predicate: &Predicate) -> bool {
    let Some((needles, mode)) = predicate.full_text_needles() else { return false };
    let mut requires_scan = needles.iter().map(|needle| TermQuery::from_needle(needle) == TermQuery::Scan);
    // If one of several alternative words requires a scan, the index entries of the other words do not matter.
    !(if mode == KeywordsMode::Or { requires_scan.any(|scan| scan) } else { requires_scan.all(|scan| scan) })
}

fn result_bitmap_bytes(rows: usize) -> usize {
    2 * rows.div_ceil(8)
}

fn to_boolean_buffer(rows: &FixedBitSet) -> BooleanBuffer {
    // An Arrow bitmap consists of bytes, with the lowest byte first.
    let blocks: Vec<_> = rows.as_slice().iter().map(|block| block.to_le_bytes()).collect();
    BooleanBuffer::new(Buffer::from_vec(blocks.into_flattened()), 0, rows.len())
}
