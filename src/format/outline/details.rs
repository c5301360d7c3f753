//! The details of a column chunk: what only some chunks have. The bits of their first byte announce what follows.

pub(super) const COMPRESSED: u8 = 1;
/// It has a bloom filter: its first byte, counted from that of the row group; its bytes, its checksum.
pub(super) const BLOOM: u8 = 2;
pub(super) const INTEGERS: u8 = 4;
pub(super) const DOUBLES: u8 = 8;
pub(super) const TEXTS: u8 = 16;
/// They say how many values are null.
pub(super) const NULLS: u8 = 32;
/// They have the minimum and the maximum: the length of the first, and both.
pub(super) const BOUNDS: u8 = 64;

#[derive(Default)]
pub(crate) struct Details<'a> {
    pub(crate) is_compressed: bool,
    /// Its first byte, counted from that of the row group; its bytes, its checksum.
    pub(crate) bloom: Option<(u32, u32, u32)>,
    pub(crate) integers: Option<(i32, i32)>,
    pub(crate) doubles: Option<(f64, f64)>,
    pub(crate) has_texts: bool,
    pub(crate) nulls: Option<u32>,
    pub(crate) bounds: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> Details<'a> {
    /// Reads what [`super::builder`] wrote. `None` when that is not what the bytes are.
    pub(super) fn read(mut bytes: &'a [u8]) -> Option<Details<'a>> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        let number = |bytes: &mut &[u8]| take::<4>(bytes).map(u32::from_le_bytes);
        let [bits] = take::<1>(&mut bytes)?;
        let is_compressed = bits & COMPRESSED != 0;
        let has_texts = bits & TEXTS != 0;
        let mut details = Details { is_compressed, has_texts, ..Details::default() };
        if bits & BLOOM != 0 {
            details.bloom = Some((number(&mut bytes)?, number(&mut bytes)?, number(&mut bytes)?));
        }
        if bits & INTEGERS != 0 {
            let [min, max] = [take::<4>(&mut bytes)?, take::<4>(&mut bytes)?];
            details.integers = Some((i32::from_le_bytes(min), i32::from_le_bytes(max)));
        }
        if bits & DOUBLES != 0 {
            let [min, max] = [take::<8>(&mut bytes)?, take::<8>(&mut bytes)?];
            details.doubles = Some((f64::from_le_bytes(min), f64::from_le_bytes(max)));
        }
        if bits & NULLS != 0 {
            details.nulls = Some(number(&mut bytes)?);
        }
        if bits & BOUNDS != 0 {
            let length = number(&mut bytes)?;
            details.bounds = Some(bytes.split_at_checked(length as usize)?);
            bytes = &[];
        }
        bytes.is_empty().then_some(details)
    }
}
