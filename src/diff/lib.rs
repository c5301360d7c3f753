//! The diff of two versions: which entities were added, subtracted, modified.
//!
//! Steps:
//! 1. Equal entities of one `_source` match at once, by the stored canonical hashes; an entity whose `_source` leaves
//!    none in the other version is added or subtracted (`identity`). Rows of one file that both have match without that
//!    (`shared`).
//! 2. Only if a `_source` leaves entities in both versions: every field is weighed (`weights`, `distinct`), the
//!    fields of the entities that are left are read (`features`), and the similar ones of each source are matched
//!    (`matching`).
//! 3. The result is a list of positions ([`changes`]); records are written from the documents when they are asked for
//!    ([`records`]).
//!
//! Other nodes may help to read the documents of step 2 (`query::fields`).
//!
//! A `_source` is compared by JSON value, as dedup compares: any value equals itself, none equals none, and null is a
//! value. The pairs of a source that share a field's value are its candidates, counted among the entities that step 1
//! leaves; so are the holders of a value, where there are too many candidates.
//!
//! Memory: the keys of step 1 are sorted by DataFusion and the values of step 2 counted by `distinct`, both on disk
//! where they do not fit. In memory, and accounted to the engine's pool, are 4 bytes per entity of both versions, 16
//! for each change, the names of the fields, and 16 for each field of the entities of the sources that are matched
//! together: as many as have about 256 MiB of documents, or one source where that is larger. What the pool refuses ends
//! the diff with [`QueryError::OutOfMemory`], or with [`QueryError::TooMuchMemory`] where nobody else held any.
//!
//! DataFusion sorts, because keys of all shapes of versions sort alike: all of one source, each of its own, all equal.
//! The other parts are loops of their own: a join on values would have to write every pair that shares one, although
//! most are never looked at twice, and greedy matching is no relational operator.

pub mod changes;
mod distinct;
mod features;
mod identity;
mod matching;
pub mod records;
mod shared;
mod weights;

pub use changes::{Change, ChangeType, Cursor, Diff, DiffPage};
pub use matching::DiffBounds;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::execute_stream;
use strata_format::reader::VersionReader;
use strata_query::account::Accounted;
use strata_query::fields::chosen::Chosen;
use strata_query::fields::scan::{FieldScan, Wanted};
use strata_query::fields::values::Seeds;
use strata_query::{Engine, QueryError, distribute};

use self::changes::NONE;
use self::features::Features;
use self::identity::{Contested, Unmatched};
use self::matching::Side;
use self::weights::Weights;

/// About how many bytes of documents have their fields in memory at once.
const CHUNK_DOCUMENT_BYTES: u64 = 256 << 20;

/// Most entities that have their fields in memory at once, but for those of one source.
const CHUNK_ENTITIES: u64 = 1 << 19;

/// The state that all parts of one diff share.
#[derive(Clone)]
struct Session {
    readers: [VersionReader; 2],
    engine: Engine,
    seeds: Seeds,
    reservation: Arc<MemoryReservation>,
    deadline: Instant,
}

impl Session {
    /// What is made of the fields of entities that other nodes help to read; `None` where all of them should be read
    /// here, because they are few, or because that failed.
    async fn helped<T, F>(
        &self,
        chosen: Chosen,
        wanted: Wanted,
        collect: impl FnOnce(SendableRecordBatchStream) -> F,
    ) -> Option<T>
    where
        F: Future<Output = Result<T, QueryError>>,
    {
        let distribution = self.engine.distribution()?;
        let scan = FieldScan::new(&self.readers, chosen, wanted, self.seeds, self.engine.threads());
        let plan = distribution.distribute(&(Arc::new(scan) as _), self.engine.context(), self.engine.tenant()).await?;
        let collected = async { collect(execute_stream(plan.plan.clone(), plan.context.clone())?).await };
        let limit = distribute::most_time(self.deadline.saturating_duration_since(Instant::now()));
        distribute::finish(&**distribution, &plan, limit, collected).await.ok()
    }
}

/// Finds what two versions differ in. Dropping the future stops the work.
///
/// # Errors
/// [`QueryError::Timeout`], [`QueryError::OutOfMemory`] and [`QueryError::TooMuchMemory`] by the engine's bounds,
/// others when a version cannot be read.
pub async fn compare(
    engine: &Engine,
    v1: VersionReader,
    v2: VersionReader,
    bounds: DiffBounds,
) -> Result<Diff, QueryError> {
    let of_work = engine.clone();
    let work = async move { run([v1, v2], &bounds, of_work).await };
    engine.run_query_within(engine.diff_timeout(), work).await
}

async fn run(readers: [VersionReader; 2], bounds: &DiffBounds, engine: Engine) -> Result<Diff, QueryError> {
    let session = Session {
        readers,
        seeds: Seeds::random(),
        reservation: Arc::new(MemoryConsumer::new("diff").register(engine.context().memory_pool())),
        deadline: Instant::now() + engine.diff_timeout(),
        engine,
    };
    let Unmatched { alone, contested, positions, multiplicities } = Box::pin(identity::unmatched(&session)).await?;
    let mut ones = Accounted::new(&session.reservation);
    let [subtracted, mut added] = alone;
    ones.extend(subtracted.iter().map(|v1| (*v1, NONE)))?;
    drop(subtracted);
    if contested.is_empty() {
        drop(multiplicities);
    } else {
        let weights = weights::weigh(&session, multiplicities).await?;
        let mut start = 0;
        while start < contested.len() {
            let chunk = &contested[start..start + chunk_length(&session.readers, &contested[start..])];
            start += chunk.len();
            match_chunk(&session, bounds, &weights, chunk, &positions, &mut ones, &mut added).await?;
        }
    }
    ones.items_mut().sort_unstable();
    added.items_mut().sort_unstable();
    let modified = ones.iter().filter(|(_, v2)| *v2 != NONE).count() as u64;
    let [total_v1, total_v2] = [0, 1].map(|version: usize| session.readers[version].entity_count());
    let (ones, of_ones) = ones.into_parts();
    let (added, of_added) = added.into_parts();
    Ok(Diff { total_v1, total_v2, modified, ones, added, accounted: Some([of_ones, of_added]) })
}

/// The row groups of items whose positions ascend, each with the range of the items that are in it.
fn by_row_group<T>(
    reader: &VersionReader,
    items: &[T],
    position: impl Fn(&T) -> u64,
) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let row_group = reader.row_group_of(position(items.get(start)?));
        let group = reader.row_groups()[row_group];
        let end = start + items[start..].partition_point(|item| group.holds(position(item)));
        Some((row_group, std::mem::replace(&mut start, end)..end))
    })
}

/// How many of the sources are matched together: at least the first.
fn chunk_length(readers: &[VersionReader; 2], contested: &[Contested]) -> usize {
    let mean = readers.each_ref().map(|reader| {
        let layout = reader.layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    });
    let mut bytes = 0;
    let mut entities = 0;
    let fits = |source: &&Contested| {
        for (places, mean) in source.iter().zip(mean) {
            bytes += places.len() as u64 * mean;
            entities += places.len() as u64;
        }
        bytes <= CHUNK_DOCUMENT_BYTES && entities <= CHUNK_ENTITIES
    };
    contested.iter().take_while(fits).count().max(1)
}

/// Matches the entities of some sources: what they become is added to `ones` and `added`.
async fn match_chunk(
    session: &Session,
    bounds: &DiffBounds,
    weights: &Weights,
    chunk: &[Contested],
    positions: &[Accounted<u64>; 2],
    ones: &mut Accounted<(u64, u64)>,
    added: &mut Accounted<u64>,
) -> Result<(), QueryError> {
    let mut wanted = [Accounted::new(&session.reservation), Accounted::new(&session.reservation)];
    for source in chunk {
        for version in [0, 1] {
            wanted[version].extend(positions[version][source[version].clone()].iter().copied())?;
        }
    }
    let first = Features::read(session, 0, &wanted[0], weights).await?;
    let second = Features::read(session, 1, &wanted[1], weights).await?;
    let mut taken: Accounted<bool> = Accounted::new(&session.reservation);
    let mut partners: Accounted<u64> = Accounted::new(&session.reservation);
    let mut starts = [0, 0];
    for source in chunk {
        let [count, other_count] = [0, 1].map(|version: usize| source[version].len());
        let sides = [
            Side { features: &first, first: starts[0], count },
            Side { features: &second, first: starts[1], count: other_count },
        ];
        let v1 = &wanted[0][starts[0]..starts[0] + count];
        let v2 = &wanted[1][starts[1]..starts[1] + other_count];
        starts = [starts[0] + count, starts[1] + other_count];
        taken.clear();
        taken.extend(std::iter::repeat_n(false, other_count))?;
        partners.clear();
        partners.extend(std::iter::repeat_n(NONE, count))?;
        let matched = |one: usize, other: usize| {
            partners.items_mut()[one] = v2[other];
            taken.items_mut()[other] = true;
        };
        matching::match_source(session, bounds, &weights.by_rank, sides, matched).await?;
        ones.extend(v1.iter().copied().zip(partners.iter().copied()))?;
        for (position, taken) in v2.iter().zip(taken.iter()) {
            if !taken {
                added.push(*position)?;
            }
        }
    }
    Ok(())
}
