//! The result of a diff: a list of changes, which refer to entities by position, and cursors for pages of that list.

use std::fmt;

use datafusion::execution::memory_pool::MemoryReservation;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeType {
    Added,
    Subtracted,
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

/// A change between two versions. `v1` and `v2` are positions in these versions, starting at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiffChange {
    Modified { v1: u64, v2: u64 },
    Subtracted { v1: u64 },
    Added { v2: u64 },
}

impl DiffChange {
    pub fn change_type(self) -> ChangeType {
        match self {
            DiffChange::Modified { .. } => ChangeType::Modified,
            DiffChange::Subtracted { .. } => ChangeType::Subtracted,
            DiffChange::Added { .. } => ChangeType::Added,
        }
    }

    pub fn v1(self) -> Option<u64> {
        match self {
            DiffChange::Modified { v1, .. } | DiffChange::Subtracted { v1 } => Some(v1),
            DiffChange::Added { .. } => None,
        }
    }

    pub fn v2(self) -> Option<u64> {
        match self {
            DiffChange::Modified { v2, .. } | DiffChange::Added { v2 } => Some(v2),
            DiffChange::Subtracted { .. } => None,
        }
    }
}

/// Writes the ID of a change from its positions: `m{v1}-{v2}` if modified, `s{v1}` if subtracted, `a{v2}` if added.
impl fmt::Display for DiffChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiffChange::Modified { v1, v2 } => write!(formatter, "m{v1}-{v2}"),
            DiffChange::Subtracted { v1 } => write!(formatter, "s{v1}"),
            DiffChange::Added { v2 } => write!(formatter, "a{v2}"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DiffPage {
    pub change_type: Option<ChangeType>,
    pub offset: u64,
    pub limit: Option<u64>,
}

pub(super) const NO_POSITION: u64 = u64::MAX;

/// The changes between two versions: 16 bytes per modified or subtracted entity and 8 bytes per added entity, which the
/// engine's memory pool accounts for until the drop or [`ChangeList::without_reservations`].
#[derive(Debug, Default)]
pub struct ChangeList {
    pub total_v1: u64,
    pub total_v2: u64,
    pub(super) modified_count: u64,
    /// The modified and subtracted entities: pairs of positions in v1 (ascending) and v2. For a subtracted entity, the
    /// position in v2 is [`NO_POSITION`].
    pub(super) v1_changes: Vec<(u64, u64)>,
    pub(super) added_positions: Vec<u64>,
    #[expect(dead_code, reason = "held until the diff is dropped")]
    pub(super) reservations: Option<[MemoryReservation; 2]>,
}

impl ChangeList {
    /// Returns an empty list for two versions that have the same `entities` entities.
    pub fn for_equal_versions(entities: u64) -> ChangeList {
        ChangeList { total_v1: entities, total_v2: entities, ..ChangeList::default() }
    }

    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.v1_changes.as_slice()) + size_of_val(self.added_positions.as_slice())
    }

    /// Releases the memory pool's reservations. The caller must limit the size of the list by other means.
    pub fn without_reservations(self) -> ChangeList {
        ChangeList { reservations: None, ..self }
    }

    pub fn added_count(&self) -> u64 {
        self.added_positions.len() as u64
    }

    pub fn subtracted_count(&self) -> u64 {
        self.v1_changes.len() as u64 - self.modified_count
    }

    pub fn modified_count(&self) -> u64 {
        self.modified_count
    }

    pub fn change_count(&self, change_type: Option<ChangeType>) -> u64 {
        match change_type {
            None => (self.v1_changes.len() + self.added_positions.len()) as u64,
            Some(ChangeType::Added) => self.added_count(),
            Some(ChangeType::Subtracted) => self.subtracted_count(),
            Some(ChangeType::Modified) => self.modified_count,
        }
    }

    /// Returns the change at an index: modified and subtracted ones ordered by v1, then added ones ordered by v2.
    fn change_at(&self, index: usize) -> Option<DiffChange> {
        match self.v1_changes.get(index) {
            Some((v1, NO_POSITION)) => Some(DiffChange::Subtracted { v1: *v1 }),
            Some((v1, v2)) => Some(DiffChange::Modified { v1: *v1, v2: *v2 }),
            None => self.added_positions.get(index - self.v1_changes.len()).map(|v2| DiffChange::Added { v2: *v2 }),
        }
    }

    pub fn page_change_count(&self, page: &DiffPage) -> u64 {
        let remaining = self.change_count(page.change_type).saturating_sub(page.offset);
        page.limit.map_or(remaining, |limit| remaining.min(limit))
    }

    /// Returns the changes of a page in list order, at the cost of [`ChangeList::cursor`].
    pub fn changes(&self, page: &DiffPage) -> impl Iterator<Item = DiffChange> + Send + '_ {
        let mut cursor = self.cursor(page);
        std::iter::from_fn(move || self.next_change(&mut cursor))
    }

    /// Returns a cursor at the beginning of a page. A page of only modified or only subtracted entities costs a scan
    /// of all changes before the page; any other page takes constant time.
    pub fn cursor(&self, page: &DiffPage) -> ChangeCursor {
        let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
        let v1_end = self.v1_changes.len();
        let all_end = v1_end + self.added_positions.len();
        let (mut index, mut skip, end) = match page.change_type {
            None => (offset, 0, all_end),
            Some(ChangeType::Added) => (v1_end.saturating_add(offset), 0, all_end),
            Some(ChangeType::Subtracted | ChangeType::Modified) => (0, page.offset, v1_end),
        };
        while skip > 0 && index < v1_end {
            skip -= u64::from(self.change_at(index).map(DiffChange::change_type) == page.change_type);
            index += 1;
        }
        let remaining = page.limit.unwrap_or(u64::MAX);
        ChangeCursor { change_type: page.change_type, indexes: index.min(end)..end, remaining }
    }

    pub fn next_change(&self, cursor: &mut ChangeCursor) -> Option<DiffChange> {
        if cursor.remaining == 0 {
            return None;
        }
        let matches = |change: &DiffChange| cursor.change_type.is_none_or(|wanted| wanted == change.change_type());
        let change = cursor.indexes.by_ref().filter_map(|index| self.change_at(index)).find(matches)?;
        cursor.remaining -= 1;
        Some(change)
    }
}

#[derive(Clone, Debug)]
pub struct ChangeCursor {
    change_type: Option<ChangeType>,
    indexes: std::ops::Range<usize>,
    remaining: u64,
}
