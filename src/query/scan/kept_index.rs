//! Hash indexes of shredded columns, kept in the cache ([`HashIndex`]): exact filters then look at the entities that
//! may match, whatever the version's size.
//!
//! An index is made in the background once filters have looked through as much of its column as making it is worth, one
//! at a time in the process. Until then, and where none is kept, filters look through the column. An index names
//! candidates; their values in the column decide: that of one of them, where all are listed for one value.
//!
//! Measured by the row `filter id, unique` of `benches/reads`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use datafusion::execution::memory_pool::MemoryReservation;
use strata_format::aux_index::{AuxKey, AuxLookup};
use strata_format::hash_index::{self, Entry, HashIndex, HashedValue, IndexedValue, Listed, ValueHasher};
use strata_format::layout::ShreddedPart;
use strata_format::reader::VersionReader;
use strata_store::StorageError;
use tokio::sync::Semaphore;

use crate::pace::Pace;
use crate::scan::access::Condition;
use crate::scan::aux_index;
use crate::scan::kernels::Elements;
use crate::scan::key_column::{misfit, remainder_at};
use crate::scan::predicate::{Compare, Comparison};

/// An index is made when filters have looked through so many times as many elements as there are entities: about what
/// making it costs.
const WORTH: u64 = 4;

/// Leaving a row group out by its bloom filter counts as so many elements.
pub(super) const PRUNED_ELEMENTS: u64 = 512;

/// An index is of use for a value that one entity in so many may hold, at most, or that few may.
const ONE_IN: u64 = 16;

const FEW: u64 = 64;

/// About the bytes that comparing an element by itself counts as work.
const EQUAL_BYTES: usize = 1 << 10;

/// Only the first of so many filters of a request are looked up.
const FILTERS: usize = 16;

/// One index is built at a time.
static BUILDS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(1)));

/// Whether an index of its column answers a comparison: it knows texts and numbers.
fn is_served(compare: &Compare) -> bool {
    compare.comparison == Comparison::Equal && !compare.matches_null()
}

async fn kept(reader: &VersionReader, shredded: usize) -> AuxLookup<HashIndex> {
    reader.aux_index(AuxKey::HashIndex(shredded as u32)).await
}

/// The entities that match a comparison with a shredded column, ascending, by an index that is kept: the first
/// `wanted` of them, or more. `None` where there is none, where it names more than `most`, or where the cache does not
/// hold the values that are to be looked at.
pub(crate) async fn found_by_index(
    reader: &VersionReader,
    shredded: usize,
    compare: &Compare,
    most: usize,
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    if !is_served(compare) {
        return Ok(None);
    }
    let Some(index) = kept(reader, shredded).await.hit() else { return Ok(None) };
    let Some(mut probed) = ProbeResult::new(reader, &index, compare).filter(|probed| probed.count() <= most) else {
        return Ok(None);
    };
    if !probed.0.iter().all(|listed| listed.are_of_one_value) {
        return equal(reader, shredded, compare, &probed.positions(), wanted).await;
    }
    for (listed, is_number) in probed.0.iter_mut().zip([false, true]) {
        let Some(first) = listed.positions.first().copied() else { continue };
        let row_group = reader.row_group_of(u64::from(first));
        if !EqualColumn::is_cached(reader, row_group, shredded, is_number) {
            return Ok(None);
        }
        let column = EqualColumn::open(reader, row_group, shredded, is_number).await?;
        let row = (u64::from(first) - reader.row_groups()[row_group].first) as usize;
        let texts = Elements::of(&column.text);
        let mut elements = texts.elements_of(row);
        let holds = match is_number {
            true => elements.any(column.numbers_that_equal(compare)),
            false => elements.any(column.texts_that_equal(&texts, compare)),
        };
        if !holds {
            listed.positions = &[];
        }
    }
    Ok(Some(probed.positions()))
}

/// Those of some entities that match a comparison, ascending, as many as are wanted: by their values. `None` where the
/// cache does not hold these.
async fn equal(
    reader: &VersionReader,
    shredded: usize,
    compare: &Compare,
    candidates: &[u32],
    wanted: usize,
) -> Result<Option<Vec<u32>>, StorageError> {
    let with_numbers = compare.number().is_some();
    let (mut found, mut left) = (Vec::new(), candidates);
    while let Some(first) = left.first()
        && found.len() < wanted
    {
        let row_group = reader.row_group_of(u64::from(*first));
        let group = reader.row_groups()[row_group];
        let here = left.partition_point(|position| u64::from(*position) < group.first + group.rows as u64);
        if !EqualColumn::is_cached(reader, row_group, shredded, with_numbers) {
            return Ok(None);
        }
        let column = EqualColumn::open(reader, row_group, shredded, with_numbers).await?;
        let rows = left[..here].iter().map(|position| (u64::from(*position) - group.first) as usize);
        let equal = column.equal_rows(rows, wanted - found.len(), compare).await;
        found.extend(equal.into_iter().map(|row| (group.first + row as u64) as u32));
        left = &left[here..];
    }
    Ok(Some(found))
}

/// How many these are, or a few more. Costs one look-up in the cache and no look at an entity: the request may not have
/// been admitted.
pub(crate) async fn candidate_count(reader: &VersionReader, shredded: usize, compare: &Compare) -> Option<u64> {
    if !is_served(compare) {
        return None;
    }
    let index = kept(reader, shredded).await.hit()?;
    Some(ProbeResult::new(reader, &index, compare)?.count() as u64)
}

/// The entities that an index lists for a value as a text, and for the value as a number.
struct ProbeResult<'i>([Listed<'i>; 2]);

impl<'i> ProbeResult<'i> {
    /// `None` if they are many.
    fn new(reader: &VersionReader, index: &'i HashIndex, compare: &Compare) -> Option<ProbeResult<'i>> {
        let number = compare.number().and_then(|number| Some((number.double(), number.remainder()?)));
        let number = number.map(|(double, remainder)| index.candidates(IndexedValue::Number(double, remainder)));
        let none = Listed { positions: &[], are_of_one_value: true };
        let probed = ProbeResult([index.candidates(IndexedValue::Text(&compare.folded)), number.unwrap_or(none)]);
        (probed.count() as u64 <= FEW.max(reader.entity_count() / ONE_IN)).then_some(probed)
    }

    /// Entities with both are counted twice.
    fn count(&self) -> usize {
        self.0.iter().map(|listed| listed.positions.len()).sum()
    }

    /// Ascending, each once.
    fn positions(&self) -> Vec<u32> {
        let [texts, numbers] = self.0.map(|listed| listed.positions);
        let mut positions = [texts, numbers].concat();
        if !numbers.is_empty() {
            positions.sort_unstable();
        }
        positions.dedup();
        positions
    }
}

/// The entities that may match all predicates of a scan, and which predicates say so.
pub(super) struct Candidates {
    positions: Vec<u32>,
    predicates: Vec<usize>,
    _reserved: MemoryReservation,
}

impl Candidates {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether the index of its column has been asked about the predicate of this number.
    pub(super) fn are_of(&self, predicate: usize) -> bool {
        self.predicates.contains(&predicate)
    }

    /// Those from one position to another.
    pub(super) fn within(&self, first: u64, end: u64) -> &[u32] {
        let place = |end: u64| self.positions.partition_point(|position| u64::from(*position) < end);
        &self.positions[place(first)..place(end).max(place(first))]
    }
}

/// What a scan knows of the indexes of its columns when it begins.
#[derive(Clone, Default)]
pub(super) struct Indexes {
    pub(super) candidates: Option<Arc<Candidates>>,
    /// By predicate: how much of its column has been looked through, where an index of it would help.
    looked_through: Arc<[Option<Arc<AtomicU64>>]>,
}

impl Indexes {
    /// The candidates that indexes name for these predicates. Where one is missing that has been missed for long, its
    /// making begins, in memory that is nobody's share: it is kept for all.
    pub(super) async fn ask(
        reader: &VersionReader,
        conditions: &[Condition],
        memory: &MemoryReservation,
        shared_memory: &MemoryReservation,
    ) -> Indexes {
        let (mut found, mut asked) = (None::<Vec<u32>>, Vec::new());
        let mut looked_through = vec![None; conditions.len()];
        let served = conditions.iter().enumerate().filter_map(|(number, condition)| {
            let column = condition.indexed_column(reader).filter(|column| is_served(column.compare))?;
            Some((number, column.column, column.compare))
        });
        for (number, shredded, compare) in served.take(FILTERS) {
            let named = match kept(reader, shredded).await {
                AuxLookup::Hit(index) => ProbeResult::new(reader, &index, compare).map(|probed| probed.positions()),
                AuxLookup::Miss => {
                    looked_through[number] = missed(reader, shredded, shared_memory).await;
                    None
                }
                AuxLookup::Unsupported => None,
            };
            let Some(named) = named else { continue };
            asked.push(number);
            found = Some(match found {
                None => named,
                Some(positions) => in_both(&positions, &named),
            });
        }
        let candidates = found.and_then(|positions| {
            let reserved = memory.new_empty();
            reserved.try_grow(positions.capacity() * size_of::<u32>()).ok()?;
            Some(Arc::new(Candidates { positions, predicates: asked, _reserved: reserved }))
        });
        Indexes { candidates, looked_through: looked_through.into() }
    }

    /// Counts elements of the column of a predicate that have been looked through for want of an index.
    pub(super) fn looked_through(&self, predicate: usize, elements: u64) {
        if let Some(Some(count)) = self.looked_through.get(predicate) {
            count.fetch_add(elements, Ordering::Relaxed);
        }
    }
}

fn in_both(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    few.iter().copied().filter(|position| many.binary_search(position).is_ok()).collect()
}

/// The count of what has been checked of a column for want of its index. If that is enough, a task begins to build the
/// index.
async fn missed(reader: &VersionReader, shredded: usize, memory: &MemoryReservation) -> Option<Arc<AtomicU64>> {
    let new = async { Ok(Some(AtomicU64::default())) };
    let key = AuxKey::ScanCount(shredded as u32);
    let count = reader.build_aux_index::<AtomicU64>(key, Box::pin(new)).await.ok()?.hit()?;
    if count.load(Ordering::Relaxed) >= WORTH * reader.entity_count()
        && let Ok(permit) = BUILDS.clone().try_acquire_owned()
    {
        // If the build fails, the next one begins after as many elements.
        count.store(0, Ordering::Relaxed);
        let reader = reader.for_later();
        let memory = memory.new_empty();
        tokio::spawn(async move {
            let elements = reader.element_count(shredded);
            let working_bytes = elements.saturating_mul(hash_index::MAKING_BYTES);
            let index = hash_index_of(&reader, shredded, elements);
            let key = AuxKey::HashIndex(shredded as u32);
            let _ = aux_index::build(&reader, key, working_bytes, &memory, index).await;
            drop(permit);
        });
    }
    Some(count)
}

/// The index of a column with this many elements; `None` if it would take too much of the cache.
async fn hash_index_of(
    reader: &VersionReader,
    shredded: usize,
    elements: u64,
) -> Result<Option<HashIndex>, StorageError> {
    if !reader.can_cache(elements.div_ceil(reader.entity_count().max(1)) * hash_index::ELEMENT_BYTES) {
        return Ok(None);
    }
    let hasher = ValueHasher::default();
    let mut entries: Vec<Entry> = Vec::new();
    for (number, group) in reader.row_groups().iter().enumerate() {
        tokio::task::yield_now().await;
        let column = EqualColumn::open(reader, number, shredded, true).await?;
        column.entries(&hasher, group.first as u32, &mut entries);
    }
    Ok(Some(HashIndex::build(hasher, &entries, async || tokio::task::yield_now().await).await))
}

/// What equality compares of a shredded column in a row group.
pub(super) struct EqualColumn {
    text: ArrayRef,
    numbers: Option<(ArrayRef, ArrayRef)>,
}

impl EqualColumn {
    pub(super) async fn open(
        reader: &VersionReader,
        row_group: usize,
        shredded: usize,
        with_numbers: bool,
    ) -> Result<EqualColumn, StorageError> {
        let missing = || StorageError::Layout(format!("indexed column {shredded} has no text"));
        let part = async |part| reader.shredded(row_group, shredded, part).await;
        let text = part(ShreddedPart::Text).await?.ok_or_else(missing)?;
        let numbers = match with_numbers {
            false => None,
            true => part(ShreddedPart::Number).await?.zip(part(ShreddedPart::Remainder).await?),
        };
        let column = EqualColumn { text, numbers };
        let rows = reader.row_groups()[row_group].rows;
        let fits = |array: &ArrayRef| {
            let (own, other) = (Elements::of(&column.text), Elements::of(array));
            array.len() == rows && own.len() == other.len() && own.offsets() == other.offsets()
        };
        let fit = column.numbers.iter().all(|(one, other)| fits(one) && fits(other));
        if fit && column.text.len() == rows { Ok(column) } else { Err(misfit(shredded)) }
    }

    /// Whether the cache holds it, with its numbers or without.
    fn is_cached(reader: &VersionReader, row_group: usize, shredded: usize, with_numbers: bool) -> bool {
        let parts = [ShreddedPart::Text, ShreddedPart::Number, ShreddedPart::Remainder];
        reader.caches_columns(row_group, &reader.columns_of(shredded, &parts[..if with_numbers { 3 } else { 1 }]))
    }

    /// The first of some rows with an element that is equal to a value, as many as are wanted: what the columns
    /// themselves say of all rows ([`Elements::text_equals`], [`Elements::number_equals`]).
    pub(super) async fn equal_rows(
        &self,
        rows: impl Iterator<Item = usize> + Send,
        wanted: usize,
        compare: &Compare,
    ) -> Vec<usize> {
        let texts = Elements::of(&self.text);
        let (has_text, has_number) = (self.texts_that_equal(&texts, compare), self.numbers_that_equal(compare));
        let is_equal = |element: usize| has_text(element) || has_number(element);
        let (mut equal, mut pace) = (Vec::new(), Pace::default());
        for row in rows {
            if equal.len() == wanted {
                break;
            }
            let mut elements = texts.elements_of(row);
            pace.worked(elements.len().max(1) * EQUAL_BYTES).await;
            if elements.any(&is_equal) {
                equal.push(row);
            }
        }
        equal
    }

    fn texts_that_equal<'c>(&self, texts: &'c Elements<'c>, compare: &'c Compare) -> impl Fn(usize) -> bool + use<'c> {
        let folded = &compare.folded;
        let has_text = !(folded.is_empty() && compare.denull);
        move |element| has_text && texts.bytes_at(element) == Some(folded)
    }

    fn numbers_that_equal(&self, compare: &Compare) -> impl Fn(usize) -> bool {
        let number = compare.number().and_then(|number| Some((number.double(), number.remainder()?)));
        let numbers =
            self.numbers.as_ref().map(|(doubles, remainders)| (Elements::of(doubles), Elements::of(remainders)));
        move |element| match (&numbers, number) {
            (Some((doubles, remainders)), Some(number)) => number_at(doubles, remainders, element) == Some(number),
            _ => false,
        }
    }

    fn entries(&self, hasher: &ValueHasher, first: u32, entries: &mut Vec<Entry>) {
        let texts = Elements::of(&self.text);
        let dictionary = texts.values.as_dictionary_opt::<Int32Type>();
        let hashes: Vec<HashedValue> = dictionary.map_or_else(Vec::new, |dictionary| {
            let values = dictionary.values().as_binary::<i32>();
            (0..values.len()).map(|value| hasher.hash(IndexedValue::Text(values.value(value)))).collect()
        });
        let text_hash = |element: usize| match dictionary {
            Some(dictionary) if dictionary.is_null(element) => None,
            Some(dictionary) => hashes.get(usize::try_from(dictionary.keys().value(element)).ok()?).copied(),
            None => Some(hasher.hash(IndexedValue::Text(texts.bytes_at(element)?))),
        };
        let numbers =
            self.numbers.as_ref().map(|(doubles, remainders)| (Elements::of(doubles), Elements::of(remainders)));
        let number_hash = |element: usize| {
            let (doubles, remainders) = numbers.as_ref()?;
            let (double, remainder) = number_at(doubles, remainders, element)?;
            Some(hasher.hash(IndexedValue::Number(double, remainder)))
        };
        for (row, position) in (0..self.text.len()).zip(first..) {
            for element in texts.elements_of(row) {
                let values = [text_hash(element), number_hash(element)].into_iter().flatten();
                entries.extend(values.map(|value| Entry { value, position }));
            }
        }
    }
}

fn number_at(doubles: &Elements<'_>, remainders: &Elements<'_>, element: usize) -> Option<(f64, i64)> {
    let doubles = doubles.values.as_primitive_opt::<Float64Type>()?;
    let remainders = remainders.values.as_primitive_opt::<Int64Type>()?;
    doubles.is_valid(element).then(|| (doubles.value(element), remainder_at(remainders, element)))
}
