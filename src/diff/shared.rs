//! What two lists have in common without a look: rows of one file, as an alternate that was edited has them with its
//! version.
//!
//! A row that both have is equal to itself, so the two match, unless others are equal to it: of equal entities the
//! first of v1 matches the first of v2, and so on, and the last ones are left. So a row is left out of the matching
//! only if it is equal to none that is not shared. The stored hashes tell, at the cost of one column of one version.

use std::ops::{ControlFlow, Range};

use arrow::array::AsArray;
use hashbrown::HashSet;
use strata_format::reader::{SharedRows, VersionReader};
use strata_query::QueryError;
use strata_query::account::Accounted;
use strata_store::StorageError;

use super::Session;

/// Maximum number of entities that are matched in memory. If there are more, all entities are matched as those of any
/// two versions.
const MAX_IN_MEMORY: usize = 1 << 18;

/// Bytes of a canonical hash that entities are compared by.
pub(super) const HASH_BYTES: usize = 16;

pub(super) struct Rest {
    pub(super) positions: [Accounted<u64>; 2],
    /// What both share. The positions in it that are not above match each other.
    pub(super) shared: Vec<SharedRows>,
}

/// What is left to be matched; `None` where that is too much, or nothing is shared.
pub(super) async fn rest(session: &Session) -> Result<Option<Rest>, QueryError> {
    let [one, other] = &session.readers;
    let shared = one.shared_rows(other);
    let of_both: u64 = shared.iter().map(|shared| shared.rows).sum();
    let alone = one.entity_count() + other.entity_count() - 2 * of_both;
    if shared.is_empty() || alone > MAX_IN_MEMORY as u64 {
        return Ok(None);
    }
    let mut positions = [Accounted::new(&session.reservation), Accounted::new(&session.reservation)];
    let mut hashes: HashSet<[u8; HASH_BYTES]> = HashSet::new();
    for (version, reader) in session.readers.iter().enumerate() {
        let mut next = 0;
        let ends = shared.iter().map(|shared| (shared.first[version], shared.first[version] + shared.rows));
        for (start, end) in ends.chain(std::iter::once((reader.entity_count(), reader.entity_count()))) {
            let alone = for_hashes(reader, next..start, |position, hash| {
                hashes.insert(hash);
                positions[version].push(position)?;
                Ok(ControlFlow::Continue(()))
            });
            let _all = alone.await?;
            next = end;
        }
    }
    // What is equal to one of those, in both.
    let mut equal: Vec<[u64; 2]> = Vec::new();
    for SharedRows { first, rows } in shared.iter().filter(|_| !hashes.is_empty()) {
        let found = for_hashes(one, first[0]..first[0] + rows, |position, hash| {
            if hashes.contains(&hash) {
                equal.push([position, first[1] + (position - first[0])]);
            }
            Ok(if equal.len() > MAX_IN_MEMORY { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        if found.await?.is_break() {
            return Ok(None);
        }
    }
    for (version, positions) in positions.iter_mut().enumerate() {
        positions.extend(equal.iter().map(|pair| pair[version]))?;
        positions.items_mut().sort_unstable();
    }
    Ok(Some(Rest { positions, shared }))
}

/// Calls `each` with the positions and the hashes of a range of entities, until it breaks.
async fn for_hashes(
    reader: &VersionReader,
    range: Range<u64>,
    mut each: impl FnMut(u64, [u8; HASH_BYTES]) -> Result<ControlFlow<()>, QueryError>,
) -> Result<ControlFlow<()>, QueryError> {
    let mut position = range.start;
    while position < range.end {
        // Cancelling takes effect between row groups, even when nothing has to be waited for.
        tokio::task::consume_budget().await;
        let row_group = reader.row_group_of(position);
        let group = reader.row_groups()[row_group];
        let hashes = reader.hashes(row_group).await?;
        let hashes = hashes.as_fixed_size_binary_opt();
        let end = range.end.min(group.first + group.rows as u64);
        for position in position..end {
            let hash = hashes.and_then(|hashes| hashes.value((position - group.first) as usize).first_chunk());
            let damaged = || StorageError::Layout("a hash is truncated".to_owned());
            if each(position, *hash.ok_or_else(damaged)?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        position = end;
    }
    Ok(ControlFlow::Continue(()))
}

impl Rest {
    /// The positions in v1 of what is left out: each matches what both share there.
    pub(super) fn left_out(&self) -> impl Iterator<Item = u64> {
        let mut taken = self.positions[0].iter().copied().peekable();
        let of_both = self.shared.iter().flat_map(|shared| shared.first[0]..shared.first[0] + shared.rows);
        of_both.filter(move |position| {
            while taken.next_if(|taken| taken < position).is_some() {}
            taken.peek() != Some(position)
        })
    }
}
