//! Requests that cached indexes answer without a plan: a sort with a limit, a `dedup` of a whole version, and a single
//! exact filter. A plan would return the same, but cost more than a page.
//!
//! Measured by the rows `sort by …`, `dedup …` and `filter id, unique` of `benches/reads`.

use strata_format::aux_index::OrderCursor;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::request::ReadRequest;

use crate::fetch::reshape::Reshape;
use crate::fetch::selection::{Outcome, Selection};
use crate::scan::dedup_key::GroupSpec;
use crate::scan::predicate::{Compare, Comparison};
use crate::scan::sort_key::OrderSpec;
use crate::scan::{distinct_cache, hash_index, sort_index};

/// Plans return longer lists, and account for their memory.
const MAX_POSITIONS: usize = 4_096;

/// Whether a request is about all entities of a version.
pub(super) fn is_of_all(request: &ReadRequest) -> bool {
    !request.has_conditions() && request.sample.is_none()
}

/// Whether only `offset` and `limit` decide which entities a request selects.
pub(super) fn is_by_position(request: &ReadRequest) -> bool {
    is_of_all(request) && request.sort.is_none() && !request.dedup
}

/// The outcome of a sort or a dedup, if a cached index contains it. Costs a few lookups in the cache.
pub(super) async fn try_cached(reader: &VersionReader, request: &ReadRequest) -> Option<Outcome> {
    if !is_of_all(request) || !(request.dedup || request.sort.is_some()) {
        return None;
    }
    let offset = usize::try_from(request.offset).ok()?;
    let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let reshape = Reshape::of(request);
    let positions: Vec<u64> =
        match (OrderSpec::from_request(request, &reshape), GroupSpec::from_request(request, &reshape)) {
            (None, Some(groups)) => {
                let firsts = distinct_cache::lookup(reader, &groups).await?;
                let found = firsts.count().saturating_sub(offset).min(limit);
                if request.count {
                    return Some(Outcome::Count(found as u64));
                }
                if found > MAX_POSITIONS {
                    return None;
                }
                firsts.window(offset, found)
            }
            (Some(order), None) if limit.saturating_add(offset) <= MAX_POSITIONS => {
                let index = sort_index::lookup(reader, &order).await.hit()?;
                OrderCursor::new(index, order.descending).skip(offset).take(limit).map(u64::from).collect()
            }
            _ => return None,
        };
    Some(Outcome::Selection(Selection::from_list(positions)))
}

/// The outcome of a request whose only condition is an exact filter. `None` if there is no cached hash index of its
/// column, if the index lists many entities, or if the cache does not contain their values.
pub(super) async fn probe_index(
    reader: &VersionReader,
    request: &ReadRequest,
) -> Result<Option<Outcome>, StorageError> {
    let ReadRequest { filters, filters_contain, ranges, keywords, sort, dedup, sample, .. } = request;
    let [filter] = filters.as_slice() else { return Ok(None) };
    if !(filters_contain.is_empty() && ranges.iter().all(Vec::is_empty) && keywords.is_empty())
        || sort.is_some()
        || *dedup
        || sample.is_some()
        || !Reshape::of(request).sees(filter.path.keys())
    {
        return Ok(None);
    }
    let Some(shredded) = reader.layout().shredded(filter.path.keys()) else { return Ok(None) };
    let compare = Compare::new(Comparison::Equal, filter.path.clone(), &filter.value, request.denull);
    let offset = usize::try_from(request.offset).unwrap_or(usize::MAX);
    let limit = usize::try_from(request.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    let wanted = limit.saturating_add(offset);
    let found = hash_index::find_rows(reader, shredded, &compare, MAX_POSITIONS, wanted).await?;
    let Some(found) = found else { return Ok(None) };
    let window: Vec<u64> = found.into_iter().map(u64::from).skip(offset).take(limit).collect();
    Ok(Some(match request.count {
        true => Outcome::Count(window.len() as u64),
        false => Outcome::Selection(Selection::from_list(window)),
    }))
}
