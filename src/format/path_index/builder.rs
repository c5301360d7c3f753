//! Builds the path index of a row group while its entities are walked.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use strata_types::leb128;

use super::{MAX_PATH_INDEX_RAW_BYTES, ScalarKind};
use crate::path_tree::{NumberedPathTree, PathNode, ROOT_NODE, UNKNOWN_NODE};

const PATH_INDEX_ZSTD_LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct PathIndexLimits {
    /// Versions with fewer bytes of documents have no path index, because reading the documents is cheap.
    pub min_document_bytes: u64,
    /// A path index is discarded if it is larger than this percentage of its row group's documents.
    pub max_document_percent: u64,
    /// Max size of a path index before compression, at most [`MAX_PATH_INDEX_RAW_BYTES`].
    pub max_raw_bytes: usize,
    pub max_paths: usize,
    pub max_key_bytes: usize,
}

impl Default for PathIndexLimits {
    fn default() -> Self {
        PathIndexLimits {
            min_document_bytes: 1 << 20,
            max_document_percent: 6,
            max_raw_bytes: MAX_PATH_INDEX_RAW_BYTES,
            max_paths: 1 << 16,
            max_key_bytes: 4 << 20,
        }
    }
}

#[derive(Default)]
pub struct PathIndexBuilder {
    limits: PathIndexLimits,
    is_collecting: bool,
    /// For each tree node and kind of scalar, the index of this pair in `typed_paths` plus 1, or 0 if it is missing.
    typed_path_numbers: Vec<u32>,
    typed_paths: Vec<(PathNode, ScalarKind)>,
    structures: Vec<u8>,
    structure_ends: Vec<usize>,
    /// A hasher with a random seed: sources cannot choose colliding structures. The seed does not affect written bytes.
    hasher: foldhash::fast::RandomState,
    table: HashTable<u32>,
    row_codes: Vec<u8>,
    row_structure: Vec<u8>,
    run: Option<(u32, u32)>,
}

impl PathIndexBuilder {
    pub fn new(limits: PathIndexLimits) -> PathIndexBuilder {
        PathIndexBuilder { limits, is_collecting: true, ..PathIndexBuilder::default() }
    }

    pub fn is_collecting(&self) -> bool {
        self.is_collecting
    }

    #[inline]
    pub fn add_scalar(&mut self, node: PathNode, kind: ScalarKind) {
        if !self.is_collecting {
            return;
        }
        if node == UNKNOWN_NODE {
            self.is_collecting = false;
            return;
        }
        let slot = node as usize * ScalarKind::ALL.len() + kind as usize;
        let number = match self.typed_path_numbers.get(slot) {
            Some(number) if *number > 0 => number - 1,
            _ => self.insert_typed_path(slot, node, kind),
        };
        match &mut self.run {
            Some((typed_path, length)) if *typed_path == number => *length = length.saturating_add(1),
            _ => {
                self.flush_scalar_run();
                self.run = Some((number, 1));
            }
        }
    }

    #[cold]
    fn insert_typed_path(&mut self, slot: usize, node: PathNode, kind: ScalarKind) -> u32 {
        if self.typed_path_numbers.len() <= slot {
            self.typed_path_numbers.resize(slot + 1, 0);
        }
        let number = self.typed_paths.len() as u32;
        self.typed_paths.push((node, kind));
        self.typed_path_numbers[slot] = number + 1;
        number
    }

    #[inline]
    fn flush_scalar_run(&mut self) {
        match self.run.take() {
            Some((typed_path, 1)) => leb128::write_varint(typed_path << 1, &mut self.row_structure),
            Some((typed_path, length)) => {
                leb128::write_varint(typed_path << 1 | 1, &mut self.row_structure);
                leb128::write_varint(length - 2, &mut self.row_structure);
            }
            None => {}
        }
        self.is_collecting &= self.row_structure.len() <= self.limits.max_raw_bytes;
    }

    pub fn end_row(&mut self, tree: &NumberedPathTree) {
        if !self.is_collecting {
            return;
        }
        self.flush_scalar_run();
        let PathIndexBuilder { structures, structure_ends, hasher, table, row_codes, row_structure, .. } = self;
        let start = |number: usize| number.checked_sub(1).map_or(0, |before| structure_ends[before]);
        let structure = |number: u32| &structures[start(number as usize)..structure_ends[number as usize]];
        let hash = hasher.hash_one(row_structure.as_slice());
        match table.find(hash, |number| structure(*number) == row_structure.as_slice()) {
            Some(number) => leb128::write_varint(number + 1, row_codes),
            None => {
                leb128::write_varint(0_u32, row_codes);
                let number = structure_ends.len() as u32;
                table.insert_unique(hash, number, |other| hasher.hash_one(structure(*other)));
                structures.extend_from_slice(row_structure);
                structure_ends.push(structures.len());
            }
        }
        row_structure.clear();
        self.is_collecting = structures.len() + row_codes.len() <= self.limits.max_raw_bytes
            && tree.key_bytes() <= self.limits.max_key_bytes;
    }

    /// Encodes the path index of a row group. Returns `None` if a limit was exceeded. The next row starts a new row
    /// group, and may use another path tree.
    pub fn finish(&mut self, tree: &NumberedPathTree, document_bytes: u64) -> Option<Vec<u8>> {
        let stored = if self.is_collecting { self.encode(tree) } else { None };
        *self = PathIndexBuilder::new(self.limits);
        stored.filter(|bytes| {
            u128::from(document_bytes) * u128::from(self.limits.max_document_percent) >= bytes.len() as u128 * 100
        })
    }

    fn encode(&self, tree: &NumberedPathTree) -> Option<Vec<u8>> {
        // Paths are numbered from 1 in the order of their first scalar, after their parents.
        let mut numbers = vec![0_u32; tree.node_count()];
        let mut paths = Vec::new();
        let mut unnumbered = Vec::new();
        for (node, _) in &self.typed_paths {
            let mut node = *node;
            while node != ROOT_NODE && numbers[node as usize] == 0 {
                unnumbered.push(node);
                node = tree.parent_and_key(node).0;
            }
            while let Some(node) = unnumbered.pop() {
                paths.push(node);
                numbers[node as usize] = paths.len() as u32;
            }
        }
        let mut raw =
            Vec::with_capacity(self.structures.len() + self.structures.len() / 8 + self.row_codes.len() + (1 << 12));
        leb128::write_varint(paths.len() as u32, &mut raw);
        for node in paths {
            let (parent, key) = tree.parent_and_key(node);
            leb128::write_varint(numbers[parent as usize], &mut raw);
            leb128::write_varint(u32::try_from(key.len()).ok()?, &mut raw);
            raw.extend_from_slice(key);
        }
        leb128::write_varint(self.typed_paths.len() as u32, &mut raw);
        for (node, kind) in &self.typed_paths {
            leb128::write_varint(numbers[*node as usize], &mut raw);
            raw.push(*kind as u8);
        }
        leb128::write_varint(self.structure_ends.len() as u32, &mut raw);
        let mut start = 0;
        for end in &self.structure_ends {
            leb128::write_varint((end - start) as u32, &mut raw);
            raw.extend_from_slice(&self.structures[start..*end]);
            start = *end;
        }
        raw.extend_from_slice(&self.row_codes);
        if raw.len() > self.limits.max_raw_bytes.min(MAX_PATH_INDEX_RAW_BYTES) {
            return None;
        }
        zstd::bulk::compress(&raw, PATH_INDEX_ZSTD_LEVEL).ok()
    }
}
