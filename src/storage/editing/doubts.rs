//! Settles the minima and maxima that do not follow from the profile of a list before it was edited.
//!
//! 1. The beginning of the list is walked: what is frequent is met there.
//! 2. Where the path has a shredded column, row groups are visited in the order of their statistics, until none that
//!    was not visited can hold the extreme. That is one row group, most of the time, and three columns of it.
//! 3. For other paths the walk goes on until the values are met that none can be beyond, or to the end of the list.

use std::cmp::Ordering;
use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, Int32Array, UInt8Array};
use arrow::datatypes::{Int32Type, UInt8Type};
use bytes::Bytes;

use super::Slots;
use super::walk::{BLOCK_BYTES, Walk};
use crate::blocking::blocking;
use crate::document;
use crate::storage::StorageError;
use crate::storage::layout::{ShreddedKind, ShreddedPart};
use crate::storage::profile::{Doubt, EditedProfile, Extremes, Statistics, StoredProfile};
use crate::storage::reader::VersionReader;
use crate::storage::tree::{Found, Node, PathTree, ROOT};

/// The profile of a list after edits, its doubts settled; `None` where one cannot be. Walks about so many bytes of the
/// beginning of the list.
///
/// # Errors
/// When the store fails or the list is damaged.
pub async fn settled(
    list: &VersionReader,
    slots: &Slots,
    mut profile: EditedProfile,
    beginning_bytes: usize,
) -> Result<Option<StoredProfile>, StorageError> {
    let mut open = std::mem::take(&mut profile.doubts);
    if !open.is_empty() {
        let mut settled = Vec::with_capacity(open.len());
        let paths = Paths::of(open.iter().map(Doubt::keys));
        let mut walking = Walking { walk: Walk::of(list, slots), paths, is_over: false };
        walking.go(beginning_bytes, &mut open, &mut settled).await?;
        if !walking.is_over {
            for mut doubt in std::mem::take(&mut open) {
                let columns = &list.layout().shredded_columns;
                match columns.iter().position(|column| column.keys == doubt.keys()) {
                    None => open.push(doubt),
                    Some(shredded) => {
                        by_statistics(list, slots, shredded, &mut doubt).await?;
                        settled.push(doubt);
                    }
                }
            }
            walking.go(usize::MAX, &mut open, &mut settled).await?;
        }
        // What was walked to the end is settled, too.
        settled.append(&mut open);
        profile.doubts = settled;
    }
    Ok(profile.settled())
}

/// Some paths, and the extremes of what lies there in the entities that were added.
struct Paths {
    tree: PathTree,
    extremes: Vec<Extremes>,
}

impl Paths {
    fn of<'k>(paths: impl Iterator<Item = &'k [String]>) -> Paths {
        let mut tree = PathTree::new(usize::MAX, usize::MAX);
        for keys in paths {
            keys.iter().fold(ROOT, |node, key| tree.insert(node, &escaped(key)));
        }
        let extremes = (0..tree.len()).map(|_| Extremes::default()).collect();
        Paths { tree, extremes }
    }

    fn add(&mut self, document: &[u8]) {
        let Paths { tree, extremes } = self;
        tree.walk(document, false, |node, _, found| {
            if let Found::Scalar(scalar) = found
                && let Some(extremes) = extremes.get_mut(node as usize)
            {
                extremes.add(scalar);
            }
        });
    }

    /// The place of a path among those that this was made of.
    fn place(&self, keys: &[String]) -> usize {
        let node: Node = keys.iter().fold(ROOT, |node, key| self.tree.find(node, &escaped(key)));
        node as usize
    }
}

fn escaped(key: &str) -> Vec<u8> {
    let mut escaped = Vec::new();
    document::escape_into(key, &mut escaped);
    escaped
}

/// A walk from the beginning of a list.
struct Walking<'a> {
    walk: Walk<'a>,
    paths: Paths,
    is_over: bool,
}

impl Walking<'_> {
    /// Goes on for so many bytes of documents, or until no doubt is open.
    async fn go(
        &mut self,
        most_bytes: usize,
        open: &mut Vec<Doubt>,
        settled: &mut Vec<Doubt>,
    ) -> Result<(), StorageError> {
        let mut bytes = 0;
        while bytes < most_bytes && !open.is_empty() {
            // What is frequent is met in little of it.
            let Some(block) = self.walk.next(BLOCK_BYTES.min((most_bytes / 4).max(1))).await? else {
                self.is_over = true;
                break;
            };
            bytes += block.iter().map(Bytes::len).sum::<usize>().max(1);
            let mut paths = std::mem::replace(&mut self.paths, Paths::of(std::iter::empty()));
            let add = move || {
                block.iter().for_each(|document| paths.add(document));
                paths
            };
            self.paths = blocking(add).await?;
            for mut doubt in std::mem::take(open) {
                doubt.take(0, &self.paths.extremes[self.paths.place(doubt.keys())]);
                if doubt.is_met() { &mut *settled } else { &mut *open }.push(doubt);
            }
        }
        Ok(())
    }
}

/// Settles a doubt about a path that has a shredded column.
async fn by_statistics(
    list: &VersionReader,
    slots: &Slots,
    shredded: usize,
    doubt: &mut Doubt,
) -> Result<(), StorageError> {
    doubt.forget();
    // What edits bring is in no column yet.
    let row_groups = list.row_groups();
    let place_of = |position: u64| match position < list.entity_count() {
        true => list.row_group_of(position),
        false => row_groups.len(),
    };
    let mut slots_left = slots.iter().peekable();
    while let Some((first, _)) = slots_left.peek() {
        let place = place_of(**first);
        let mut paths = Paths::of(std::iter::once(doubt.keys()));
        while let Some((_, slot)) = slots_left.next_if(|(position, _)| place_of(**position) == place) {
            slot.inserts.iter().chain(slot.change.iter().flatten()).for_each(|document| paths.add(document));
        }
        doubt.take(place, &paths.extremes[paths.place(doubt.keys())]);
    }
    let mut places: Vec<(usize, Statistics<'_>)> =
        (0..row_groups.len()).map(|place| (place, statistics(list, place, shredded, doubt))).collect();
    places.sort_by(|(one_place, one), (other_place, other)| doubt.order(*one, *other).then(one_place.cmp(other_place)));
    for (place, statistics) in places {
        if doubt.may_be_in(place, statistics) {
            let extremes = match list.holds_shredded(place, shredded) {
                true => of_columns(list, slots, place, shredded, doubt.keys()).await?,
                false => of_documents(list, slots, place, doubt.keys()).await?,
            };
            doubt.take(place, &extremes);
        }
    }
    Ok(())
}

/// What the footer knows of a row group.
fn statistics<'a>(list: &'a VersionReader, row_group: usize, shredded: usize, doubt: &Doubt) -> Statistics<'a> {
    if !list.holds_shredded(row_group, shredded) {
        return Statistics::Unknown;
    }
    let extreme = doubt.extreme();
    let kinds = list.kind_range(row_group, shredded);
    let [string, number] = [ShreddedKind::String, ShreddedKind::Number].map(|kind| kind as i32);
    let end = |(min, max)| if extreme.is_min() { min } else { max };
    match kinds {
        None => Statistics::Unknown,
        Some((_, greatest)) if extreme.is_of_numbers() => match greatest.cmp(&number) {
            Ordering::Less => Statistics::None,
            Ordering::Equal => match list.number_range(row_group, shredded) {
                Some((min, max)) => Statistics::Number(if extreme.is_min() { min } else { max }),
                None => Statistics::Unknown,
            },
            // Some are no double with a remainder.
            Ordering::Greater => Statistics::Unknown,
        },
        Some((least, greatest)) if !(least..=greatest).contains(&string) => Statistics::None,
        Some(_) => list
            .string_bounds(row_group, shredded)
            .map_or(Statistics::Unknown, |bounds| Statistics::String(end(bounds))),
    }
}

/// The extremes of a row group after edits, from its documents.
async fn of_documents(
    list: &VersionReader,
    slots: &Slots,
    row_group: usize,
    keys: &[String],
) -> Result<Extremes, StorageError> {
    let mut paths = Paths::of(std::iter::once(keys));
    let mut walk = Walk::of_row_group(list, slots, row_group);
    while let Some(block) = walk.next(BLOCK_BYTES).await? {
        let add = move || {
            block.iter().for_each(|document| paths.add(document));
            paths
        };
        paths = blocking(add).await?;
    }
    let place = paths.place(keys);
    Ok(paths.extremes.swap_remove(place))
}

/// The extremes of a row group after edits, from the columns of its base.
async fn of_columns(
    list: &VersionReader,
    slots: &Slots,
    row_group: usize,
    shredded: usize,
    keys: &[String],
) -> Result<Extremes, StorageError> {
    let kinds = list.shredded(row_group, shredded, ShreddedPart::Kind).await?;
    let texts = list.shredded(row_group, shredded, ShreddedPart::Text).await?;
    let exact = list.shredded(row_group, shredded, ShreddedPart::Exact).await?;
    let (Some(kinds), Some(texts)) = (kinds, texts) else { return Err(misfit()) };
    let column = Column::of(&kinds, &texts, exact.as_ref()).ok_or_else(misfit)?;
    let mut paths = Paths::of(std::iter::once(keys));
    let place = paths.place(keys);
    let of_list = list.row_groups()[row_group];
    let end = of_list.first + of_list.rows as u64;
    let mut next = of_list.first;
    for (position, slot) in slots.range(of_list.first..end) {
        column.add((next - of_list.first) as usize..(position - of_list.first) as usize, &mut paths.extremes[place])?;
        slot.inserts.iter().for_each(|document| paths.add(document));
        next = *position;
        if let Some(entity) = &slot.change {
            entity.iter().for_each(|document| paths.add(document));
            next += 1;
        }
    }
    column.add((next - of_list.first) as usize..of_list.rows, &mut paths.extremes[place])?;
    Ok(paths.extremes.swap_remove(place))
}

/// The scalars of a shredded column in a row group.
struct Column {
    /// Where the elements of each row begin and end, where it fans out.
    offsets: Option<Vec<usize>>,
    kinds: UInt8Array,
    texts: Texts,
    exact: Option<Texts>,
}

impl Column {
    /// `None` where these are no parts of one column.
    fn of(kinds: &ArrayRef, texts: &ArrayRef, exact: Option<&ArrayRef>) -> Option<Column> {
        let offsets = kinds.as_list_opt::<i32>().map(|list| {
            let first = list.value_offsets().first().copied().unwrap_or_default();
            list.value_offsets().iter().map(|offset| (offset - first) as usize).collect()
        });
        let kinds = elements(kinds);
        let kinds = kinds.as_primitive_opt::<UInt8Type>()?.clone();
        let texts = Texts::of(&elements(texts))?;
        let exact = match exact {
            None => None,
            Some(exact) => Some(Texts::of(&elements(exact))?),
        };
        let fits = texts.len() == kinds.len() && exact.as_ref().is_none_or(|exact| exact.len() == kinds.len());
        fits.then_some(Column { offsets, kinds, texts, exact })
    }

    /// Adds what some rows hold, in order.
    fn add(&self, rows: Range<usize>, extremes: &mut Extremes) -> Result<(), StorageError> {
        let elements = match &self.offsets {
            None => rows,
            Some(offsets) => match (offsets.get(rows.start), offsets.get(rows.end)) {
                (Some(start), Some(end)) => *start..*end,
                _ => return Err(misfit()),
            },
        };
        if elements.end > self.kinds.len() {
            return Err(misfit());
        }
        let [string, number] = [ShreddedKind::String, ShreddedKind::Number].map(|kind| kind as u8);
        for element in elements {
            let kind = self.kinds.value(element);
            if kind < string {
                continue;
            }
            let exact = self.exact.as_ref().and_then(|exact| exact.get(element));
            let text = exact.or_else(|| self.texts.get(element)).ok_or_else(misfit)?;
            match kind < number {
                true => extremes.add_string(text),
                false => extremes.add_number(std::str::from_utf8(text).map_err(|_| misfit())?),
            }
        }
        Ok(())
    }
}

/// The elements of lists, or the values themselves.
fn elements(array: &ArrayRef) -> ArrayRef {
    let Some(list) = array.as_list_opt::<i32>() else { return array.clone() };
    match (list.value_offsets().first(), list.value_offsets().last()) {
        (Some(first), Some(last)) => list.values().slice(*first as usize, (last - first) as usize),
        _ => list.values().slice(0, 0),
    }
}

/// Texts, or codes into a dictionary of them.
struct Texts {
    codes: Option<Int32Array>,
    values: BinaryArray,
}

impl Texts {
    fn of(array: &ArrayRef) -> Option<Texts> {
        let dictionary = array.as_dictionary_opt::<Int32Type>();
        let values = dictionary.map_or(array, |dictionary| dictionary.values());
        let values = values.as_binary_opt::<i32>()?.clone();
        Some(Texts { codes: dictionary.map(|dictionary| dictionary.keys().clone()), values })
    }

    fn len(&self) -> usize {
        self.codes.as_ref().map_or(self.values.len(), Array::len)
    }

    fn get(&self, element: usize) -> Option<&[u8]> {
        let at = match &self.codes {
            Some(codes) if codes.is_valid(element) => usize::try_from(codes.value(element)).ok()?,
            Some(_) => return None,
            None => element,
        };
        (at < self.values.len() && self.values.is_valid(at)).then(|| self.values.value(at))
    }
}

fn misfit() -> StorageError {
    StorageError::Layout("the parts of a shredded column do not fit each other".to_owned())
}
