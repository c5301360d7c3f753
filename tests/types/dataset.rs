//! Names and sources of datasets.

use strata_types::dataset::{DatasetName, DatasetSource, InvalidDatasetName};

#[test]
fn dataset_name_has_slug() {
    let name: DatasetName = "World Countries".parse().unwrap();
    assert_eq!(name.as_str(), "World Countries");
    assert_eq!(name.slug(), "world-countries");
}

#[test]
fn invalid_dataset_names_are_rejected() {
    let longest = "é".repeat(DatasetName::MAX_CHARACTERS);
    assert!(longest.parse::<DatasetName>().is_ok());
    for (text, error) in [
        ("", InvalidDatasetName::NoLetterOrDigit),
        ("--", InvalidDatasetName::NoLetterOrDigit),
        ("a\0b", InvalidDatasetName::ContainsNul),
        (&format!("{longest}e"), InvalidDatasetName::TooLong),
    ] {
        assert_eq!(text.parse::<DatasetName>(), Err(error), "{text:?}");
    }
}

#[test]
fn source_parses_and_prints_identically() {
    assert_eq!(DatasetSource::from("push"), DatasetSource::Push);
    for text in ["push", "https://a.test/x.json", "s3://bucket/key"] {
        assert_eq!(DatasetSource::from(text).to_string(), text);
    }
}
