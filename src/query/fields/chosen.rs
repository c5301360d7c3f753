//! The entities of two versions that a diff reads, and how often each counts.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use strata_format::reader::VersionReader;
use strata_types::leb128;

use crate::account::Accounted;

const ZSTD_LEVEL: i32 = 3;

const COUNT_BYTES: usize = 5;

/// A *unit* is a row group of one of the versions, by its index in [`tasks::row_groups`](crate::tasks::row_groups).
#[derive(Clone, Debug)]
pub enum Chosen {
    /// How often each entity counts, by version and position.
    Counts(Arc<[Accounted<u32>; 2]>),
    /// Positions of a version, ascending, with numbers that do not matter.
    Positions(usize, Arc<Accounted<(u64, usize)>>),
    /// How often each row counts, by unit.
    Units(Arc<BTreeMap<usize, Vec<u32>>>),
}

impl Chosen {
    pub(crate) fn counts(&self, readers: &[VersionReader; 2], unit: usize) -> Cow<'_, [u32]> {
        let Some((version, row_group)) = place(readers, unit) else { return Cow::Borrowed(&[]) };
        let group = readers[version].row_groups()[row_group];
        match self {
            Chosen::Counts(counts) => {
                let first = group.first as usize;
                Cow::Borrowed(counts[version].get(first..first + group.rows).unwrap_or_default())
            }
            Chosen::Positions(of, positions) if *of == version => {
                let mut counts = vec![0; group.rows];
                let start = positions.partition_point(|(position, _)| *position < group.first);
                for (position, _) in positions[start..].iter().take_while(|(position, _)| group.holds(*position)) {
                    counts[(position - group.first) as usize] = 1;
                }
                Cow::Owned(counts)
            }
            Chosen::Positions(..) => Cow::Borrowed(&[]),
            Chosen::Units(units) => Cow::Borrowed(units.get(&unit).map_or(&[], Vec::as_slice)),
        }
    }

    /// The counts of some units as text: LEB128, compressed, hexadecimal.
    pub(super) fn write(&self, readers: &[VersionReader; 2], units: &[usize]) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        for unit in units {
            self.counts(readers, *unit).iter().for_each(|count| leb128::write(*count, &mut bytes));
        }
        Ok(hex::encode(zstd::bulk::compress(&bytes, ZSTD_LEVEL)?))
    }

    /// Reads the text of [`Chosen::write`] for the same units.
    pub(super) fn read(text: &str, readers: &[VersionReader; 2], units: &[usize]) -> Result<Chosen> {
        let damaged = || exec_datafusion_err!("the entity list of a diff task is truncated");
        let rows = units.iter().map(|unit| {
            let (version, row_group) = place(readers, *unit)?;
            Some(readers[version].row_groups()[row_group].rows)
        });
        let rows: Vec<usize> = rows.collect::<Option<_>>().ok_or_else(damaged)?;
        let most = rows.iter().sum::<usize>().saturating_mul(COUNT_BYTES);
        let bytes = hex::decode(text).map_err(|_| damaged())?;
        let bytes = zstd::bulk::decompress(&bytes, most).map_err(|_| damaged())?;
        let mut rest = &bytes[..];
        let mut found = BTreeMap::new();
        for (unit, rows) in units.iter().zip(rows) {
            let counts: Vec<u32> =
                (0..rows).map(|_| leb128::read_u32(&mut rest)).collect::<Option<_>>().ok_or_else(damaged)?;
            found.insert(*unit, counts);
        }
        match rest.is_empty() {
            true => Ok(Chosen::Units(Arc::new(found))),
            false => Err(damaged()),
        }
    }
}

pub(super) fn place(readers: &[VersionReader; 2], unit: usize) -> Option<(usize, usize)> {
    let of_first = readers[0].row_groups().len();
    match unit.checked_sub(of_first) {
        None => Some((0, unit)),
        Some(row_group) => (row_group < readers[1].row_groups().len()).then_some((1, row_group)),
    }
}
