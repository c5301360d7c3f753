//! Decompression bombs, and tables whose entities are much larger than the source.

use std::io::Write;

use strata_ingest::{DecodeOptions, ExpansionLimits, SourceError, SourceInput, open_decoder};
use strata_testing::packed::gzip;
use strata_types::source::SourceFormat;

/// Decodes a whole source. Returns the number of entities and the size of their text.
pub(crate) fn decode(bytes: &[u8], options: &DecodeOptions) -> Result<(u64, u64), SourceError> {
    let (mut decoder, _) = open_decoder(SourceInput::from_reader(std::io::Cursor::new(bytes.to_vec())), options)?;
    let mut entities = 0;
    let mut length = 0;
    let mut text = Vec::new();
    while decoder.next_entity(&mut text)? {
        entities += 1;
        length += text.len() as u64;
        text.clear();
    }
    Ok((entities, length))
}

/// Asserts that the source was rejected because of a limit, and that the error names the option.
#[track_caller]
pub(crate) fn check_too_large<T: std::fmt::Debug>(result: Result<T, SourceError>, option: &str) {
    match result {
        Err(error @ SourceError::TooLarge { .. }) => assert!(error.to_string().contains(option), "{error}"),
        other => panic!("expected TooLarge because of {option}, got {other:?}"),
    }
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 19).expect("failed to compress")
}

/// Returns options with a low expansion limit, so that small bombs suffice.
pub(crate) fn low_expansion_options() -> DecodeOptions {
    DecodeOptions {
        expansion_limits: ExpansionLimits { max_ratio: 50, free_bytes: 1 << 20 },
        ..DecodeOptions::default()
    }
}

#[test]
fn compressed_source_expansion_is_limited() {
    const OPTION: &str = "sources.max_expansion (50)";
    let newlines = vec![b'\n'; 8 << 20];
    let incompressible: Vec<u8> = (1..50_000_u64)
        .flat_map(|number| format!("{{\"n\":{}}}\n", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes())
        .collect();
    for compress in [gzip, zstd, |bytes: &[u8]| gzip(&gzip(bytes)), |bytes: &[u8]| zstd(&gzip(bytes))] {
        check_too_large(decode(&compress(&newlines), &low_expansion_options()), OPTION);
        // A large source with a low compression ratio is accepted.
        assert_eq!(decode(&compress(&incompressible), &low_expansion_options()).expect("failed to decode").0, 49_999);
        // A small source with a high compression ratio is accepted.
        let small = [&vec![b'\n'; 1 << 19][..], b"{\"a\":1}\n"].concat();
        assert_eq!(decode(&compress(&small), &low_expansion_options()).expect("failed to decode").0, 1);
    }
    // The default options limit the expansion, too.
    let bomb = gzip(&newlines.repeat(10));
    let lines = DecodeOptions { format: Some(SourceFormat::Jsonl), ..DecodeOptions::default() };
    check_too_large(decode(&bomb, &lines), "sources.max_expansion (500)");
    // Format detection stops long before the expansion limit.
    let error = decode(&bomb, &DecodeOptions::default()).expect_err("detected a format");
    assert!(error.to_string().contains("its beginning contains only whitespace"), "{error}");
}

#[test]
fn table_with_long_names_expansion_is_limited() {
    let name = "n".repeat(10_000);
    let table = format!("{name}\n{}", "1\n".repeat(10_000));
    let csv = DecodeOptions { format: Some(SourceFormat::Csv), ..low_expansion_options() };
    check_too_large(decode(table.as_bytes(), &csv), "sources.max_expansion");
    // The added `_source` counts, because it is also repeated in each entity.
    let options = DecodeOptions { source_url: Some(format!("http://a.test/{name}")), ..low_expansion_options() };
    check_too_large(decode("{}\n".repeat(10_000).as_bytes(), &options), "sources.max_expansion");
}

#[test]
fn table_columns_are_limited() {
    let header = |columns: usize| (0..columns).map(|column| column.to_string()).collect::<Vec<_>>().join(",");
    let options = DecodeOptions { max_columns: 100, ..DecodeOptions::default() };
    let row = |cells: usize| vec!["1"; cells].join(",");
    let table = |columns: usize, cells: usize| format!("{}\n{}\n", header(columns), row(cells));
    assert_eq!(decode(table(100, 100).as_bytes(), &options).expect("failed to decode").0, 1);
    check_too_large(decode(table(101, 101).as_bytes(), &options), "sources.max_columns (100)");
    // The excess cells of a row are counted, but not stored.
    let error = decode(table(2, 1_000_000).as_bytes(), &options).expect_err("decoded a malformed row");
    assert!(error.to_string().contains("the row has 1000000 cells, but the header has 2"), "{error}");
}

#[test]
fn zstd_window_is_limited() {
    let compress = |window_log: u32| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("failed to create encoder");
        encoder.window_log(window_log).expect("failed to set window");
        encoder.long_distance_matching(true).expect("failed to enable long window");
        encoder.write_all(b"{\"a\":1}\n").expect("failed to compress");
        encoder.finish().expect("failed to compress")
    };
    assert_eq!(decode(&compress(27), &DecodeOptions::default()).expect("failed to decode").0, 1);
    for (window_log, window_bytes) in [(28, 128 << 20), (21, 1 << 20)] {
        let options = DecodeOptions { zstd_window_bytes: window_bytes, ..DecodeOptions::default() };
        let error = decode(&compress(window_log), &options).expect_err("decoded an invalid source");
        assert!(matches!(error, SourceError::InvalidDocument { .. }), "{error:?}");
        assert!(error.to_string().contains("sources.zstd_window_bytes"), "{error}");
    }
}

#[test]
fn nesting_depth_is_limited() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        for document in
            [format!("[{{\"a\":{nested}}}]"), format!("{{\"a\":{nested}}}\n"), format!("{{\"x\":{nested},\"e\":[]}}")]
        {
            let error = decode(document.as_bytes(), &DecodeOptions::default()).expect_err("decoded an invalid source");
            assert!(matches!(error, SourceError::InvalidDocument { .. }), "{error:?}");
        }
    }
}
