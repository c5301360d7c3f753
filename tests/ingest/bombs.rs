//! Little that becomes much: compressions and tables.

use std::io::Write;

use strata_ingest::{DecodeOptions, ExpansionLimits, SourceError, SourceInput, open};
use strata_testing::packed::gzip;
use strata_types::source::SourceFormat;

/// Decodes all of it; gives the number of entities and the bytes of their text.
pub(crate) fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<(u64, u64), SourceError> {
    let (mut decoder, _) = open(SourceInput::stream(std::io::Cursor::new(bytes.to_vec())), options)?;
    let (mut entities, mut length, mut text) = (0, 0, Vec::new());
    while decoder.next(&mut text)? {
        entities += 1;
        length += text.len() as u64;
        text.clear();
    }
    Ok((entities, length))
}

/// The error is of this kind, and its text names the option.
#[track_caller]
pub(crate) fn too_large<T: std::fmt::Debug>(result: Result<T, SourceError>, option: &str) {
    match result {
        Err(error @ SourceError::TooLarge { .. }) => assert!(error.to_string().contains(option), "{error}"),
        other => panic!("{other:?}, not too large by {option}"),
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 19).expect("packed")
}

/// A tight bound, so that small bombs do.
pub(crate) fn tight() -> DecodeOptions {
    DecodeOptions { expansion: ExpansionLimits { times: 50, free_bytes: 1 << 20 }, ..DecodeOptions::default() }
}

#[test]
fn what_becomes_of_a_compressed_source_is_bounded_by_what_came() {
    const PUBLIC: &str = "sources.max_expansion (50)";
    let blank = vec![b'\n'; 8 << 20];
    let honest: Vec<u8> = (1..50_000_u64)
        .flat_map(|number| format!("{{\"n\":{}}}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes())
        .collect();
    for pack in [gzip, zstd, |bytes: &[u8]| gzip(&gzip(bytes)), |bytes: &[u8]| zstd(&gzip(bytes))] {
        too_large(decode(&pack(&blank), &tight()), PUBLIC);
        // As large, and worth its bytes.
        assert_eq!(decode(&pack(&honest), &tight()).expect("decoded").0, 49_999);
        // As hollow, and small.
        let small = [&vec![b'\n'; 1 << 19][..], b"{\"a\":1}\n"].concat();
        assert_eq!(decode(&pack(&small), &tight()).expect("decoded").0, 1);
    }
    // By default, too.
    let bomb = gzip(&blank.repeat(10));
    let lines = DecodeOptions { format: Some(SourceFormat::Jsonl), ..DecodeOptions::default() };
    too_large(decode(&bomb, &lines), "sources.max_expansion (500)");
    // Nobody looks so far to find out what it is.
    let error = decode(&bomb, &DecodeOptions::default()).expect_err("no format");
    assert!(error.to_string().contains("its beginning contains only whitespace"), "{error}");
}

#[test]
fn a_table_with_long_names_and_short_rows_is_bounded_by_what_came() {
    let name = "n".repeat(10_000);
    let table = format!("{name}\n{}", "1\n".repeat(10_000));
    let csv = DecodeOptions { format: Some(SourceFormat::Csv), ..tight() };
    too_large(decode(table.as_bytes(), &csv), "sources.max_expansion");
    // `_source` counts: it is written as often.
    let options = DecodeOptions { fetched_from: Some(format!("http://a.test/{name}")), ..tight() };
    too_large(decode("{}\n".repeat(10_000).as_bytes(), &options), "sources.max_expansion");
}

#[test]
fn the_columns_of_a_table_are_bounded() {
    let header = |columns: usize| (0..columns).map(|column| column.to_string()).collect::<Vec<_>>().join(",");
    let options = DecodeOptions { columns_max: 100, ..DecodeOptions::default() };
    let row = |cells: usize| vec!["1"; cells].join(",");
    let table = |columns: usize, cells: usize| format!("{}\n{}\n", header(columns), row(cells));
    assert_eq!(decode(table(100, 100).as_bytes(), &options).expect("decoded").0, 1);
    too_large(decode(table(101, 101).as_bytes(), &options), "sources.max_columns (100)");
    // A row that is too long is counted, not kept.
    let error = decode(table(2, 1_000_000).as_bytes(), &options).expect_err("ragged");
    assert!(error.to_string().contains("the row has 1000000 cells, but the header has 2"), "{error}");
}

#[test]
fn the_window_of_a_zstandard_frame_is_bounded() {
    let pack = |window_log: u32| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.window_log(window_log).expect("a window");
        encoder.long_distance_matching(true).expect("a long window");
        encoder.write_all(b"{\"a\":1}\n").expect("packed");
        encoder.finish().expect("packed")
    };
    assert_eq!(decode(&pack(27), &DecodeOptions::default()).expect("decoded").0, 1);
    for (window_log, window_bytes) in [(28, 128 << 20), (21, 1 << 20)] {
        let options = DecodeOptions { zstd_window_bytes: window_bytes, ..DecodeOptions::default() };
        let error = decode(&pack(window_log), &options).expect_err("refused");
        assert!(matches!(error, SourceError::BadDocument { .. }), "{error:?}");
        assert!(error.to_string().contains("sources.zstd_window_bytes"), "{error}");
    }
}

#[test]
fn nesting_is_bounded_whatever_is_around_it() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for document in
            [format!("[{{\"a\":{nested}}}]"), format!("{{\"a\":{nested}}}\n"), format!("{{\"x\":{nested},\"e\":[]}}")]
        {
            let error = decode(document.as_bytes(), &DecodeOptions::default()).expect_err("refused");
            assert!(matches!(error, SourceError::BadDocument { .. }), "{error:?}");
        }
    }
}
