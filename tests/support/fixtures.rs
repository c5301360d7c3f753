//! The fixtures, and their entities as read by an independent reader.

use std::path::Path;

use strata_reference::Value;

pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data-fixtures");

/// The name of each fixture in the manifest, its file, and the key of the array in the file.
pub const FIXTURE_FILES: [(&str, &str, Option<&str>); 7] = [
    ("World Countries", "world-countries/countries.json", None),
    ("Emoji", "emoji/emoji.json.zst", None),
    ("Earthquakes", "earthquakes/earthquakes.json", Some("features")),
    ("Football Matches", "football/matches.jsonl.gz", None),
    ("US Airports", "airports/airports.csv", None),
    ("US Unemployment", "unemployment/unemployment.tsv", None),
    ("Palmer Penguins", "penguins/penguins.json", None),
];

/// Returns the entities of a fixture, read by code that is independent of the service.
pub fn fixture(file: &str, records: Option<&str>) -> Vec<Value> {
    let packed = std::fs::read(Path::new(FIXTURES).join(file)).expect(file);
    let bytes = match file.rsplit_once('.') {
        Some((_, "gz")) => {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut bytes)
                .expect("failed to decompress gzip");
            bytes
        }
        Some((_, "zst")) => zstd::decode_all(&*packed).expect("failed to decompress Zstandard"),
        _ => packed,
    };
    let text = String::from_utf8(bytes).expect("invalid UTF-8");
    let name = file.trim_end_matches(".gz").trim_end_matches(".zst");
    let table = |delimiter| {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
        let header = reader.headers().expect("missing header").clone();
        let record = |record: csv::Result<csv::StringRecord>| {
            let record = record.expect("failed to read record");
            let cells = header.iter().zip(&record);
            Value::Object(cells.map(|(key, cell)| (key.to_owned(), Value::String(cell.to_owned()))).collect())
        };
        reader.into_records().map(record).collect()
    };
    match name.rsplit_once('.') {
        Some((_, "csv")) => table(b','),
        Some((_, "tsv")) => table(b'\t'),
        Some((_, "jsonl")) => text.lines().map(|line| Value::parse_entity(line).expect(line)).collect(),
        _ => {
            let document = Value::parse(&text).expect("failed to parse JSON");
            let array = records.map_or(Some(&document), |records| document.get(records)).cloned();
            match array {
                Some(Value::Array(entities)) => entities,
                _ => panic!("{file} contains no array"),
            }
        }
    }
}

/// Returns the canonical texts of a fixture's entities.
pub fn fixture_entities(file: &str, records: Option<&str>) -> Vec<String> {
    fixture(file, records).iter().map(Value::write).collect()
}
