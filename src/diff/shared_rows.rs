//! Finds the rows that both versions share in one file, so that most of them need no matching. For example, the
//! alternate (edited copy) of a version shares most rows with the version.
//!
//! A shared row equals itself and normally matches itself. But if several entities are equal, the first ones of v1 and
//! v2 match. Therefore, a shared row is excluded from the matching only if no unshared entity equals it. That test
//! costs a read of the hash column of one version.

use std::ops::{ControlFlow, Range};

use arrow::array::AsArray;
use hashbrown::HashSet;
use strata_format::reader::{SharedRowRun, VersionReader};
use strata_json::EntityHash;
use strata_query::QueryError;
use strata_query::tracked_vec::TrackedVec;
use strata_store::StorageError;

use super::DiffSession;

/// Maximum number of entities that are matched in memory. If there are more, the shared rows are not excluded.
const MAX_IN_MEMORY_ENTITIES: usize = 1 << 18;

/// The entities of two versions that a diff must match: all entities except most rows that the versions share.
pub(super) struct UnsharedEntities {
    /// Positions in v1 and v2, both ascending. They include each shared row that equals an unshared entity.
    pub(super) positions: [TrackedVec<u64>; 2],
    pub(super) shared_rows: Vec<SharedRowRun>,
}

/// Returns the entities that a diff must match; `None` if they are too many or if the versions share no rows.
pub(super) async fn find_unshared_entities(session: &DiffSession) -> Result<Option<UnsharedEntities>, QueryError> {
    let [v1, v2] = &session.readers;
    let shared_rows = v1.shared_rows(v2);
    let shared_count: u64 = shared_rows.iter().map(|run| run.rows).sum();
    let unshared_count = v1.entity_count() + v2.entity_count() - 2 * shared_count;
    if shared_rows.is_empty() || unshared_count > MAX_IN_MEMORY_ENTITIES as u64 {
        return Ok(None);
    }
    let mut positions = [TrackedVec::new(&session.reservation), TrackedVec::new(&session.reservation)];
    let mut hashes: HashSet<EntityHash> = HashSet::new();
    for (version, reader) in session.readers.iter().enumerate() {
        let mut next = 0;
        let runs =
            shared_rows.iter().map(|run| (run.first_positions[version], run.first_positions[version] + run.rows));
        for (start, end) in runs.chain(std::iter::once((reader.entity_count(), reader.entity_count()))) {
            let unshared = for_each_entity_hash(reader, next..start, |position, hash| {
                hashes.insert(hash);
                positions[version].try_push(position)?;
                Ok(ControlFlow::Continue(()))
            });
            let _all = unshared.await?;
            next = end;
        }
    }
    // The positions in v1 and v2 of the shared rows that equal an unshared entity.
    let mut equal: Vec<[u64; 2]> = Vec::new();
    for SharedRowRun { first_positions: first, rows } in shared_rows.iter().filter(|_| !hashes.is_empty()) {
        let search = for_each_entity_hash(v1, first[0]..first[0] + rows, |position, hash| {
            if hashes.contains(&hash) {
                equal.push([position, first[1] + (position - first[0])]);
            }
            Ok(if equal.len() > MAX_IN_MEMORY_ENTITIES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        if search.await?.is_break() {
            return Ok(None);
        }
    }
    for (version, positions) in positions.iter_mut().enumerate() {
        positions.try_extend(equal.iter().map(|pair| pair[version]))?;
        positions.as_mut_slice().sort_unstable();
    }
    Ok(Some(UnsharedEntities { positions, shared_rows }))
}

/// Calls `each` with the position and the hash of each entity in `range`, until `each` breaks.
async fn for_each_entity_hash(
    reader: &VersionReader,
    range: Range<u64>,
    mut each: impl FnMut(u64, EntityHash) -> Result<ControlFlow<()>, QueryError>,
) -> Result<ControlFlow<()>, QueryError> {
    let mut position = range.start;
    while position < range.end {
        // Reading cached hashes does not wait, so this is the point at which a diff can be canceled.
        tokio::task::consume_budget().await;
        let row_group = reader.row_group_at(position);
        let group = reader.row_groups()[row_group];
        let hashes = reader.read_entity_hashes(row_group).await?;
        let hashes = hashes.as_fixed_size_binary_opt();
        let end = range.end.min(group.first_position + group.rows as u64);
        for position in position..end {
            let hash = hashes.and_then(|hashes| hashes.value((position - group.first_position) as usize).first_chunk());
            let damaged = || StorageError::InvalidFile("a hash is truncated".to_owned());
            if each(position, *hash.ok_or_else(damaged)?)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        position = end;
    }
    Ok(ControlFlow::Continue(()))
}

impl UnsharedEntities {
    /// Returns the positions in v1 of the shared rows that are excluded from the matching, because each matches itself.
    pub(super) fn skipped_shared_v1_positions(&self) -> impl Iterator<Item = u64> {
        let mut included = self.positions[0].iter().copied().peekable();
        let shared = self.shared_rows.iter().flat_map(|run| run.first_positions[0]..run.first_positions[0] + run.rows);
        shared.filter(move |position| {
            while included.next_if(|included| included < position).is_some() {}
            included.peek() != Some(position)
        })
    }
}
