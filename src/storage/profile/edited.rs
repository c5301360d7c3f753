//! The profile of an edited list: that of the list before, less the entities that went, with those that came.
//!
//! Numbers of entities and of values by type follow exactly, and so does everything of a path at which the same values
//! went and came. Of others:
//!
//! - A minimum or maximum stays, or is a value that came. Where a value went that may be it, nothing follows.
//! - Distinct and frequent values follow where the profile names all values that occur more than once, and no other
//!   one. Otherwise they are estimates from then on: none is farther off than there were edits.
//!
//! Where something that must be exact does not follow, there is no profile, and the list has to be read for one.

use std::collections::HashMap;

use bytes::Bytes;

use super::bins::NumberBins;
use super::builder::ProfileBuilder;
use super::lengths::Lengths;
use super::min_max::Cut;
use super::shredding::{NotShredded, ShreddingBounds, ShreddingChoice};
use super::stored::{Distinct, PathRecord, StoredProfile, TopValue, Unmet, ValueRecord, value};
use super::values::{ScalarType, Shown};
use super::{DISTINCT, PATH_BYTES, PATHS, TOP};
use crate::document::{NumericValue, Scalar, Text};
use crate::model::index::IndexSettings;
use crate::model::path::Path;
use crate::storage::layout::Layout;
use crate::storage::tree::{Found, Node, PathTree, UNKNOWN};

/// What edits change at one path.
#[derive(Default)]
struct Delta {
    entities: i64,
    /// The last entity that was counted.
    last: usize,
    nulls: i64,
    booleans: i64,
    numbers: i64,
    strings: i64,
    objects: i64,
    arrays: i64,
    text_bytes: i64,
    /// Of strings that went, and that came.
    lengths: [Lengths; 2],
    /// Whether scalars below an array went, and came.
    fanned: [bool; 2],
    /// Values that are not null, by their type and text: how many more there are.
    values: HashMap<(ScalarType, Vec<u8>), i64>,
}

impl Delta {
    fn add(&mut self, came: bool, entity: usize, fanned: bool, found: Found<'_>) {
        let sign = if came { 1 } else { -1 };
        if self.last != entity {
            self.last = entity;
            self.entities += sign;
        }
        let scalar = match found {
            Found::Object => return self.objects += sign,
            Found::Array => return self.arrays += sign,
            Found::Scalar(scalar) => scalar,
        };
        self.fanned[usize::from(came)] |= fanned;
        let value = match scalar {
            Scalar::Null => return self.nulls += sign,
            Scalar::Bool(value) => {
                self.booleans += sign;
                (ScalarType::Boolean, if value { b"true".to_vec() } else { b"false".to_vec() })
            }
            Scalar::Number(text) => {
                self.numbers += sign;
                self.text_bytes += sign * text.len() as i64;
                (ScalarType::Number, text.as_bytes().to_vec())
            }
            Scalar::String(text) => {
                self.strings += sign;
                self.text_bytes += sign * text.raw().len() as i64;
                self.lengths[usize::from(came)].add(text);
                (ScalarType::String, text.raw().to_vec())
            }
        };
        *self.values.entry(value).or_default() += sign;
    }

    fn settle(&mut self) {
        self.values.retain(|_, more| *more != 0);
    }

    /// Whether nothing of the path changes.
    fn is_none(&self) -> bool {
        let counts = [self.entities, self.nulls, self.booleans, self.numbers, self.strings, self.objects, self.arrays];
        counts == [0; 7] && self.values.is_empty() && self.fanned[0] == self.fanned[1]
    }
}

fn sum(count: u64, more: i64) -> Option<u64> {
    count.checked_add_signed(more)
}

/// The profile of a list after edits, by which these entities went and those came. `None` where it does not follow.
/// Columns of the layout that cannot hold what came are retired.
pub fn edited(
    before: &StoredProfile,
    removed: &[Bytes],
    added: &[Bytes],
    layout: &mut Layout,
) -> Option<StoredProfile> {
    if before.paths_left_out {
        return None;
    }
    let mut tree = PathTree::new(PATHS, PATH_BYTES);
    let mut deltas: Vec<Delta> = Vec::new();
    let (mut entity, mut is_known) = (0, true);
    for (came, documents) in [(false, removed), (true, added)] {
        for document in documents {
            entity += 1;
            tree.walk(document, true, |node, fanned, found| {
                if node == UNKNOWN {
                    is_known = false;
                    return;
                }
                if deltas.len() <= node as usize {
                    deltas.resize_with(node as usize + 1, Delta::default);
                }
                deltas[node as usize].add(came, entity, fanned, found);
            });
        }
    }
    if !is_known {
        return None;
    }
    let bytes = |documents: &[Bytes]| documents.iter().map(|document| document.len() as u64).sum::<u64>();
    let mut after = StoredProfile {
        entities: (before.entities + added.len() as u64).checked_sub(removed.len() as u64)?,
        document_bytes: (before.document_bytes + bytes(added)).checked_sub(bytes(removed))?,
        ..before.clone()
    };
    let places: HashMap<&str, usize> =
        before.paths.iter().enumerate().map(|(place, record)| (&*record.path, place)).collect();
    let mut new = NewPaths::default();
    for (node, delta) in deltas.iter_mut().enumerate().skip(1) {
        delta.settle();
        let keys: Vec<String> =
            tree.keys(node as Node).into_iter().map(|key| Text::new(key).unescape().into_owned()).collect();
        let path = Path::from_keys(keys.clone()).map_or_else(|_| String::new(), |path| path.to_string());
        // What has no name may be several paths.
        if path.is_empty() {
            match delta.is_none() {
                true => continue,
                false => return None,
            }
        }
        match places.get(&*path) {
            Some(place) => {
                let record = &mut after.paths[*place];
                change(record, delta)?;
                tell_shredding(record, &keys, layout);
            }
            None => new.paths.push((node as Node, keys)),
        }
    }
    new.records(added, after.entities, &mut after.paths)?;
    after.paths.retain(|record| record.entities > 0);
    if after.paths.len() >= PATHS {
        return None;
    }
    tell_unmet(&mut after, layout);
    Some(after)
}

/// Paths that came with edits.
#[derive(Default)]
struct NewPaths {
    paths: Vec<(Node, Vec<String>)>,
}

impl NewPaths {
    /// Appends what is told of them.
    fn records(&self, added: &[Bytes], entities: u64, records: &mut Vec<PathRecord>) -> Option<()> {
        if self.paths.is_empty() {
            return Some(());
        }
        let mut profile = ProfileBuilder::new();
        added.iter().for_each(|document| profile.add(document));
        let bounds = ShreddingBounds::default();
        let index = IndexSettings::default();
        let told = profile.describe(&profile.choose_shredded(&bounds, &index), &index);
        for (_, keys) in &self.paths {
            let path = Path::from_keys(keys.clone()).ok()?.to_string();
            let mut record = told.paths.iter().find(|record| record.path == path)?.clone();
            let scalars = profile.paths[profile.node(keys)? as usize].scalar_entities;
            record.shredded = false;
            record.why_not_shredded = Some(match scalars {
                0 => NotShredded::NoScalar,
                _ if scalars * bounds.one_in < entities => NotShredded::TooRare,
                _ => NotShredded::Edited,
            });
            records.push(record);
        }
        Some(())
    }
}

/// Makes the record of a path that of the path after edits; `None` where that does not follow.
fn change(record: &mut PathRecord, delta: &Delta) -> Option<()> {
    if delta.is_none() {
        return Some(());
    }
    record.entities = sum(record.entities, delta.entities)?;
    let types = &mut record.types;
    let (had_strings, numbers) = (types.string > 0, types.number);
    for (count, more) in [
        (&mut types.null, delta.nulls),
        (&mut types.boolean, delta.booleans),
        (&mut types.number, delta.numbers),
        (&mut types.string, delta.strings),
        (&mut types.object, delta.objects),
        (&mut types.array, delta.arrays),
    ] {
        *count = sum(*count, more)?;
    }
    record.text_bytes = sum(record.text_bytes, delta.text_bytes)?;
    change_lengths(record, had_strings, delta)?;
    change_bins(record, numbers, delta)?;
    let scalars = record.types.null + record.types.boolean + record.types.number + record.types.string;
    record.fans_out = match delta.fanned {
        [_, true] => true,
        // Some entity has several, or none that went had any below an array.
        [true, false] if record.fans_out && scalars <= record.entities && scalars > 0 => return None,
        [true, false] if scalars == 0 => false,
        _ => record.fans_out,
    };
    if !delta.values.is_empty() {
        let counted = Counted::of(record, delta);
        change_bounds(record, delta, counted.as_ref())?;
        change_values(record, delta, counted)?;
    }
    Some(())
}

fn change_lengths(record: &mut PathRecord, had_strings: bool, delta: &Delta) -> Option<()> {
    let [gone, came] = [delta.lengths[0].counts(), delta.lengths[1].counts()];
    if gone.is_empty() && came.is_empty() {
        return Some(());
    }
    let lengths = &mut record.string_lengths;
    // A file of before they were counted.
    if lengths.is_empty() && had_strings {
        return None;
    }
    lengths.resize(lengths.len().max(gone.len()).max(came.len()), 0);
    for (count, came) in lengths.iter_mut().zip(came) {
        *count += came;
    }
    for (count, gone) in lengths.iter_mut().zip(gone) {
        *count = count.checked_sub(*gone)?;
    }
    while lengths.last() == Some(&0) {
        lengths.pop();
    }
    Some(())
}

/// The numbers by their range, of which there were so many, before the minimum and the maximum change. They follow
/// because these two never come nearer to each other.
fn change_bins(record: &mut PathRecord, numbers: u64, delta: &Delta) -> Option<()> {
    let is_number = |scalar_type: ScalarType| scalar_type == ScalarType::Number;
    let changes = delta.values.iter().filter(|((scalar_type, _), _)| is_number(*scalar_type));
    let changes: Option<Vec<(&str, i64)>> =
        changes.map(|((_, text), more)| Some((std::str::from_utf8(text).ok()?, *more))).collect();
    let changes = changes?;
    if changes.is_empty() {
        return Some(());
    }
    let known = match (&record.number_bins, &record.number_min, &record.number_max) {
        (Some(stored), _, _) => stored.numbers(),
        (None, None, _) => Some(NumberBins::default()),
        // All are one number, which has no ranges.
        (None, Some(min), Some(max)) if min == max && !min.cut && min.value.is_number() => {
            let mut bins = NumberBins::default();
            bins.add_times(&min.value.to_string(), numbers);
            Some(bins)
        }
        _ => None,
    };
    // A file of before they were counted, or numbers of which the profile before tells too little.
    let Some(mut bins) = known else {
        record.number_bins = None;
        return Some(());
    };
    for (text, more) in changes.iter().filter(|(_, more)| *more > 0) {
        bins.add_times(text, more.unsigned_abs());
    }
    for (text, more) in changes.iter().filter(|(_, more)| *more < 0) {
        bins.remove(text, more.unsigned_abs())?;
    }
    record.number_bins = bins.stored();
    Some(())
}

/// The minima and maxima.
fn change_bounds(record: &mut PathRecord, delta: &Delta, counted: Option<&Counted>) -> Option<()> {
    let stays =
        |scalar_type: ScalarType, bytes: &[u8]| counted.is_some_and(|counted| counted.holds(scalar_type, bytes));
    let of_type = |wanted: ScalarType| {
        delta
            .values
            .iter()
            .filter(move |((scalar_type, _), _)| *scalar_type == wanted)
            .map(|((_, text), more)| (text, *more))
    };
    for (text, more) in of_type(ScalarType::Number) {
        let text = std::str::from_utf8(text).ok()?;
        change_number(record, text, more, stays(ScalarType::Number, text.as_bytes()))?;
    }
    for (text, more) in of_type(ScalarType::String) {
        let cut = Cut::of_string(Text::new(text));
        let stays = !cut.cut && stays(ScalarType::String, &cut.bytes);
        change_string(record, &cut, more, stays)?;
    }
    // With the last one that went, a bound would have.
    let has = [record.types.number > 0, record.types.string > 0];
    (has == [record.number_min.is_some(), record.string_min.is_some()]).then_some(())
}

/// Takes a number that comes, or goes: `stays` says that others of it do not.
fn change_number(record: &mut PathRecord, text: &str, more: i64, stays: bool) -> Option<()> {
    let cut = Cut::of_number(text);
    if cut.cut {
        return None;
    }
    let number = NumericValue::parse(text)?;
    let told = value(ScalarType::Number, &cut);
    for (bound, is_min) in [(&mut record.number_min, true), (&mut record.number_max, false)] {
        let Some(known) = bound else {
            match more > 0 {
                true => *bound = Some(told.clone()),
                false => return None,
            }
            continue;
        };
        if known.cut || !known.value.is_number() {
            return None;
        }
        let ordering = number.partial_cmp(&NumericValue::parse(&known.value.to_string())?)?;
        let ordering = if is_min { ordering } else { ordering.reverse() };
        match (ordering, more > 0) {
            (std::cmp::Ordering::Less, true) => *bound = Some(told.clone()),
            (std::cmp::Ordering::Greater, _) => {}
            // Of equal ones the first is told, with its spelling.
            (std::cmp::Ordering::Equal, is_more) if known.value == told.value && (is_more || stays) => {}
            _ => return None,
        }
    }
    Some(())
}

/// Takes a string that comes, or goes: `stays` says that others of it do not.
fn change_string(record: &mut PathRecord, cut: &Cut, more: i64, stays: bool) -> Option<()> {
    for (bound, is_min) in [(&mut record.string_min, true), (&mut record.string_max, false)] {
        let told = || value(ScalarType::String, cut);
        let Some(known) = bound else {
            match more > 0 {
                true => *bound = Some(told()),
                false => return None,
            }
            continue;
        };
        let ordering = order(cut, known)?;
        let ordering = if is_min { ordering } else { ordering.reverse() };
        match (ordering, more > 0) {
            (std::cmp::Ordering::Less, true) => *bound = Some(told()),
            (std::cmp::Ordering::Greater, _) | (std::cmp::Ordering::Equal, true) => {}
            (std::cmp::Ordering::Equal, false) if stays => {}
            _ => return None,
        }
    }
    Some(())
}

/// How a string compares with one of which as much is known as is shown; `None` where that does not tell.
fn order(string: &Cut, shown: &ValueRecord) -> Option<std::cmp::Ordering> {
    let known = shown.value.as_str()?.as_bytes();
    if !shown.cut {
        return Some((&*string.bytes, string.cut).cmp(&(known, false)));
    }
    let common = known.len().min(string.bytes.len());
    match string.bytes[..common].cmp(&known[..common]) {
        std::cmp::Ordering::Equal if string.bytes.len() < known.len() && !string.cut => Some(std::cmp::Ordering::Less),
        std::cmp::Ordering::Equal => None,
        ordering => Some(ordering),
    }
}

/// How many distinct values there are, and which are frequent.
fn change_values(record: &mut PathRecord, delta: &Delta, counted: Option<Counted>) -> Option<()> {
    let most = record.types.boolean + record.types.number + record.types.string;
    match counted {
        Some(counted) => (record.distinct.count, record.top) = (counted.distinct, counted.top()),
        None => {
            let came = delta.values.values().filter(|more| **more > 0).count() as u64;
            let least = u64::from(most > 0);
            let count = (record.distinct.count + came).min(most).max(least);
            record.distinct = Distinct { count, estimated: true };
            for ((scalar_type, text), more) in &delta.values {
                let told = value(*scalar_type, &shown(*scalar_type, text)?.value);
                let listed = record.top.iter_mut().find(|top| (&top.value, top.cut) == (&told.value, told.cut));
                if let Some(top) = listed {
                    top.count = top.count.saturating_add_signed(*more);
                }
            }
            record.top_estimated = true;
            record.top.retain(|top| top.count > 1);
            record.top.sort_by_key(|top| std::cmp::Reverse(top.count));
        }
    }
    Some(())
}

fn shown(scalar_type: ScalarType, text: &[u8]) -> Option<Shown> {
    let cut = match scalar_type {
        ScalarType::String => Cut::of_string(Text::new(text)),
        ScalarType::Number | ScalarType::Boolean => Cut::of_number(std::str::from_utf8(text).ok()?),
    };
    Some(Shown { scalar_type, value: cut })
}

/// The values of a path after edits, where all are known that occur more than once.
struct Counted {
    distinct: u64,
    /// Those that occur more than once.
    repeated: HashMap<(ScalarType, Vec<u8>), u64>,
}

impl Counted {
    /// `None` where the record does not name all that occur more than once, or something else that changed.
    fn of(record: &PathRecord, delta: &Delta) -> Option<Counted> {
        if record.top_estimated || record.distinct.estimated || record.top.len() >= TOP {
            return None;
        }
        let mut known: HashMap<(ScalarType, Vec<u8>), u64> = HashMap::new();
        for top in &record.top {
            let (scalar_type, text) = match &top.value {
                _ if top.cut => return None,
                serde_json::Value::Number(number) => (ScalarType::Number, number.to_string().into_bytes()),
                serde_json::Value::Bool(value) => (ScalarType::Boolean, value.to_string().into_bytes()),
                serde_json::Value::String(text) => (ScalarType::String, text.clone().into_bytes()),
                _ => return None,
            };
            known.insert((scalar_type, text), top.count);
        }
        // Values that occur once; which they are is not known.
        let mut singles = record.distinct.count.checked_sub(known.len() as u64)?;
        // Those that go first, for what comes then is more often known to be new.
        let mut changes: Vec<_> = delta.values.iter().collect();
        changes.sort_by_key(|(_, more)| **more);
        let mut named_singles: Vec<(ScalarType, Vec<u8>)> = Vec::new();
        for ((scalar_type, text), more) in changes {
            let shown = shown(*scalar_type, text)?;
            // Numbers are told in another spelling, if they have an exponent.
            if shown.value.cut || (*scalar_type == ScalarType::Number && text.iter().any(u8::is_ascii_alphabetic)) {
                return None;
            }
            let key = (*scalar_type, shown.value.bytes);
            let count = match known.get(&key) {
                Some(count) => sum(*count, *more)?,
                None if *more < 0 => {
                    singles = singles.checked_sub(more.unsigned_abs()).filter(|_| *more == -1)?;
                    continue;
                }
                // It may be one of those that occur once.
                None if singles > 0 => return None,
                None => more.unsigned_abs(),
            };
            known.remove(&key);
            match count {
                0 => {}
                1 => named_singles.push(key),
                _ => _ = known.insert(key, count),
            }
        }
        let distinct = singles + (known.len() + named_singles.len()) as u64;
        Some(Counted { distinct, repeated: known })
    }

    /// Whether a value occurs for sure, and as a number in this spelling alone.
    fn holds(&self, scalar_type: ScalarType, bytes: &[u8]) -> bool {
        if !self.repeated.contains_key(&(scalar_type, bytes.to_vec())) {
            return false;
        }
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(NumericValue::parse);
        let is_equal = |other: &&(ScalarType, Vec<u8>)| {
            other.0 == ScalarType::Number
                && number(&other.1).partial_cmp(&number(bytes)).is_none_or(|order| order.is_eq())
        };
        scalar_type != ScalarType::Number
            || (self.distinct == self.repeated.len() as u64 && self.repeated.keys().filter(is_equal).count() == 1)
    }

    /// The frequent ones, as a profile tells them.
    fn top(self) -> Vec<TopValue> {
        let mut top: Vec<_> = self.repeated.into_iter().collect();
        top.sort_by(|(one, one_count), (other, other_count)| (other_count, one).cmp(&(one_count, other)));
        top.truncate(TOP);
        let told = top.into_iter().map(|((scalar_type, bytes), count)| {
            let ValueRecord { value, cut } = value(scalar_type, &Cut { bytes, cut: false });
            TopValue { value, cut, count }
        });
        told.collect()
    }
}

/// Whether the path has a shredded column that may be asked.
fn tell_shredding(record: &mut PathRecord, keys: &[String], layout: &mut Layout) {
    let scalars = record.types.null + record.types.boolean + record.types.number + record.types.string;
    if let Some(number) = layout.shredded(keys) {
        let column = &mut layout.shredded_columns[number];
        column.retired = column.dictionary && record.distinct.count > DISTINCT as u64;
        if !column.retired {
            return;
        }
    }
    let why = match record.why_not_shredded {
        _ if scalars == 0 => NotShredded::NoScalar,
        None | Some(NotShredded::NoScalar) => NotShredded::Edited,
        Some(why) => why,
    };
    (record.shredded, record.why_not_shredded) = (false, Some(why));
}

/// Which of the paths that the index asks for have no shredded column.
fn tell_unmet(profile: &mut StoredProfile, layout: &Layout) {
    let has_scalars = |path: &str| {
        profile.paths.iter().find(|record| record.path == path).is_some_and(|record| {
            let types = &record.types;
            types.null + types.boolean + types.number + types.string > 0
        })
    };
    let asked = profile.index.always.iter().filter(|path| {
        let keys = Path::parse(path).map(|path| path.keys().to_vec());
        keys.is_ok_and(|keys| layout.shredded(&keys).is_none())
    });
    let unmet = asked.map(|path| {
        let why = if has_scalars(path) { NotShredded::Edited } else { NotShredded::NoScalar };
        Unmet { path: path.clone(), why }
    });
    let unmet = unmet.collect();
    profile.index.unmet = unmet;
}

impl ProfileBuilder {
    /// The shredded columns that the file of an edited list has, for [`ProfileBuilder::describe`].
    pub fn shredded_in(&self, layout: &Layout) -> ShreddingChoice {
        let mut choice = self.choose_shredded(&ShreddingBounds::default(), &layout.index);
        for (node, _) in self.nodes() {
            let why = &mut choice.none[node as usize];
            *why = match layout.shredded(&self.keys(node)) {
                Some(_) => None,
                None => Some(why.unwrap_or(NotShredded::Edited)),
            };
        }
        choice.unmet.retain(|(path, _)| layout.shredded(path.keys()).is_none());
        for path in layout.index.always() {
            let is_told = choice.unmet.iter().any(|(told, _)| told == path);
            if layout.shredded(path.keys()).is_none() && !is_told {
                choice.unmet.push((path.clone(), NotShredded::Edited));
            }
        }
        choice
    }

    /// Retires the columns of the layout that were to hold few distinct values, and no longer do.
    pub fn retire_dictionaries(&self, layout: &mut Layout) {
        for column in &mut layout.shredded_columns {
            let values = self.node(&column.keys).map(|node| &self.paths[node as usize].values);
            column.retired |= column.dictionary && values.is_some_and(super::values::Values::are_many);
        }
    }
}
