//! The entities of two versions that a diff reads, and how many duplicates each of them represents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use strata_format::reader::VersionReader;
use strata_types::leb128;

use crate::tracked_vec::TrackedVec;

const ZSTD_LEVEL: i32 = 3;
const MAX_LEB128_COUNT_BYTES: usize = 5;

/// A *unit* is a row group of one of the versions, by its index in
/// [`row_groups_of_both`](crate::tasks::row_groups_of_both).
#[derive(Clone, Debug)]
pub enum DiffEntityCounts {
    ByEntity(Arc<[TrackedVec<u32>; 2]>),
    /// The index of one version (0 or 1), and the ascending positions of the entities to read, each of which stands
    /// only for itself. The second number of each pair is ignored.
    Positions(usize, Arc<TrackedVec<(u64, usize)>>),
    ByRowGroup(Arc<BTreeMap<usize, Vec<u32>>>),
}

impl DiffEntityCounts {
    pub(crate) fn counts_by_row(&self, readers: &[VersionReader; 2], unit: usize) -> Cow<'_, [u32]> {
        let Some((version, row_group)) = locate_row_group(readers, unit) else { return Cow::Borrowed(&[]) };
        let group = readers[version].row_groups()[row_group];
        match self {
            DiffEntityCounts::ByEntity(counts) => {
                let first = group.first_position as usize;
                Cow::Borrowed(counts[version].get(first..first + group.rows).unwrap_or_default())
            }
            DiffEntityCounts::Positions(selected_version, positions) if *selected_version == version => {
                let mut counts = vec![0; group.rows];
                let start = positions.partition_point(|(position, _)| *position < group.first_position);
                for (position, _) in positions[start..].iter().take_while(|(position, _)| group.contains(*position)) {
                    counts[(position - group.first_position) as usize] = 1;
                }
                Cow::Owned(counts)
            }
            DiffEntityCounts::Positions(..) => Cow::Borrowed(&[]),
            DiffEntityCounts::ByRowGroup(units) => Cow::Borrowed(units.get(&unit).map_or(&[], Vec::as_slice)),
        }
    }

    /// Encodes the entity counts of some row groups as text: LEB128 numbers, compressed, in hexadecimal.
    pub(super) fn encode_counts(&self, readers: &[VersionReader; 2], units: &[usize]) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        for unit in units {
            self.counts_by_row(readers, *unit).iter().for_each(|count| leb128::write_varint(*count, &mut bytes));
        }
        Ok(hex::encode(zstd::bulk::compress(&bytes, ZSTD_LEVEL)?))
    }

    pub(super) fn decode_counts(text: &str, readers: &[VersionReader; 2], units: &[usize]) -> Result<DiffEntityCounts> {
        let damaged = || exec_datafusion_err!("the entity list of a diff task is truncated");
        let rows = units.iter().map(|unit| {
            let (version, row_group) = locate_row_group(readers, *unit)?;
            Some(readers[version].row_groups()[row_group].rows)
        });
        let rows: Vec<usize> = rows.collect::<Option<_>>().ok_or_else(damaged)?;
        let max_bytes = rows.iter().sum::<usize>().saturating_mul(MAX_LEB128_COUNT_BYTES);
        let bytes = hex::decode(text).map_err(|_| damaged())?;
        let bytes = zstd::bulk::decompress(&bytes, max_bytes).map_err(|_| damaged())?;
        let mut rest = &bytes[..];
        let mut row_counts = BTreeMap::new();
        for (unit, rows) in units.iter().zip(rows) {
            let counts: Vec<u32> =
                (0..rows).map(|_| leb128::read_varint_u32(&mut rest)).collect::<Option<_>>().ok_or_else(damaged)?;
            row_counts.insert(*unit, counts);
        }
        if rest.is_empty() { Ok(DiffEntityCounts::ByRowGroup(Arc::new(row_counts))) } else { Err(damaged()) }
    }
}

pub(super) fn locate_row_group(readers: &[VersionReader; 2], combined_row_group: usize) -> Option<(usize, usize)> {
    let first_count = readers[0].row_groups().len();
    match combined_row_group.checked_sub(first_count) {
        None => Some((0, combined_row_group)),
        Some(row_group) => (row_group < readers[1].row_groups().len()).then_some((1, row_group)),
    }
}
