//! Names and sources of datasets.

use strata_types::dataset::{DatasetName, DatasetSource, InvalidDatasetName};

#[test]
fn a_name_carries_its_slug() {
    let name: DatasetName = "World Countries".parse().unwrap();
    assert_eq!(name.as_str(), "World Countries");
    assert_eq!(name.slug(), "world-countries");
}

#[test]
fn what_cannot_be_a_name_is_refused() {
    let longest = "é".repeat(DatasetName::MAX_CHARACTERS);
    assert!(longest.parse::<DatasetName>().is_ok());
    for (text, error) in [
        ("", InvalidDatasetName::Empty),
        ("--", InvalidDatasetName::Empty),
        ("a\0b", InvalidDatasetName::Nul),
        (&format!("{longest}e"), InvalidDatasetName::TooLong),
    ] {
        assert_eq!(text.parse::<DatasetName>(), Err(error), "{text:?}");
    }
}

#[test]
fn a_source_parses_and_prints_as_the_same_text() {
    assert_eq!(DatasetSource::from("push"), DatasetSource::Push);
    for text in ["push", "https://a.test/x.json", "s3://bucket/key"] {
        assert_eq!(DatasetSource::from(text).to_string(), text);
    }
}
