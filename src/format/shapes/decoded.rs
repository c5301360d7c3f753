//! The shapes of a row group, ready to be asked.

use std::ops::Range;

use strata_json::Text;
use strata_types::leb128;

use super::{Damaged, RAW_BYTES, ScalarKind};
use crate::zstd_frame;

/// The shapes of a row group. Equal ones say the same of the same rows.
#[derive(Debug, PartialEq, Eq)]
pub struct Shapes {
    raw: Vec<u8>,
    paths: Vec<PathRecord>,
    places: Vec<(u32, ScalarKind)>,
    shapes: Vec<Range<u32>>,
    codes: Box<[u16]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathRecord {
    /// The number of the path above it, from 1; 0 for the entity.
    parent: u32,
    /// Where its key lies in `raw`, in canonical escapes.
    key: Range<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScalarRun {
    pub place: u32,
    pub kind: ScalarKind,
    pub length: u32,
}

fn take<'b>(bytes: &mut &'b [u8], length: u32) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    Some(taken)
}

impl Shapes {
    pub fn decode(bytes: &[u8], rows: usize) -> Result<Shapes, Damaged> {
        let size = zstd_frame::size(bytes, RAW_BYTES).ok_or(Damaged("its size is invalid"))?;
        let raw = zstd_frame::decompress(bytes, size).map_err(|_| Damaged("it cannot be decompressed"))?;
        Shapes::parse(raw, rows).ok_or(Damaged("it is truncated or inconsistent"))
    }

    fn parse(raw: Vec<u8>, rows: usize) -> Option<Shapes> {
        let mut rest = raw.as_slice();
        let range = |rest: &[u8], length: u32| {
            let start = (raw.len() - rest.len()) as u32;
            start..start.saturating_add(length)
        };
        let count = leb128::read_u32(&mut rest)? as usize;
        // Each takes two bytes or more, each place two, each shape one.
        let mut paths = Vec::with_capacity(count.min(rest.len() / 2));
        for number in 0..count {
            let parent = leb128::read_u32(&mut rest)?;
            let length = leb128::read_u32(&mut rest)?;
            let key = range(rest, length);
            take(&mut rest, length)?;
            if parent as usize > number {
                return None;
            }
            paths.push(PathRecord { parent, key });
        }
        let count = leb128::read_u32(&mut rest)? as usize;
        let mut places = Vec::with_capacity(count.min(rest.len() / 2));
        for _ in 0..count {
            let path = leb128::read_u32(&mut rest)?;
            let kind = leb128::read_u32(&mut rest)?;
            if path == 0 || path as usize > paths.len() {
                return None;
            }
            places.push((path, *ScalarKind::ALL.get(kind as usize)?));
        }
        let count = leb128::read_u32(&mut rest)? as usize;
        let mut shapes = Vec::with_capacity(count.min(rest.len()));
        for _ in 0..count {
            let length = leb128::read_u32(&mut rest)?;
            let shape = range(rest, length);
            let mut runs = Runs { bytes: take(&mut rest, length)?, places: &places };
            let mut scalars = 0_u32;
            while !runs.bytes.is_empty() {
                scalars = scalars.checked_add(runs.next()?.length)?;
            }
            shapes.push(shape);
        }
        if rows > rest.len() {
            return None;
        }
        let mut codes = Vec::with_capacity(rows);
        let mut next = 0;
        for _ in 0..rows {
            let shape = match leb128::read_u32(&mut rest)? {
                0 => {
                    next += 1;
                    next - 1
                }
                code if code <= next => code - 1,
                _ => return None,
            };
            codes.push(u16::try_from(shape).ok()?);
        }
        if !rest.is_empty() || next as usize != shapes.len() {
            return None;
        }
        Some(Shapes { paths, places, shapes, codes: codes.into(), raw })
    }

    pub(crate) fn of_rows(&self, rows: Range<usize>) -> Shapes {
        Shapes {
            raw: self.raw.clone(),
            paths: self.paths.clone(),
            places: self.places.clone(),
            shapes: self.shapes.clone(),
            codes: self.codes[rows].into(),
        }
    }

    pub fn rows(&self) -> usize {
        self.codes.len()
    }

    pub fn shape_count(&self) -> usize {
        self.shapes.len()
    }

    pub fn shape_of(&self, row: usize) -> usize {
        self.codes.get(row).map_or(0, |code| usize::from(*code))
    }

    pub fn runs(&self, shape: usize) -> Runs<'_> {
        let bytes = self.shapes.get(shape).and_then(|shape| self.raw.get(shape.start as usize..shape.end as usize));
        Runs { bytes: bytes.unwrap_or_default(), places: &self.places }
    }

    pub fn shape_bytes(&self, shape: usize) -> usize {
        self.shapes.get(shape).map_or(0, |shape| shape.len())
    }

    /// By place, what is found on the way to its path: `below` makes of what was found for a path, and a key below it,
    /// what is found there. One pass over the paths.
    pub fn places_by<S: Copy>(&self, entity: S, mut below: impl FnMut(S, Text<'_>) -> S) -> Vec<S> {
        // What is below a path comes after it.
        let mut found: Vec<S> = Vec::with_capacity(self.paths.len() + 1);
        found.push(entity);
        for path in &self.paths {
            let above = found.get(path.parent as usize).copied().unwrap_or(entity);
            let key = self.raw.get(path.key.start as usize..path.key.end as usize).unwrap_or_default();
            found.push(below(above, Text::new(key)));
        }
        self.places.iter().map(|(path, _)| found.get(*path as usize).copied().unwrap_or(entity)).collect()
    }

    /// By place, whether it is of the path with these keys. One pass over the paths.
    pub fn places_of(&self, keys: &[String]) -> Vec<bool> {
        let depths = self.places_by(Some(0), |above: Option<usize>, key| {
            above.filter(|depth| keys.get(*depth).is_some_and(|wanted| key.eq_str(wanted))).map(|depth| depth + 1)
        });
        depths.into_iter().map(|depth| depth == Some(keys.len())).collect()
    }

    pub fn memory_bytes(&self) -> usize {
        self.raw.capacity()
            + self.paths.capacity() * size_of::<PathRecord>()
            + self.places.capacity() * size_of::<(u32, ScalarKind)>()
            + self.shapes.capacity() * size_of::<Range<u32>>()
            + self.codes.len() * size_of::<u16>()
            + size_of::<Shapes>()
    }
}

#[derive(Clone, Debug)]
pub struct Runs<'s> {
    bytes: &'s [u8],
    places: &'s [(u32, ScalarKind)],
}

impl Iterator for Runs<'_> {
    type Item = ScalarRun;

    #[inline]
    fn next(&mut self) -> Option<ScalarRun> {
        let head = leb128::read_u32(&mut self.bytes)?;
        let place = head >> 1;
        let kind = self.places.get(place as usize)?.1;
        let length = if head & 1 == 0 { 1 } else { leb128::read_u32(&mut self.bytes)?.checked_add(2)? };
        Some(ScalarRun { place, kind, length })
    }
}
