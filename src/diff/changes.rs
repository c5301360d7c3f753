//! The result of a diff: a list of changes by position, and pages of it.

use std::fmt;

use datafusion::execution::memory_pool::MemoryReservation;

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
    pub const ALL: [ChangeType; 3] = [ChangeType::Added, ChangeType::Subtracted, ChangeType::Modified];

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
    Modified { v1: u64, v2: u64 },
    /// The entity of this position in v1 is gone.
    Subtracted { v1: u64 },
    /// The entity of this position in v2 is new.
    Added { v2: u64 },
}

impl Change {
    pub fn change_type(self) -> ChangeType {
        match self {
            Change::Modified { .. } => ChangeType::Modified,
            Change::Subtracted { .. } => ChangeType::Subtracted,
            Change::Added { .. } => ChangeType::Added,
        }
    }

    pub fn v1(self) -> Option<u64> {
        match self {
            Change::Modified { v1, .. } | Change::Subtracted { v1 } => Some(v1),
            Change::Added { .. } => None,
        }
    }

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DiffPage {
    pub change_type: Option<ChangeType>,
    pub offset: u64,
    pub limit: Option<u64>,
}

pub(super) const NONE: u64 = u64::MAX;

/// The changes between two versions: 16 bytes for each entity of v1 that has changed or is gone, 8 for each new one.
/// They are accounted to the engine's memory pool until it is dropped, or given to another's account
/// ([`Diff::unaccounted`]).
#[derive(Debug)]
pub struct Diff {
    pub total_v1: u64,
    pub total_v2: u64,
    pub(super) modified: u64,
    /// Positions in v1, ascending, each with its position in v2 or [`NONE`].
    pub(super) ones: Vec<(u64, u64)>,
    pub(super) added: Vec<u64>,
    #[expect(dead_code, reason = "held until the diff is dropped")]
    pub(super) accounted: Option<[MemoryReservation; 2]>,
}

impl Diff {
    /// That of two versions with the same entities.
    pub fn none(entities: u64) -> Diff {
        let total_v1 = entities;
        Diff { total_v1, total_v2: entities, modified: 0, ones: Vec::new(), added: Vec::new(), accounted: None }
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.ones.as_slice()) + size_of_val(self.added.as_slice())
    }

    /// The same, no longer accounted to the pool. The new owner must bound its size.
    pub fn unaccounted(self) -> Diff {
        Diff { accounted: None, ..self }
    }

    pub fn added(&self) -> u64 {
        self.added.len() as u64
    }

    pub fn subtracted(&self) -> u64 {
        self.ones.len() as u64 - self.modified
    }

    pub fn modified(&self) -> u64 {
        self.modified
    }

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
    fn change_at(&self, place: usize) -> Option<Change> {
        match self.ones.get(place) {
            Some((v1, NONE)) => Some(Change::Subtracted { v1: *v1 }),
            Some((v1, v2)) => Some(Change::Modified { v1: *v1, v2: *v2 }),
            None => self.added.get(place - self.ones.len()).map(|v2| Change::Added { v2: *v2 }),
        }
    }

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
            skip -= u64::from(self.change_at(place).map(Change::change_type) == page.change_type);
            place += 1;
        }
        let end = match page.change_type {
            None | Some(ChangeType::Added) => self.ones.len() + self.added.len(),
            Some(ChangeType::Subtracted | ChangeType::Modified) => self.ones.len(),
        };
        Cursor { change_type: page.change_type, places: place.min(end)..end, left: page.limit.unwrap_or(u64::MAX) }
    }

    pub fn next(&self, cursor: &mut Cursor) -> Option<Change> {
        if cursor.left == 0 {
            return None;
        }
        let wanted = |change: &Change| cursor.change_type.is_none_or(|wanted| wanted == change.change_type());
        let change = cursor.places.by_ref().filter_map(|place| self.change_at(place)).find(wanted)?;
        cursor.left -= 1;
        Some(change)
    }
}

#[derive(Clone, Debug)]
pub struct Cursor {
    change_type: Option<ChangeType>,
    places: std::ops::Range<usize>,
    left: u64,
}
