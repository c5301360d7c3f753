//! Runs requests from cached indexes, without a plan: a sort with a limit, a `dedup` of a whole version, and a single
//! exact filter. A plan would return the same entities, but cost more than fetching a page of them.
//!
//! Measured by the rows `sort by …`, `dedup …` and `filter id, unique` of `benches/reads`.

use strata_format::aux_index::{AuxKey, SortIndexCursor, SortedPrefix};
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::read_request::ReadRequest;

use crate::fetch::entity_projection::EntityProjection;
use crate::fetch::selection::{EntitySelection, QueryOutcome};
use crate::scan::dedup_spec::DedupSpec;
use crate::scan::predicate::{ComparisonOperator, PathComparison};
use crate::scan::sort_key::{self, OrderSpec};
use crate::scan::{distinct_cache, hash_index, sort_index};

/// Longer lists of entity positions come from a plan, which reserves their memory.
const MAX_CACHED_POSITIONS: usize = 4_096;
/// A sort that needs at most this many of its first entities finds as many, so that the next pages need no scan.
const SORTED_PREFIX_ENTITIES: u64 = 1_000;

/// Whether a request has no predicates and no sample, so that later steps process all entities of a version.
pub(super) fn covers_all_entities(request: &ReadRequest) -> bool {
    !request.has_predicates() && request.sample.is_none()
}

/// Whether only `offset` and `limit` decide which entities a request selects.
pub(super) fn selects_position_range(request: &ReadRequest) -> bool {
    covers_all_entities(request) && request.sort.is_none() && !request.dedup
}

/// Runs a sort or a dedup if a cached index contains the result. Costs a few cache lookups.
pub(super) async fn try_sort_or_dedup_index(reader: &VersionReader, request: &ReadRequest) -> Option<QueryOutcome> {
    if !covers_all_entities(request) || !(request.dedup || request.sort.is_some()) {
        return None;
    }
    let offset = usize::try_from(request.offset).ok()?;
    let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let projection = EntityProjection::from_request(request);
    let positions: Vec<u64> =
        match (OrderSpec::from_request(request, &projection), DedupSpec::from_request(request, &projection)) {
            (None, Some(dedup)) => {
                let representatives = distinct_cache::cached_first_entities(reader, &dedup).await?;
                let count = representatives.count().saturating_sub(offset).min(limit);
                if request.count {
                    return Some(QueryOutcome::Count(count as u64));
                }
                if count > MAX_CACHED_POSITIONS {
                    return None;
                }
                representatives.skip_and_take(offset, count)
            }
            (Some(order), None) if limit.saturating_add(offset) <= MAX_CACHED_POSITIONS => {
                match sort_index::cached_sort_index(reader, &order).await.into_hit() {
                    Some(index) => {
                        SortIndexCursor::new(index, order.direction()).skip(offset).take(limit).map(u64::from).collect()
                    }
                    None => {
                        let (key, _) = sorted_prefix(reader, request)?;
                        let prefix = reader.cached_aux_index::<SortedPrefix>(key).await.into_hit()?;
                        prefix.0.iter().copied().skip(offset).take(limit).collect()
                    }
                }
            }
            _ => return None,
        };
    Some(QueryOutcome::Selection(EntitySelection::from_list(positions)))
}

/// Returns the cache key and the request of the first entities of a sort, if the request needs only some of them.
pub(super) fn sorted_prefix(reader: &VersionReader, request: &ReadRequest) -> Option<(AuxKey, ReadRequest)> {
    let is_page = request.limit.is_some_and(|limit| limit.saturating_add(request.offset) <= SORTED_PREFIX_ENTITIES);
    if !is_page || !covers_all_entities(request) || request.dedup || request.count {
        return None;
    }
    let order = OrderSpec::from_request(request, &EntityProjection::from_request(request))?;
    let column = sort_key::sortable_column(reader.layout(), &order.field)? as u32;
    // In small versions, the sort index is built at once.
    if sort_index::is_built_at_once(reader, SORTED_PREFIX_ENTITIES) {
        return None;
    }
    let key = AuxKey::SortedPrefix { column, direction: order.direction(), denull: order.denull };
    Some((key, ReadRequest { offset: 0, limit: Some(SORTED_PREFIX_ENTITIES), total: false, ..request.clone() }))
}

/// Caches the result of [`sorted_prefix`], and returns the entities of `request` in it.
pub(super) async fn cache_sorted_prefix(
    reader: &VersionReader,
    key: AuxKey,
    outcome: QueryOutcome,
    request: &ReadRequest,
) -> QueryOutcome {
    let QueryOutcome::Selection(selection) = &outcome else { return outcome };
    let positions = selection.positions().to_vec();
    let page = positions.iter().copied().skip(request.offset as usize).take(request.limit.unwrap_or_default() as usize);
    let page = EntitySelection::from_list(page.collect());
    // If the cache rejects the prefix, the next request computes it again.
    let _ = reader.build_aux_index(key, Box::pin(async { Ok(Some(SortedPrefix(positions))) })).await;
    QueryOutcome::Selection(page)
}

/// Runs a request whose only predicate is an exact filter. `None` if no hash index of the filtered column is cached, if
/// the index lists many entities, or if the cache does not contain the values of these entities.
pub(super) async fn try_hash_index(
    reader: &VersionReader,
    request: &ReadRequest,
) -> Result<Option<QueryOutcome>, StorageError> {
    let ReadRequest { filters, contains_filters, range_filters: ranges, keywords, sort, dedup, sample, .. } = request;
    let [filter] = filters.as_slice() else { return Ok(None) };
    if !(contains_filters.is_empty() && ranges.iter().all(Vec::is_empty) && keywords.is_empty())
        || sort.is_some()
        || *dedup
        || sample.is_some()
    {
        return Ok(None);
    }
    let projection = EntityProjection::from_request(request);
    if !projection.is_path_included(filter.path.keys()) {
        return Ok(None);
    }
    let Some(column) = reader.layout().find_shredded(filter.path.keys()) else { return Ok(None) };
    let nulls = projection.null_treatment();
    let comparison = PathComparison::new(ComparisonOperator::Equal, filter.path.clone(), &filter.value, nulls);
    let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(request.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let wanted = limit.saturating_add(offset);
    let rows = hash_index::find_rows_in_hash_index(reader, column, &comparison, MAX_CACHED_POSITIONS, wanted).await?;
    let Some(rows) = rows else { return Ok(None) };
    let positions: Vec<u64> = rows.into_iter().map(u64::from).skip(offset).take(limit).collect();
    Ok(Some(match request.count {
        true => QueryOutcome::Count(positions.len() as u64),
        false => QueryOutcome::Selection(EntitySelection::from_list(positions)),
    }))
}
