//! The diff of two versions: which entities were added, subtracted, modified.
//!
//! Steps:
//! 1. Equal entities of one `_source` match at once, by the stored canonical hashes; an entity whose `_source` leaves
//!    none in the other version is added or subtracted (`identity`).
//! 2. Only if a `_source` leaves entities in both versions: every field is weighed (`weights`, `distinct`), the
//!    fields of the entities that are left are read (`features`), and the similar ones of each source are matched
//!    (`matching`).
//! 3. The result is a list of positions; records are written from the documents when they are asked for ([`records`]).
//!
//! A `_source` is compared by JSON value, as dedup compares: any value equals itself, none equals none, and null is a
//! value. The pairs of a source that share a field's value are its candidates, counted among the entities that step 1
//! leaves; so are the holders of a value, where there are too many candidates.
//!
//! Memory: the keys of step 1 are sorted by DataFusion and the values of step 2 counted by `distinct`, both on disk
//! where they do not fit. In memory, and accounted to the engine's pool, are 4 bytes per entity of both versions, 16
//! for each change, the names of the fields, and 16 for each field of the entities of the sources that are matched
//! together: as many as have about 256 MiB of documents, or one source where that is larger. What the pool refuses ends
//! the diff with [`QueryError::OutOfMemory`].
//!
//! DataFusion sorts, because keys of all shapes of versions sort alike: all of one source, each of its own, all equal.
//! The other parts are loops of their own: a join on values would have to write every pair that shares one, although
//! most are never looked at twice, and greedy matching is no relational operator.

mod account;
mod distinct;
mod features;
mod identity;
mod matching;
pub mod records;
mod tasks;
mod values;
mod weights;

use std::fmt;
use std::sync::Arc;

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};

use self::account::Accounted;
use self::features::Features;
use self::identity::{Contested, Unmatched};
use self::matching::Side;
use self::values::Seeds;
use crate::query::{Engine, QueryError};
use crate::storage::reader::VersionReader;

/// About how many bytes of documents have their fields in memory at once.
const CHUNK_DOCUMENT_BYTES: u64 = 256 << 20;

/// Most entities that have their fields in memory at once, but for those of one source.
const CHUNK_ENTITIES: u64 = 1 << 19;

/// From when on similar entities are not looked for among all: docs/semantics.md, Diffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffBounds {
    /// Most candidate pairs of one source.
    pub candidate_pairs: u64,
    /// Where there are more: most entities that may have a value on each side, for those that share it to be
    /// candidates.
    pub value_holders: u64,
}

impl Default for DiffBounds {
    fn default() -> DiffBounds {
        DiffBounds { candidate_pairs: 10_000_000, value_holders: 100 }
    }
}

/// What a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeType {
    /// The entity is in v2 only.
    Added,
    /// The entity is in v1 only.
    Subtracted,
    /// The entity is in both, with other fields.
    Modified,
}

impl ChangeType {
    /// All of them.
    pub const ALL: [ChangeType; 3] = [ChangeType::Added, ChangeType::Subtracted, ChangeType::Modified];

    /// The name in records.
    pub fn name(self) -> &'static str {
        match self {
            ChangeType::Added => "added",
            ChangeType::Subtracted => "subtracted",
            ChangeType::Modified => "modified",
        }
    }
}

/// One change, by positions from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// The entity of this position in v1 has become that of v2.
    Modified {
        /// In v1.
        v1: u64,
        /// In v2.
        v2: u64,
    },
    /// The entity of this position in v1 is gone.
    Subtracted {
        /// In v1.
        v1: u64,
    },
    /// The entity of this position in v2 is new.
    Added {
        /// In v2.
        v2: u64,
    },
}

impl Change {
    /// What it is.
    pub fn change_type(self) -> ChangeType {
        match self {
            Change::Modified { .. } => ChangeType::Modified,
            Change::Subtracted { .. } => ChangeType::Subtracted,
            Change::Added { .. } => ChangeType::Added,
        }
    }

    /// Its position in v1.
    pub fn v1(self) -> Option<u64> {
        match self {
            Change::Modified { v1, .. } | Change::Subtracted { v1 } => Some(v1),
            Change::Added { .. } => None,
        }
    }

    /// Its position in v2.
    pub fn v2(self) -> Option<u64> {
        match self {
            Change::Modified { v2, .. } | Change::Added { v2 } => Some(v2),
            Change::Subtracted { .. } => None,
        }
    }
}

/// The id of the record: `m{i}-{j}`, `s{i}` or `a{j}`.
impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Modified { v1, v2 } => write!(formatter, "m{v1}-{v2}"),
            Change::Subtracted { v1 } => write!(formatter, "s{v1}"),
            Change::Added { v2 } => write!(formatter, "a{v2}"),
        }
    }
}

/// A page of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DiffPage {
    /// Only changes of this type.
    pub change_type: Option<ChangeType>,
    /// How many of these are left out at the front.
    pub offset: u64,
    /// Most changes of the page.
    pub limit: Option<u64>,
}

/// Stands for no position.
const NONE: u64 = u64::MAX;

/// What two versions differ in: 16 bytes for each entity of v1 that has changed or is gone, 8 for each that is new.
/// They are accounted to the engine's memory pool until it is dropped, or given to another's account
/// ([`Diff::unaccounted`]).
#[derive(Debug)]
pub struct Diff {
    total_v1: u64,
    total_v2: u64,
    modified: u64,
    /// Positions in v1, ascending, each with its position in v2 or [`NONE`].
    ones: Vec<(u64, u64)>,
    /// Positions in v2, ascending.
    added: Vec<u64>,
    /// What accounts for them.
    #[expect(dead_code, reason = "held until the diff is dropped")]
    accounted: Option<[MemoryReservation; 2]>,
}

impl Diff {
    /// That of two versions with the same entities.
    pub fn none(entities: u64) -> Diff {
        let (ones, added) = (Vec::new(), Vec::new());
        Diff { total_v1: entities, total_v2: entities, modified: 0, ones, added, accounted: None }
    }

    /// What it holds.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.ones.as_slice()) + size_of_val(self.added.as_slice())
    }

    /// The same, no longer accounted to the pool: whoever keeps it has to bound what it holds.
    pub fn unaccounted(self) -> Diff {
        Diff { accounted: None, ..self }
    }

    /// Entities in v2 and not in v1.
    pub fn added(&self) -> u64 {
        self.added.len() as u64
    }

    /// Entities in v1 and not in v2.
    pub fn subtracted(&self) -> u64 {
        self.ones.len() as u64 - self.modified
    }

    /// Entities in both with other fields.
    pub fn modified(&self) -> u64 {
        self.modified
    }

    /// Entities of v1.
    pub fn total_v1(&self) -> u64 {
        self.total_v1
    }

    /// Entities of v2.
    pub fn total_v2(&self) -> u64 {
        self.total_v2
    }

    /// How many changes there are of a type, or of all.
    pub fn count(&self, change_type: Option<ChangeType>) -> u64 {
        match change_type {
            None => (self.ones.len() + self.added.len()) as u64,
            Some(ChangeType::Added) => self.added(),
            Some(ChangeType::Subtracted) => self.subtracted(),
            Some(ChangeType::Modified) => self.modified,
        }
    }

    /// The change at a place of the list: modified and subtracted ones by position in v1, then added ones by position
    /// in v2.
    fn at(&self, place: usize) -> Option<Change> {
        match self.ones.get(place) {
            Some((v1, NONE)) => Some(Change::Subtracted { v1: *v1 }),
            Some((v1, v2)) => Some(Change::Modified { v1: *v1, v2: *v2 }),
            None => self.added.get(place - self.ones.len()).map(|v2| Change::Added { v2: *v2 }),
        }
    }

    /// How many changes a page has.
    pub fn page_count(&self, page: &DiffPage) -> u64 {
        let left = self.count(page.change_type).saturating_sub(page.offset);
        page.limit.map_or(left, |limit| left.min(limit))
    }

    /// The changes of a page, in the order of records. Costs what [`Diff::cursor`] does.
    pub fn changes(&self, page: &DiffPage) -> impl Iterator<Item = Change> + Send + '_ {
        let mut cursor = self.cursor(page);
        std::iter::from_fn(move || self.next(&mut cursor))
    }

    /// Where a page begins. Costs a look at every change before it when the page is of modified or subtracted ones,
    /// otherwise nothing.
    pub fn cursor(&self, page: &DiffPage) -> Cursor {
        let most = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let (mut place, mut skip) = match page.change_type {
            None => (most(page.offset), 0),
            Some(ChangeType::Added) => (self.ones.len().saturating_add(most(page.offset)), 0),
            Some(ChangeType::Subtracted | ChangeType::Modified) => (0, page.offset),
        };
        while skip > 0 && place < self.ones.len() {
            skip -= u64::from(self.at(place).map(Change::change_type) == page.change_type);
            place += 1;
        }
        let end = match page.change_type {
            None | Some(ChangeType::Added) => self.ones.len() + self.added.len(),
            Some(ChangeType::Subtracted | ChangeType::Modified) => self.ones.len(),
        };
        Cursor { change_type: page.change_type, places: place.min(end)..end, left: page.limit.unwrap_or(u64::MAX) }
    }

    /// The next change of a page.
    pub fn next(&self, cursor: &mut Cursor) -> Option<Change> {
        if cursor.left == 0 {
            return None;
        }
        let wanted = |change: &Change| cursor.change_type.is_none_or(|wanted| wanted == change.change_type());
        let change = cursor.places.by_ref().filter_map(|place| self.at(place)).find(wanted)?;
        cursor.left -= 1;
        Some(change)
    }
}

/// What is left of a page of a [`Diff`].
#[derive(Clone, Debug)]
pub struct Cursor {
    change_type: Option<ChangeType>,
    places: std::ops::Range<usize>,
    left: u64,
}

/// What all parts of one diff share.
#[derive(Clone)]
struct Session {
    readers: [VersionReader; 2],
    context: Arc<TaskContext>,
    seeds: Arc<Seeds>,
    reservation: Arc<MemoryReservation>,
    threads: usize,
}

impl Session {
    fn spilling(&self, name: &str) -> MemoryReservation {
        MemoryConsumer::new(name).with_can_spill(true).register(self.context.memory_pool())
    }
}

/// Finds what two versions differ in. Dropping the future stops the work.
///
/// # Errors
/// [`QueryError::Timeout`] and [`QueryError::OutOfMemory`] by the engine's bounds, others when a version cannot be
/// read.
pub async fn compare(
    engine: &Engine,
    v1: VersionReader,
    v2: VersionReader,
    bounds: DiffBounds,
) -> Result<Diff, QueryError> {
    let (context, threads) = (engine.context().clone(), engine.threads());
    let work = async move { run([v1, v2], &bounds, context, threads).await };
    engine.run_within(engine.diff_timeout(), work).await
}

/// The differences of two versions.
///
/// # Errors
/// When a version cannot be read, or the pool or the disk refuses.
async fn run(
    readers: [VersionReader; 2],
    bounds: &DiffBounds,
    context: Arc<TaskContext>,
    threads: usize,
) -> Result<Diff, QueryError> {
    let reservation = Arc::new(MemoryConsumer::new("diff").register(context.memory_pool()));
    let session = Session { readers, context, seeds: Arc::new(Seeds::random()), reservation, threads };
    let Unmatched { alone, contested, positions, multiplicities } = identity::unmatched(&session).await?;
    let mut ones = Accounted::new(&session.reservation);
    let [subtracted, mut added] = alone;
    ones.extend(subtracted.iter().map(|v1| (*v1, NONE)))?;
    drop(subtracted);
    if contested.is_empty() {
        drop(multiplicities);
    } else {
        let weights = Arc::new(weights::weigh(&session, multiplicities).await?);
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
    let ((ones, of_ones), (added, of_added)) = (ones.into_parts(), added.into_parts());
    Ok(Diff { total_v1, total_v2, modified, ones, added, accounted: Some([of_ones, of_added]) })
}

/// How many of the sources are matched together: at least the first.
fn chunk_length(readers: &[VersionReader; 2], contested: &[Contested]) -> usize {
    let mean = |version: usize| {
        let layout = readers[version].layout();
        layout.document_bytes.checked_div(layout.entity_count).unwrap_or_default()
    };
    let mean = [mean(0), mean(1)];
    let (mut bytes, mut entities) = (0, 0);
    let fits = |source: &&Contested| {
        for (places, mean) in source.places.iter().zip(mean) {
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
    weights: &Arc<weights::Weights>,
    chunk: &[Contested],
    positions: &[Accounted<u64>; 2],
    ones: &mut Accounted<(u64, u64)>,
    added: &mut Accounted<u64>,
) -> Result<(), QueryError> {
    let mut wanted = [Accounted::new(&session.reservation), Accounted::new(&session.reservation)];
    for source in chunk {
        for version in [0, 1] {
            wanted[version].extend(positions[version][source.places[version].clone()].iter().copied())?;
        }
    }
    let first = Features::read(session, 0, &wanted[0], weights).await?;
    let second = Features::read(session, 1, &wanted[1], weights).await?;
    let mut taken: Accounted<bool> = Accounted::new(&session.reservation);
    let mut partners: Accounted<u64> = Accounted::new(&session.reservation);
    let mut starts = [0, 0];
    for source in chunk {
        let [count, other_count] = [0, 1].map(|version: usize| source.places[version].len());
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
        matching::match_source(session, bounds, weights.by_rank(), sides, matched).await?;
        ones.extend(v1.iter().copied().zip(partners.iter().copied()))?;
        for (position, taken) in v2.iter().zip(taken.iter()) {
            if !taken {
                added.push(*position)?;
            }
        }
    }
    Ok(())
}
