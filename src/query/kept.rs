//! Requests whose answer the cache holds already: the first of an order that is kept, the first entities of groups that
//! are kept, and what one exact filter finds by a hash index that is kept. A plan would give the same, and cost more
//! than such a page.
//!
//! Measured by the rows `sort by …`, `dedup …` and `filter id, unique` of `benches/reads`.

use strata_format::aux_index::OrderCursor;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use strata_types::request::ReadRequest;

use crate::fetch::reshape::Reshape;
use crate::fetch::selection::{Outcome, Selection};
use crate::scan::dedup_key::GroupSpec;
use crate::scan::kept_groups::kept_firsts;
use crate::scan::kept_index;
use crate::scan::kept_order::kept_order;
use crate::scan::predicate::{Compare, Comparison};
use crate::scan::sort_key::OrderSpec;

/// Longer lists are left to plans, which account for their memory.
const POSITIONS: usize = 4_096;

/// Whether a request has no condition and no sample: it is about all entities of a version.
pub(super) fn is_of_all(request: &ReadRequest) -> bool {
    !request.has_conditions() && request.sample.is_none()
}

/// Whether `offset` and `limit` alone say which entities a request selects.
pub(super) fn is_by_position(request: &ReadRequest) -> bool {
    is_of_all(request) && request.sort.is_none() && !request.dedup
}

/// What a request finds, if that can be read off. Costs some look-ups in the cache, and `offset` and `limit`, which are
/// bounded here.
pub(super) async fn read_off(reader: &VersionReader, request: &ReadRequest) -> Option<Outcome> {
    if !is_of_all(request) || !(request.dedup || request.sort.is_some()) {
        return None;
    }
    let offset = usize::try_from(request.offset).ok()?;
    let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let reshape = Reshape::of(request);
    let positions: Vec<u64> = match (OrderSpec::of(request, &reshape), GroupSpec::of(request, &reshape)) {
        (None, Some(groups)) => {
            let firsts = kept_firsts(reader, &groups).await?;
            let found = firsts.count().saturating_sub(offset).min(limit);
            if request.count {
                return Some(Outcome::Count(found as u64));
            }
            if found > POSITIONS {
                return None;
            }
            firsts.window(offset, found)
        }
        (Some(order), None) if limit.saturating_add(offset) <= POSITIONS => {
            let kept = kept_order(reader, &order).await.hit()?;
            OrderCursor::new(kept, order.descending).skip(offset).take(limit).map(u64::from).collect()
        }
        _ => return None,
    };
    Some(Outcome::Selection(Selection::of_few(positions)))
}

/// What a request finds whose only condition is one exact filter, by the hash index of its column. `None` where none is
/// kept, where it names many, or where the cache does not hold their values.
pub(super) async fn found_by_index(
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
    let found = kept_index::found_by_index(reader, shredded, &compare, POSITIONS, wanted).await?;
    let Some(found) = found else { return Ok(None) };
    let window: Vec<u64> = found.into_iter().map(u64::from).skip(offset).take(limit).collect();
    Ok(Some(match request.count {
        true => Outcome::Count(window.len() as u64),
        false => Outcome::Selection(Selection::of_few(window)),
    }))
}
