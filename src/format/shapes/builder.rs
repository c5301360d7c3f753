//! The shapes of a row group as bytes, while its entities are walked.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use strata_types::leb128;

use super::{RAW_BYTES, ScalarKind};
use crate::tree::{Node, PathTree, ROOT, UNKNOWN};

/// Zstandard level. Shapes are a small part of a file, and compressing them a small part of its making.
const LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug)]
pub struct ShapeLimits {
    /// A version whose documents take less has no shapes: reading them is cheap.
    pub document_bytes: u64,
    /// Shapes that take more than this part of the documents of their row group, in percent, are left out.
    pub share_percent: u64,
    /// Bytes of the shapes of a row group before they are compressed; those that take more are left out. At most
    /// [`RAW_BYTES`].
    pub raw_bytes: usize,
    /// Distinct paths of a row group, and bytes of their keys; the shapes of one that has more are left out.
    pub paths: usize,
    pub key_bytes: usize,
}

impl Default for ShapeLimits {
    fn default() -> Self {
        ShapeLimits {
            document_bytes: 1 << 20,
            share_percent: 6,
            raw_bytes: RAW_BYTES,
            paths: 1 << 16,
            key_bytes: 4 << 20,
        }
    }
}

#[derive(Default)]
pub struct ShapeBuilder {
    limits: ShapeLimits,
    open: bool,
    /// For each node and kind the number of its place and 1; 0 where it has none.
    numbers: Vec<u32>,
    places: Vec<(Node, ScalarKind)>,
    shapes: Vec<u8>,
    ends: Vec<usize>,
    /// Seeded at random, so that no source can choose shapes that collide. Shapes are numbered by first appearance, so
    /// nothing that is written depends on it.
    hasher: foldhash::fast::RandomState,
    table: HashTable<u32>,
    codes: Vec<u8>,
    /// The shape of the row that is walked, but for its last run.
    row: Vec<u8>,
    run: Option<(u32, u32)>,
}

impl ShapeBuilder {
    pub fn new(limits: ShapeLimits) -> ShapeBuilder {
        ShapeBuilder { limits, open: true, ..ShapeBuilder::default() }
    }

    /// Whether it still collects: not after something did not fit.
    pub fn is_open(&self) -> bool {
        self.open
    }

    #[inline]
    pub fn add(&mut self, node: Node, kind: ScalarKind) {
        if !self.open {
            return;
        }
        if node == UNKNOWN {
            self.open = false;
            return;
        }
        let slot = node as usize * ScalarKind::ALL.len() + kind as usize;
        let number = match self.numbers.get(slot) {
            Some(number) if *number > 0 => number - 1,
            _ => self.place(slot, node, kind),
        };
        match &mut self.run {
            Some((place, length)) if *place == number => *length = length.saturating_add(1),
            _ => {
                self.end_run();
                self.run = Some((number, 1));
            }
        }
    }

    #[cold]
    fn place(&mut self, slot: usize, node: Node, kind: ScalarKind) -> u32 {
        if self.numbers.len() <= slot {
            self.numbers.resize(slot + 1, 0);
        }
        let number = self.places.len() as u32;
        self.places.push((node, kind));
        self.numbers[slot] = number + 1;
        number
    }

    #[inline]
    fn end_run(&mut self) {
        match self.run.take() {
            Some((place, 1)) => leb128::write(place << 1, &mut self.row),
            Some((place, length)) => {
                leb128::write(place << 1 | 1, &mut self.row);
                leb128::write(length - 2, &mut self.row);
            }
            None => {}
        }
        // One entity may have any number of scalars.
        self.open &= self.row.len() <= self.limits.raw_bytes;
    }

    /// Ends the row. The paths of the tree are those of the rows so far.
    pub fn end_row(&mut self, tree: &PathTree) {
        if !self.open {
            return;
        }
        self.end_run();
        let ShapeBuilder { shapes, ends, hasher, table, codes, row, .. } = self;
        let start = |number: usize| number.checked_sub(1).map_or(0, |before| ends[before]);
        let shape = |number: u32| &shapes[start(number as usize)..ends[number as usize]];
        let hash = hasher.hash_one(row.as_slice());
        match table.find(hash, |number| shape(*number) == row.as_slice()) {
            Some(number) => leb128::write(number + 1, codes),
            None => {
                leb128::write(0_u32, codes);
                let number = ends.len() as u32;
                table.insert_unique(hash, number, |other| hasher.hash_one(shape(*other)));
                shapes.extend_from_slice(row);
                ends.push(shapes.len());
            }
        }
        row.clear();
        self.open = shapes.len() + codes.len() <= self.limits.raw_bytes && tree.key_bytes() <= self.limits.key_bytes;
    }

    /// The shapes of the row group as they are stored, whose documents take so many bytes; `None` where they are left
    /// out. The next row comes from another row group, and may have another tree.
    pub fn finish(&mut self, tree: &PathTree, document_bytes: u64) -> Option<Vec<u8>> {
        let stored = if self.open { self.encode(tree) } else { None };
        *self = ShapeBuilder::new(self.limits);
        stored.filter(|bytes| {
            u128::from(document_bytes) * u128::from(self.limits.share_percent) >= bytes.len() as u128 * 100
        })
    }

    fn encode(&self, tree: &PathTree) -> Option<Vec<u8>> {
        // Nodes come after those above them.
        let mut paths = vec![0_u32; tree.node_count()];
        for (node, _) in &self.places {
            let mut node = *node;
            while node != ROOT && std::mem::replace(&mut paths[node as usize], 1) == 0 {
                node = tree.parent_and_key(node).0;
            }
        }
        let mut raw = Vec::with_capacity(self.shapes.len() + self.shapes.len() / 8 + self.codes.len() + (1 << 12));
        leb128::write(paths.iter().sum::<u32>(), &mut raw);
        let mut count = 0;
        for node in 0..paths.len() {
            if paths[node] == 0 {
                continue;
            }
            count += 1;
            paths[node] = count;
            let (parent, key) = tree.parent_and_key(node as Node);
            leb128::write(paths[parent as usize], &mut raw);
            leb128::write(u32::try_from(key.len()).ok()?, &mut raw);
            raw.extend_from_slice(key);
        }
        leb128::write(self.places.len() as u32, &mut raw);
        for (node, kind) in &self.places {
            leb128::write(paths[*node as usize], &mut raw);
            raw.push(*kind as u8);
        }
        leb128::write(self.ends.len() as u32, &mut raw);
        let mut start = 0;
        for end in &self.ends {
            leb128::write((end - start) as u32, &mut raw);
            raw.extend_from_slice(&self.shapes[start..*end]);
            start = *end;
        }
        raw.extend_from_slice(&self.codes);
        if raw.len() > self.limits.raw_bytes.min(RAW_BYTES) {
            return None;
        }
        zstd::bulk::compress(&raw, LEVEL).ok()
    }
}
