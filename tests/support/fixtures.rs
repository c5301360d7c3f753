//! The fixtures: where they lie, and their entities as a reader of the tests' own reads them.

use std::path::Path;

use strata_reference::Value;

/// Where the fixtures lie.
pub const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data-fixtures");

/// The fixtures: the name that the manifest gives, the file, and the key of the array in it.
pub const FIXTURE_FILES: [(&str, &str, Option<&str>); 7] = [
    ("World Countries", "world-countries/countries.json", None),
    ("Emoji", "emoji/emoji.json.zst", None),
    ("Earthquakes", "earthquakes/earthquakes.json", Some("features")),
    ("Football Matches", "football/matches.jsonl.gz", None),
    ("US Airports", "airports/airports.csv", None),
    ("US Unemployment", "unemployment/unemployment.tsv", None),
    ("Palmer Penguins", "penguins/penguins.json", None),
];

/// The entities of a fixture, read by other code than the service's: whole, and as a tree of values.
pub fn fixture(file: &str, records: Option<&str>) -> Vec<Value> {
    let packed = std::fs::read(Path::new(FIXTURES).join(file)).expect(file);
    let bytes = match file.rsplit_once('.') {
        Some((_, "gz")) => {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*packed), &mut bytes).expect("gzip");
            bytes
        }
        Some((_, "zst")) => zstd::decode_all(&*packed).expect("Zstandard"),
        _ => packed,
    };
    let text = String::from_utf8(bytes).expect("UTF-8");
    let name = file.trim_end_matches(".gz").trim_end_matches(".zst");
    let table = |delimiter| {
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
        let header = reader.headers().expect("a header").clone();
        let record = |record: csv::Result<csv::StringRecord>| {
            let record = record.expect("a record");
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
            let document = Value::parse(&text).expect("JSON");
            let array = records.map_or(Some(&document), |records| document.get(records)).cloned();
            match array {
                Some(Value::Array(entities)) => entities,
                _ => panic!("{file} holds no array"),
            }
        }
    }
}

/// The canonical texts of a fixture's entities.
pub fn fixture_entities(file: &str, records: Option<&str>) -> Vec<String> {
    fixture(file, records).iter().map(Value::write).collect()
}
