//! Distinct entries of a segment that is being built, each with a number.
//!
//! An open hash table of 64-bit slots: half a hash, and the number of the entry's record. The hash is seeded
//! at random, so that no source can choose entries that collide; numbers follow first appearance, so nothing that is
//! written depends on it.

use std::cmp::Ordering;
use std::hash::{BuildHasher, Hasher, RandomState};

use crate::keywords::cut::Class;

/// Entries up to so many bytes are kept in their record, so that most look-ups need no other memory.
const SHORT_BYTES: usize = 16;

pub(super) struct Entry {
    /// The bytes of a short one, and zeros. Of a longer one, the first of the pair is where its bytes begin.
    key: [u64; 2],
    last_row: u32,
    pub count: u32,
    length: u8,
    pub class: Class,
}

impl Entry {
    /// Notes that a row has it. Whether that is new.
    #[inline]
    fn is_in(&mut self, row: u32) -> bool {
        let is_new = self.last_row != row;
        self.last_row = row;
        self.count += u32::from(is_new);
        is_new
    }
}

pub(super) const TOGETHER: usize = 64;

const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Wanted {
    key: [u64; 2],
    hash: u64,
    slot: u64,
    /// The number of the entry there, if that is it and short.
    found: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted { key: [0; 2], hash: 0, slot: 0, found: NOWHERE }
    }
}

pub(super) struct EntryTable {
    seed: u64,
    /// High half: of the hash. Low half: the entry's number and 1; 0 where there is none.
    slots: Vec<u64>,
    pub(super) entries: Vec<Entry>,
    long: Vec<u8>,
}

impl Default for EntryTable {
    fn default() -> EntryTable {
        const SLOTS: usize = 1 << 12;
        let seed = RandomState::new().build_hasher().finish();
        EntryTable { seed, slots: vec![0; SLOTS], entries: Vec::new(), long: Vec::new() }
    }
}

impl EntryTable {
    /// Appends the numbers of the entries of a row that are not among its earlier ones. Each is the first bytes of what
    /// is given, as many as `length` says, at most 255; what lies behind it makes reading it cheaper.
    ///
    /// A table of many entries lies in no cache. So the memory of some is asked for before the first of them is looked
    /// at, and comes all at once.
    pub(super) fn insert_all(&mut self, entries: &[(&[u8], usize)], row: u32, numbers: &mut Vec<u32>) {
        let mut wanted = [Wanted::default(); TOGETHER];
        for entries in entries.chunks(TOGETHER) {
            let wanted = &mut wanted[..entries.len()];
            for (wanted, (from, length)) in wanted.iter_mut().zip(entries) {
                let bytes = from.get(..*length).unwrap_or_default();
                let key = match from.first_chunk::<SHORT_BYTES>() {
                    Some(sixteen) => masked_key(sixteen, *length),
                    None => key(bytes),
                };
                *wanted = Wanted { key, hash: self.hash(key, *length, bytes), ..Wanted::default() };
            }
            let mask = self.slots.len() - 1;
            for wanted in wanted.iter_mut() {
                wanted.slot = self.slots.get(wanted.hash as usize & mask).copied().unwrap_or_default();
            }
            for (wanted, (_, length)) in wanted.iter_mut().zip(entries) {
                let number = (wanted.slot as u32).wrapping_sub(1);
                // Nothing branches on it, so others go on while memory comes.
                if let Some(entry) = self.entries.get(number as usize) {
                    let other = (entry.key[0] ^ wanted.key[0])
                        | (entry.key[1] ^ wanted.key[1])
                        | u64::from(entry.length) ^ *length as u64;
                    wanted.found = if (other == 0) & (*length <= SHORT_BYTES) { number } else { NOWHERE };
                }
            }
            for (wanted, (from, length)) in wanted.iter().zip(entries) {
                // Numbers stay what they are, whatever is added.
                let number = match self.entries.get_mut(wanted.found as usize) {
                    Some(entry) => entry.is_in(row).then_some(wanted.found),
                    None => self.insert(wanted, from.get(..*length).unwrap_or_default(), row),
                };
                numbers.extend(number);
            }
        }
    }

    /// The number of an entry of a row; `None` if that row has it already.
    #[inline]
    fn insert(&mut self, wanted: &Wanted, bytes: &[u8], row: u32) -> Option<u32> {
        let Wanted { key, hash, .. } = *wanted;
        let mask = self.slots.len() - 1;
        let high = hash & HIGH;
        let mut slot = hash as usize & mask;
        loop {
            let found = self.slots.get_mut(slot)?;
            if *found == 0 {
                let number = self.entries.len() as u32;
                *found = high | u64::from(number + 1);
                self.append(key, bytes, row);
                return Some(number);
            }
            if *found & HIGH == high {
                let number = *found as u32 - 1;
                if let Some(entry) = self.entries.get_mut(number as usize)
                    && usize::from(entry.length) == bytes.len()
                    && match bytes.len() {
                        ..=SHORT_BYTES => entry.key == key,
                        _ => self.long.get(entry.key[0] as usize..).is_some_and(|long| long.starts_with(bytes)),
                    }
                {
                    return entry.is_in(row).then_some(number);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    #[cold]
    fn append(&mut self, mut key: [u64; 2], bytes: &[u8], row: u32) {
        if bytes.len() > SHORT_BYTES {
            key = [self.long.len() as u64, 0];
            self.long.extend_from_slice(bytes);
        }
        self.entries.push(Entry { key, last_row: row, count: 1, length: bytes.len() as u8, class: Class::of(bytes) });
        // Half full: probes are short.
        if self.entries.len() * 2 > self.slots.len() {
            let mask = self.slots.len() * 2 - 1;
            let mut slots = vec![0; mask + 1];
            for (number, entry) in self.entries.iter().enumerate() {
                let hash = match usize::from(entry.length) {
                    length @ ..=SHORT_BYTES => self.hash(entry.key, length, &[]),
                    length => {
                        let bytes = self.long_bytes(entry);
                        self.hash(self::key(bytes), length, bytes)
                    }
                };
                let mut at = hash as usize & mask;
                while slots.get(at).is_some_and(|slot| *slot != 0) {
                    at = (at + 1) & mask;
                }
                if let Some(slot) = slots.get_mut(at) {
                    *slot = (hash & HIGH) | (number as u64 + 1);
                }
            }
            self.slots = slots;
        }
    }

    pub(super) fn bytes_into(&self, entry: &Entry, out: &mut Vec<u8>) {
        match usize::from(entry.length) {
            length @ ..=SHORT_BYTES => out.extend(entry.key.iter().flat_map(|half| half.to_le_bytes()).take(length)),
            _ => out.extend_from_slice(self.long_bytes(entry)),
        }
    }

    fn long_bytes(&self, entry: &Entry) -> &[u8] {
        let from = self.long.get(entry.key[0] as usize..).unwrap_or_default();
        from.get(..usize::from(entry.length)).unwrap_or_default()
    }

    pub(super) fn compare(&self, one: &Entry, other: &Entry) -> Ordering {
        // No entry has a byte 0, so zeros behind a short one sort it first.
        let first = |entry: &Entry| match usize::from(entry.length) {
            ..=SHORT_BYTES => entry.key,
            _ => key(self.long_bytes(entry)),
        };
        let order = first(one).map(u64::swap_bytes).cmp(&first(other).map(u64::swap_bytes));
        order.then_with(|| {
            let rest = |entry: &Entry| match usize::from(entry.length) {
                ..=SHORT_BYTES => &[],
                _ => self.long_bytes(entry),
            };
            rest(one).cmp(rest(other))
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let entries = self.entries.capacity() * size_of::<Entry>();
        self.slots.capacity() * size_of::<u64>() + entries + self.long.capacity()
    }

    /// Folded multiplication, as in wyhash and foldhash.
    #[inline]
    fn hash(&self, key: [u64; 2], length: usize, bytes: &[u8]) -> u64 {
        let mut hash = fold(key[0] ^ self.seed, key[1] ^ (length as u64).wrapping_mul(ODD) ^ self.seed.rotate_left(32));
        // Of a short entry there are none.
        for rest in bytes.get(SHORT_BYTES..).unwrap_or_default().chunks(SHORT_BYTES) {
            let key = self::key(rest);
            hash = fold(key[0] ^ hash, key[1] ^ self.seed);
        }
        fold(hash, ODD ^ self.seed)
    }
}

const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
const HIGH: u64 = !(u32::MAX as u64);

#[inline]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// The first 16 bytes, or as many as there are and zeros.
#[inline]
fn key(bytes: &[u8]) -> [u64; 2] {
    match bytes.first_chunk() {
        Some(sixteen) => masked_key(sixteen, SHORT_BYTES),
        None => {
            let mut sixteen = [0; SHORT_BYTES];
            sixteen[..bytes.len()].copy_from_slice(bytes);
            masked_key(&sixteen, SHORT_BYTES)
        }
    }
}

/// The [`key`] of the first bytes of sixteen: lengths are what a processor guesses worst, so nothing branches on them.
#[inline]
fn masked_key(sixteen: &[u8; SHORT_BYTES], length: usize) -> [u64; 2] {
    let kept = u128::MAX >> (u128::BITS as usize - 8 * length.clamp(1, SHORT_BYTES));
    let key = u128::from_le_bytes(*sixteen) & kept;
    [key as u64, (key >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Numbers by first appearance, counts of rows, bytes and order, against a naive twin.
        #[test]
        fn entries_are_told_apart(rows in proptest::collection::vec(proptest::collection::vec(proptest::collection::vec(1u8..4, 1..40), 0..160), 0..60)) {
            let mut table = EntryTable::default();
            let mut twin: Vec<(&[u8], u32)> = Vec::new();
            for (row, entries) in rows.iter().enumerate() {
                // What follows an entry makes no difference.
                let behind: Vec<Vec<u8>> =
                    entries.iter().map(|entry| [entry.as_slice(), &[7; 20][..entry.len() % 20]].concat()).collect();
                let given: Vec<(&[u8], usize)> =
                    behind.iter().zip(entries).map(|(behind, entry)| (behind.as_slice(), entry.len())).collect();
                let mut numbers = Vec::new();
                table.insert_all(&given, row as u32, &mut numbers);
                let (mut seen, mut expected): (Vec<&[u8]>, Vec<u32>) = (Vec::new(), Vec::new());
                for entry in entries {
                    if seen.contains(&entry.as_slice()) {
                        continue;
                    }
                    seen.push(entry);
                    let at = twin.iter().position(|(bytes, _)| bytes == entry);
                    let at = at.unwrap_or_else(|| { twin.push((entry, 0)); twin.len() - 1 });
                    twin[at].1 += 1;
                    expected.push(at as u32);
                }
                prop_assert_eq!(numbers, expected);
            }
            prop_assert_eq!(table.entries.len(), twin.len());
            for (entry, (bytes, count)) in table.entries.iter().zip(&twin) {
                let mut written = Vec::new();
                table.bytes_into(entry, &mut written);
                prop_assert_eq!(&written, bytes);
                prop_assert_eq!(entry.count, *count);
            }
            for pair in (0..twin.len()).collect::<Vec<_>>().windows(2) {
                let order = table.compare(&table.entries[pair[0]], &table.entries[pair[1]]);
                prop_assert_eq!(order, twin[pair[0]].0.cmp(twin[pair[1]].0));
            }
        }
    }
}
