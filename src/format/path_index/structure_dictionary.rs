//! The decoded path index of a row group.

use std::ops::Range;

use strata_json::JsonStr;
use strata_types::leb128;

use super::{MAX_PATH_INDEX_RAW_BYTES, PathIndexError, ScalarKind};
use crate::zstd_frame;

/// The path index of a row group: its distinct structures (sequences of paths) and the structure of each row. Equal
/// dictionaries describe the same rows with the same paths.
#[derive(Debug, PartialEq, Eq)]
pub struct StructureDictionary {
    raw: Vec<u8>,
    paths: Vec<PathKeyEntry>,
    typed_paths: Vec<(u32, ScalarKind)>,
    structures: Vec<Range<u32>>,
    row_structures: Box<[u16]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathKeyEntry {
    /// The number of the parent path, counted from 1, or 0 for the root.
    parent: u32,
    key: Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarRun {
    pub typed_path: u32,
    pub kind: ScalarKind,
    pub length: u32,
}

fn take_bytes<'b>(bytes: &mut &'b [u8], length: u32) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    Some(taken)
}

impl StructureDictionary {
    pub fn decode(bytes: &[u8], rows: usize) -> Result<StructureDictionary, PathIndexError> {
        let size =
            zstd_frame::content_size(bytes, MAX_PATH_INDEX_RAW_BYTES).ok_or(PathIndexError("its size is invalid"))?;
        let raw = zstd_frame::decompress(bytes, size).map_err(|_| PathIndexError("it cannot be decompressed"))?;
        StructureDictionary::parse(raw, rows).ok_or(PathIndexError("it is truncated or inconsistent"))
    }

    fn parse(raw: Vec<u8>, rows: usize) -> Option<StructureDictionary> {
        let mut rest = raw.as_slice();
        let range = |rest: &[u8], length: u32| {
            let start = (raw.len() - rest.len()) as u32;
            start..start.saturating_add(length)
        };
        let count = leb128::read_varint_u32(&mut rest)? as usize;
        // An encoded path takes at least two bytes, a typed path (a path and a scalar kind) two, and a structure one.
        // This limits the memory that a damaged count allocates.
        let mut paths = Vec::with_capacity(count.min(rest.len() / 2));
        for number in 0..count {
            let parent = leb128::read_varint_u32(&mut rest)?;
            let length = leb128::read_varint_u32(&mut rest)?;
            let key = range(rest, length);
            take_bytes(&mut rest, length)?;
            if parent as usize > number {
                return None;
            }
            paths.push(PathKeyEntry { parent, key });
        }
        let count = leb128::read_varint_u32(&mut rest)? as usize;
        let mut typed_paths = Vec::with_capacity(count.min(rest.len() / 2));
        for _ in 0..count {
            let path = leb128::read_varint_u32(&mut rest)?;
            let kind = leb128::read_varint_u32(&mut rest)?;
            if path == 0 || path as usize > paths.len() {
                return None;
            }
            typed_paths.push((path, *ScalarKind::ALL.get(kind as usize)?));
        }
        let count = leb128::read_varint_u32(&mut rest)? as usize;
        let mut structures = Vec::with_capacity(count.min(rest.len()));
        for _ in 0..count {
            let length = leb128::read_varint_u32(&mut rest)?;
            let structure = range(rest, length);
            let mut runs = ScalarRunIter { bytes: take_bytes(&mut rest, length)?, typed_paths: &typed_paths };
            let mut scalars = 0_u32;
            while !runs.bytes.is_empty() {
                scalars = scalars.checked_add(runs.next()?.length)?;
            }
            structures.push(structure);
        }
        if rows > rest.len() {
            return None;
        }
        let mut row_structures = Vec::with_capacity(rows);
        let mut next = 0;
        for _ in 0..rows {
            let structure = match leb128::read_varint_u32(&mut rest)? {
                0 => {
                    next += 1;
                    next - 1
                }
                code if code <= next => code - 1,
                _ => return None,
            };
            row_structures.push(u16::try_from(structure).ok()?);
        }
        if !rest.is_empty() || next as usize != structures.len() {
            return None;
        }
        Some(StructureDictionary { paths, typed_paths, structures, row_structures: row_structures.into(), raw })
    }

    pub(crate) fn slice_rows(&self, rows: Range<usize>) -> StructureDictionary {
        StructureDictionary {
            raw: self.raw.clone(),
            paths: self.paths.clone(),
            typed_paths: self.typed_paths.clone(),
            structures: self.structures.clone(),
            row_structures: self.row_structures[rows].into(),
        }
    }

    pub fn rows(&self) -> usize {
        self.row_structures.len()
    }

    pub fn structure_count(&self) -> usize {
        self.structures.len()
    }

    pub fn structure_of_row(&self, row: usize) -> usize {
        self.row_structures.get(row).map_or(0, |code| usize::from(*code))
    }

    pub fn scalar_runs(&self, structure: usize) -> ScalarRunIter<'_> {
        let range = self.structures.get(structure);
        let bytes = range.and_then(|range| self.raw.get(range.start as usize..range.end as usize));
        ScalarRunIter { bytes: bytes.unwrap_or_default(), typed_paths: &self.typed_paths }
    }

    pub fn structure_bytes(&self, structure: usize) -> usize {
        self.structures.get(structure).map_or(0, |range| range.len())
    }

    /// Computes a state for each path with its kind. `child` derives it from the state of the parent path and the key.
    pub fn map_typed_paths<S: Copy>(&self, root: S, mut child: impl FnMut(S, JsonStr<'_>) -> S) -> Vec<S> {
        let mut states: Vec<S> = Vec::with_capacity(self.paths.len() + 1);
        states.push(root);
        for path in &self.paths {
            let parent = states.get(path.parent as usize).copied().unwrap_or(root);
            let key = self.raw.get(path.key.start as usize..path.key.end as usize).unwrap_or_default();
            states.push(child(parent, JsonStr::new(key)));
        }
        self.typed_paths.iter().map(|(path, _)| states.get(*path as usize).copied().unwrap_or(root)).collect()
    }

    pub fn match_typed_paths(&self, keys: &[String]) -> Vec<bool> {
        let depths = self.map_typed_paths(Some(0), |parent: Option<usize>, key| {
            parent.filter(|depth| keys.get(*depth).is_some_and(|expected| key.eq_str(expected))).map(|depth| depth + 1)
        });
        depths.into_iter().map(|depth| depth == Some(keys.len())).collect()
    }

    pub fn memory_bytes(&self) -> usize {
        self.raw.capacity()
            + self.paths.capacity() * size_of::<PathKeyEntry>()
            + self.typed_paths.capacity() * size_of::<(u32, ScalarKind)>()
            + self.structures.capacity() * size_of::<Range<u32>>()
            + self.row_structures.len() * size_of::<u16>()
            + size_of::<StructureDictionary>()
    }
}

#[derive(Clone, Debug)]
pub struct ScalarRunIter<'s> {
    bytes: &'s [u8],
    typed_paths: &'s [(u32, ScalarKind)],
}

impl Iterator for ScalarRunIter<'_> {
    type Item = ScalarRun;

    #[inline]
    fn next(&mut self) -> Option<ScalarRun> {
        let head = leb128::read_varint_u32(&mut self.bytes)?;
        let typed_path = head >> 1;
        let kind = self.typed_paths.get(typed_path as usize)?.1;
        let length = if head & 1 == 0 { 1 } else { leb128::read_varint_u32(&mut self.bytes)?.checked_add(2)? };
        Some(ScalarRun { typed_path, kind, length })
    }
}
