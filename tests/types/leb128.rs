//! LEB128 numbers.

use strata_types::leb128::{read_varint, read_varint_u32, write_varint};

#[test]
fn numbers_are_read_as_written() {
    let numbers = [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), 1 << 32, u64::MAX];
    let mut out = Vec::new();
    numbers.iter().for_each(|number| write_varint(*number, &mut out));
    let mut rest = &out[..];
    let mut rest_u32 = &out[..];
    for number in numbers {
        assert_eq!(read_varint(&mut rest), Some(number));
        assert_eq!(read_varint_u32(&mut rest_u32), u32::try_from(number).ok());
    }
    assert_eq!(read_varint(&mut rest), None);
    assert_eq!(out[5..7], [0xAC, 0x02], "300");
}

#[test]
fn damaged_numbers_are_rejected() {
    for damaged in [&[][..], &[0x80], &[0xFF; 9], &[0xFF; 11]] {
        assert_eq!(read_varint(&mut &damaged[..]), None, "{damaged:?}");
    }
    assert_eq!(read_varint_u32(&mut &[0xFF, 0xFF, 0xFF, 0xFF, 0x1F][..]), None);
}
