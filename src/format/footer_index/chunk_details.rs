//! Details of a column chunk in the footer index, such as its statistics. The first byte contains flags for the
//! optional fields that follow.

pub(super) const COMPRESSED_FLAG: u8 = 1;
pub(super) const INTEGERS_FLAG: u8 = 2;
pub(super) const DOUBLES_FLAG: u8 = 4;
/// The flag of a chunk with bounds of strings. The length of the minimum, the minimum, and the maximum follow.
pub(super) const STRING_BOUNDS_FLAG: u8 = 8;

#[derive(Default)]
pub(crate) struct ChunkDetails<'a> {
    pub(crate) is_compressed: bool,
    pub(crate) integer_range: Option<(i32, i32)>,
    pub(crate) double_range: Option<(f64, f64)>,
    pub(crate) string_bounds: Option<(&'a [u8], &'a [u8])>,
}

impl<'a> ChunkDetails<'a> {
    pub(super) fn decode(mut bytes: &'a [u8]) -> Option<ChunkDetails<'a>> {
        fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
            let (taken, rest) = bytes.split_first_chunk::<N>()?;
            *bytes = rest;
            Some(*taken)
        }
        let number = |bytes: &mut &[u8]| take::<4>(bytes).map(u32::from_le_bytes);
        let [bits] = take::<1>(&mut bytes)?;
        let is_compressed = bits & COMPRESSED_FLAG != 0;
        let mut details = ChunkDetails { is_compressed, ..ChunkDetails::default() };
        if bits & INTEGERS_FLAG != 0 {
            let [min, max] = [take::<4>(&mut bytes)?, take::<4>(&mut bytes)?];
            details.integer_range = Some((i32::from_le_bytes(min), i32::from_le_bytes(max)));
        }
        if bits & DOUBLES_FLAG != 0 {
            let [min, max] = [take::<8>(&mut bytes)?, take::<8>(&mut bytes)?];
            details.double_range = Some((f64::from_le_bytes(min), f64::from_le_bytes(max)));
        }
        if bits & STRING_BOUNDS_FLAG != 0 {
            let length = number(&mut bytes)?;
            details.string_bounds = Some(bytes.split_at_checked(length as usize)?);
            bytes = &[];
        }
        bytes.is_empty().then_some(details)
    }
}
