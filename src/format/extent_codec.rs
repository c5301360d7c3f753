//! The text of extents in the metadata of a file: four or five characters for an extent, because a version with
//! scattered changes has one for a few entities.
//!
//! The text is Base64 of LEB128 integers. An extent is its file, the difference of its row group from that of the last
//! extent of the file, the difference of its first row from the end of that extent (or from 0 in another row group),
//! and its number of rows. Differences are zigzag-coded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};
use strata_types::leb128;

use super::overlay::Extent;

pub(super) fn serialize<S: Serializer>(extents: &[Extent], serializer: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::with_capacity(4 * extents.len());
    let mut ends = Ends::default();
    for extent in extents {
        let (row_group, start) = ends.expected(extent.file, extent.row_group);
        leb128::write_varint(extent.file, &mut bytes);
        leb128::write_varint(zigzag(i64::from(extent.row_group) - i64::from(row_group)), &mut bytes);
        leb128::write_varint(zigzag(i64::from(extent.start) - i64::from(start)), &mut bytes);
        leb128::write_varint(extent.rows, &mut bytes);
        ends.record(extent);
    }
    serializer.serialize_str(&STANDARD_NO_PAD.encode(bytes))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Extent>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = STANDARD_NO_PAD.decode(text).map_err(D::Error::custom)?;
    let mut rest = bytes.as_slice();
    let mut extents = Vec::new();
    let mut ends = Ends::default();
    while !rest.is_empty() {
        let extent = read_extent(&mut rest, &ends).ok_or_else(|| D::Error::custom("an extent is damaged"))?;
        ends.record(&extent);
        extents.push(extent);
    }
    Ok(extents)
}

fn read_extent(bytes: &mut &[u8], ends: &Ends) -> Option<Extent> {
    let file = u8::try_from(leb128::read_varint_u32(bytes)?).ok()?;
    let row_group = i64::from(ends.last(file).0).checked_add(unzigzag(leb128::read_varint(bytes)?))?;
    let row_group = u32::try_from(row_group).ok()?;
    let start = i64::from(ends.expected(file, row_group).1).checked_add(unzigzag(leb128::read_varint(bytes)?))?;
    Some(Extent { file, row_group, start: u32::try_from(start).ok()?, rows: leb128::read_varint_u32(bytes)? })
}

/// The row group and the end of the last extent of each file.
#[derive(Default)]
struct Ends(Vec<(u32, u32)>);

impl Ends {
    fn last(&self, file: u8) -> (u32, u32) {
        self.0.get(usize::from(file)).copied().unwrap_or_default()
    }

    /// Returns the row group of the last extent, and the row at which the next extent in `row_group` probably starts.
    fn expected(&self, file: u8, row_group: u32) -> (u32, u32) {
        let (last, end) = self.last(file);
        (last, if last == row_group { end } else { 0 })
    }

    fn record(&mut self, extent: &Extent) {
        let file = usize::from(extent.file);
        if self.0.len() <= file {
            self.0.resize(file + 1, (0, 0));
        }
        self.0[file] = (extent.row_group, extent.start.saturating_add(extent.rows));
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, serde::Serialize, Deserialize)]
    struct Record {
        #[serde(with = "super")]
        extents: Vec<Extent>,
    }

    proptest! {
        #[test]
        fn extents_survive_serialization(fields in vec(any::<(u8, u32, u32, u32)>(), 0..20)) {
            let extent = |(file, row_group, start, rows)| Extent { file, row_group, start, rows };
            let record = Record { extents: fields.into_iter().map(extent).collect() };
            let text = serde_json::to_string(&record).expect("failed to serialize");
            prop_assert_eq!(serde_json::from_str::<Record>(&text).expect("failed to parse"), record);
        }

        #[test]
        fn damaged_text_is_an_error_or_other_extents(bytes in vec(any::<u8>(), 0..30)) {
            let text = format!(r#"{{"extents":"{}"}}"#, STANDARD_NO_PAD.encode(bytes));
            let _ = serde_json::from_str::<Record>(&text);
        }
    }

    #[test]
    fn usual_extent_has_few_characters() {
        let extents = (0..1_000).map(|number| Extent {
            file: u8::from(number % 2 == 0),
            row_group: number / 500,
            start: number % 500 * 7,
            rows: 6,
        });
        let text = serde_json::to_string(&Record { extents: extents.collect() }).expect("failed to serialize");
        assert!(text.len() < 6 * 1_000, "{} characters", text.len());
    }
}
