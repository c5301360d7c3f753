//! Sources in chunks of any size, arbitrary bytes, and the fixtures.

use std::fmt::Write as _;
use std::io;
use std::path::{Path as FilePath, PathBuf};

use proptest::prelude::*;
use strata_ingest::{DecodeOptions, SourceInput};
use strata_types::field_path::FieldPath;
use strata_types::source::SourceFormat;

use super::{ChunkedReader, at_path, check, decode};

fn json_value() -> impl Strategy<Value = serde_json::Value> {
    let key = prop_oneof!["[a-c]{0,3}", "[\\PC\u{0}-\u{1f}\"\\\\{}\\[\\],:]{0,8}"];
    let scalar = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        key.clone().prop_map(serde_json::Value::from),
    ];
    scalar.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

fn entity() -> impl Strategy<Value = serde_json::Value> {
    prop::collection::vec(("[a-e\"\\\\]{0,2}", json_value()), 0..5)
        .prop_map(|members| serde_json::Value::Object(members.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn json_result_is_independent_of_chunks(
        entities in prop::collection::vec(entity(), 0..8),
        sibling in json_value(),
        pretty in any::<bool>(),
        window_bytes in 1..200_usize,
        sizes in prop::collection::vec(0..40_usize, 1..5),
    ) {
        prop_assume!(sizes.iter().any(|size| *size > 0));
        let expected: String = entities.iter().map(|entity| format!("{entity}\n")).collect();
        let array = serde_json::Value::from(entities.clone());
        let nested = serde_json::json!({"before": sibling, "": {"items": array, "x": sibling}, "after": sibling});
        let write = |value: &serde_json::Value| {
            let text = if pretty { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
            text.expect("failed to serialize value")
        };
        let byte_order_mark = if pretty { "\u{feff}" } else { "" };
        let lines: String = entities.iter().map(|entity| format!("{entity}\r\n\n")).collect();
        let items = FieldPath::from_keys(["", "items"]).expect("failed to parse path");
        for (format, records_path, document) in [
            (SourceFormat::Json, None, write(&array)),
            (SourceFormat::Json, Some(items), write(&nested)),
            (SourceFormat::Jsonl, None, lines),
        ] {
            let options =
                DecodeOptions { format: Some(format), records_path, window_bytes, ..DecodeOptions::default() };
            let bytes = (byte_order_mark.to_owned() + &document).into_bytes();
            let reader = ChunkedReader { bytes, position: 0, sizes: sizes.clone(), read_count: 0 };
            prop_assert_eq!(decode(SourceInput::from_reader(reader), &options), expected.clone());
        }
    }

    #[test]
    fn table_result_is_independent_of_chunks(
        rows in prop::collection::vec(prop::collection::vec("[a,\t\"\r\né]{0,6}", 3), 0..6),
        line_end in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        always_quoted in any::<bool>(),
        delimiter in prop::sample::select(vec![",", "\t"]),
        window_bytes in 1..60_usize,
        sizes in prop::collection::vec(1..20_usize, 1..5),
    ) {
        let mut document = ["x", "y", "z"].join(delimiter) + line_end;
        let mut expected = String::new();
        for row in &rows {
            let cells: Vec<String> = row.iter().map(|cell| {
                let quoted = always_quoted || cell.contains([',', '\t', '"', '\r', '\n']);
                if quoted { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.clone() }
            }).collect();
            document += &(cells.join(delimiter) + line_end);
            let entity = serde_json::json!({"x": row[0], "y": row[1], "z": row[2]});
            writeln!(expected, "{entity}").expect("failed to write");
        }
        let format = if delimiter == "," { SourceFormat::Csv } else { SourceFormat::Tsv };
        let options = DecodeOptions { format: Some(format), window_bytes, ..DecodeOptions::default() };
        let reader = ChunkedReader { bytes: document.into_bytes(), position: 0, sizes, read_count: 0 };
        prop_assert_eq!(decode(SourceInput::from_reader(reader), &options), expected);
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        bytes in prop::collection::vec(
            prop_oneof![4 => prop::sample::select(b"{}[]\",:\\ \n\r\ta1".to_vec()), 1 => any::<u8>()], 0..200),
        window_bytes in 1..50_usize,
    ) {
        for format in [SourceFormat::Json, SourceFormat::Jsonl, SourceFormat::Csv, SourceFormat::Tsv] {
            for records_path in [None, Some(FieldPath::from_keys(["a"]).expect("failed to parse path"))] {
                let options =
                    DecodeOptions { format: Some(format), records_path, window_bytes, ..DecodeOptions::default() };
                decode(SourceInput::from_reader(io::Cursor::new(bytes.clone())), &options);
            }
        }
    }
}

fn fixtures() -> PathBuf {
    FilePath::new(strata_testing::FIXTURES).to_owned()
}

#[test]
fn fixtures_decode_to_expected_entities() {
    for (file, records_path, count) in [
        ("world-countries/countries.json", None, 250),
        ("emoji/emoji.json.zst", None, 1949),
        ("earthquakes/earthquakes.json", Some("features"), 1707),
        ("football/matches.jsonl.gz", None, 6508),
        ("airports/airports.csv", None, 3376),
        ("unemployment/unemployment.tsv", None, 3218),
        ("penguins/penguins.json", None, 344),
    ] {
        let path = fixtures().join(file);
        let manifest = std::fs::read_to_string(fixtures().join("manifest.toml")).expect("failed to read manifest");
        assert!(manifest.contains(&format!("file = \"{file}\"")), "{file} is not in the manifest");
        assert!(path.with_file_name("ORIGIN.md").is_file(), "{file} has no origin");
        let options = records_path.map(at_path).unwrap_or_default();
        let text = decode(SourceInput::open_file(&path).expect("failed to open file"), &options);
        assert_eq!(text.lines().count(), count, "{file}");
        for line in text.lines() {
            let value: serde_json::Value = serde_json::from_str(line).expect(file);
            assert_eq!(value.to_string(), line, "{file}");
        }
    }
}

#[test]
fn fixture_matches_value_tree() {
    let bytes = std::fs::read(fixtures().join("world-countries/countries.json")).expect("failed to open file");
    let whole: Vec<serde_json::Value> = serde_json::from_slice(&bytes).expect("failed to parse array");
    let expected: String = whole.iter().map(|entity| format!("{entity}\n")).collect();
    check("countries.json", &bytes, &expected);
}
