//! The check `unique`: finds entities whose key an earlier entity has, with hashes of the keys that are sorted on disk.
//!
//! 1. For each entity and each list of paths, store a record: the hash of the key, the list, and the position.
//! 2. Sort the records. Records with equal hashes and lists are neighbors, and the first of them is the original.
//! 3. Sort the others by position, because an entity can repeat the keys of several lists and counts once.

use strata_json::EntityHash;
use strata_store::StorageError;

use crate::record_sorter::RecordSorter;

const HASH_BYTES: usize = size_of::<EntityHash>();
const LIST_BYTES: usize = size_of::<u16>();
const POSITION_BYTES: usize = size_of::<u64>();
const KEY_BYTES: usize = HASH_BYTES + LIST_BYTES;

/// Sorts the records of keys.
pub type KeySorter = RecordSorter<{ KEY_BYTES + POSITION_BYTES }>;
type RepeatSorter = RecordSorter<{ POSITION_BYTES + LIST_BYTES + POSITION_BYTES }>;

/// An entity that has the key of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedKey {
    pub position: u64,
    /// The index of the list of paths.
    pub list: u16,
    /// The position of the first entity with the key.
    pub original: u64,
}

#[derive(Debug, Default)]
pub(crate) struct RepeatedKeys {
    /// The number of entities that repeat a key of any list.
    pub entity_count: u64,
    /// The first of them, ordered by position. If an entity repeats several keys, the first list counts.
    pub first: Vec<RepeatedKey>,
}

pub(crate) fn push_key(sorter: &mut KeySorter, hash: EntityHash, list: u16, position: u64) -> Result<(), StorageError> {
    let mut record = [0; KEY_BYTES + POSITION_BYTES];
    record[..HASH_BYTES].copy_from_slice(&hash);
    record[HASH_BYTES..KEY_BYTES].copy_from_slice(&list.to_be_bytes());
    record[KEY_BYTES..].copy_from_slice(&position.to_be_bytes());
    sorter.push(record)
}

pub(crate) fn find_repeated(keys: KeySorter, max_first: usize) -> Result<RepeatedKeys, StorageError> {
    let mut repeats: RepeatSorter = keys.new_sibling();
    let mut original: Option<[u8; KEY_BYTES + POSITION_BYTES]> = None;
    keys.for_each_sorted(|record| {
        match &original {
            Some(original) if original[..KEY_BYTES] == record[..KEY_BYTES] => {
                let mut repeat = [0; POSITION_BYTES + LIST_BYTES + POSITION_BYTES];
                repeat[..POSITION_BYTES].copy_from_slice(&record[KEY_BYTES..]);
                repeat[POSITION_BYTES..][..LIST_BYTES].copy_from_slice(&record[HASH_BYTES..KEY_BYTES]);
                repeat[POSITION_BYTES + LIST_BYTES..].copy_from_slice(&original[KEY_BYTES..]);
                repeats.push(repeat)?;
            }
            _ => original = Some(*record),
        }
        Ok(())
    })?;
    let mut repeated = RepeatedKeys::default();
    let mut last_position = None;
    repeats.for_each_sorted(|record| {
        let position = read_position(&record[..POSITION_BYTES]);
        if last_position.replace(position) != Some(position) {
            repeated.entity_count += 1;
            if repeated.first.len() < max_first {
                let list = u16::from_be_bytes([record[POSITION_BYTES], record[POSITION_BYTES + 1]]);
                let original = read_position(&record[POSITION_BYTES + LIST_BYTES..]);
                repeated.first.push(RepeatedKey { position, list, original });
            }
        }
        Ok(())
    })?;
    Ok(repeated)
}

fn read_position(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |position, byte| position << 8 | u64::from(*byte))
}
