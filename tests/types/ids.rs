//! Parsing of IDs.

use strata_types::ids::{DatasetId, InvalidDatasetId};

#[test]
fn dataset_id_is_positive_integer() {
    for (text, number) in [
        ("1", 1),
        ("10", 10),
        ("18446744073709551615", u64::MAX),
        ("18446744073709551616", u64::MAX),
        ("999999999999999999999999999999", u64::MAX),
    ] {
        assert_eq!(text.parse(), Ok(DatasetId::new(number)), "{text}");
    }
    for text in ["", "0", "00", "01", "+1", "-1", " 1", "1 ", "1.0", "1e3", "0x1", "١", "abc"] {
        assert_eq!(text.parse::<DatasetId>(), Err(InvalidDatasetId(text.to_owned())));
    }
}
