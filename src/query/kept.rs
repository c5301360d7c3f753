//! Requests whose answer the cache holds already: the first of an order that is kept, and the first entities of groups
//! that are kept. A plan would give the same, and cost more than such a page.

use std::fmt;

use crate::model::request::ReadRequest;
use crate::query::fetch::reshape::Reshape;
use crate::query::scan::dedup_key::GroupSpec;
use crate::query::scan::kept_groups::kept_firsts;
use crate::query::scan::kept_order::{Kept, kept_order};
use crate::query::scan::sort_key::OrderSpec;
use crate::storage::derived::OrderCursor;
use crate::storage::reader::VersionReader;

/// Longer lists are left to plans, which account for their memory and give way.
const POSITIONS: usize = 4_096;

/// What is read off.
pub(super) enum ReadOff {
    /// `count=true`: how many entities the request would return.
    Count(u64),
    /// Their positions, in the order of the answer.
    List(Vec<u64>),
}

/// Whether a request has no condition and no sample: it is about all entities of a version.
pub(super) fn is_of_all(request: &ReadRequest) -> bool {
    !request.has_conditions() && request.sample.is_none()
}

/// What a request finds, if that can be read off. Costs some look-ups in the cache, and `offset` and `limit`, which are
/// bounded here.
pub(super) async fn read_off(reader: &VersionReader, request: &ReadRequest) -> Option<ReadOff> {
    if !is_of_all(request) || !(request.dedup || request.sort.is_some()) {
        return None;
    }
    let offset = usize::try_from(request.offset).ok()?;
    let limit = request.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let reshape = Reshape::of(request);
    let positions: Vec<u64> = match (OrderSpec::of(request, &reshape), GroupSpec::of(request, &reshape)) {
        (None, Some(groups)) => {
            let firsts = kept_firsts(reader, &groups).await?;
            let found = firsts.len().saturating_sub(offset).min(limit);
            if request.count {
                return Some(ReadOff::Count(found as u64));
            }
            if found > POSITIONS {
                return None;
            }
            firsts.window(offset, found)
        }
        (Some(order), None) if limit.saturating_add(offset) <= POSITIONS => {
            let Kept::Order(kept) = kept_order(reader, &order).await else { return None };
            OrderCursor::new(kept, order.descending).skip(offset).take(limit).map(u64::from).collect()
        }
        _ => return None,
    };
    Some(ReadOff::List(positions))
}

impl fmt::Display for ReadOff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadOff::Count(count) => write!(formatter, "kept: a count of {count}"),
            ReadOff::List(positions) => write!(formatter, "kept: {} positions", positions.len()),
        }
    }
}
