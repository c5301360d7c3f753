//! Parquet bombs and inconsistent files, created by a writer or forged.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use serde_json::{Value, json};
use strata_ingest::{DecodeOptions, ExpansionLimits, SourceError, SourceInput, open_decoder};
use strata_store::free_space::DiskReserve;
use strata_store::spool_quota::{SpoolLimits, SpoolQuota};
use strata_testing::forged_parquet::{self as forge, Column, ForgedPage, Struct, varint, zigzag};
use strata_testing::packed::gzip;
use strata_types::ids::UserId;

use super::bombs::{check_too_large, decode, low_expansion_options};

const MEMORY_OPTION: &str = "sources.parquet_memory_bytes";

/// Returns options with a low memory limit and without an expansion limit.
fn low_memory_options() -> DecodeOptions {
    let expansion = ExpansionLimits { max_ratio: u64::MAX, free_bytes: u64::MAX };
    DecodeOptions { parquet_memory_bytes: 32 << 20, expansion_limits: expansion, ..DecodeOptions::default() }
}

fn write(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).expect("failed to build batch");
    let mut writer =
        ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("failed to create writer");
    writer.write(&batch).expect("failed to write");
    writer.into_inner().expect("failed to write")
}

fn zstd_properties() -> WriterProperties {
    WriterProperties::builder().set_compression(zstd_codec()).build()
}

fn list(lengths: &[usize]) -> ArrayRef {
    let values = Int32Array::from(vec![7; lengths.iter().sum()]);
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), Arc::new(values), None))
}

#[track_caller]
fn check_invalid<T: std::fmt::Debug>(result: Result<T, SourceError>, text: &str) {
    match result {
        Err(error @ SourceError::InvalidDocument { .. }) => assert!(error.to_string().contains(text), "{error}"),
        other => panic!("expected InvalidDocument with {text:?}, got {other:?}"),
    }
}

fn entities(file: &[u8], options: &DecodeOptions) -> Vec<Value> {
    let (mut decoder, _) = open_decoder(SourceInput::from_reader(std::io::Cursor::new(file.to_vec())), options)
        .expect("failed to open decoder");
    let mut entities = Vec::new();
    let mut text = Vec::new();
    while decoder.next_entity(&mut text).expect("failed to decode entity") {
        entities.push(serde_json::from_slice(&text).expect("failed to parse JSON"));
        text.clear();
    }
    entities
}

#[test]
fn repeated_string_expansion_is_limited() {
    let long = "x".repeat(1 << 20);
    let file = write(vec![("a", Arc::new(StringArray::from(vec![&*long; 100])))], zstd_properties());
    assert!(file.len() < 100_000, "{}", file.len());
    check_too_large(decode(&file, &DecodeOptions::default()), "sources.max_expansion");
    // Without the expansion limit, all rows are decoded with little memory.
    assert_eq!(decode(&file, &low_memory_options()).expect("failed to decode").0, 100);
}

#[test]
fn empty_rows_and_runs_expansion_is_limited() {
    let ones = Arc::new(Int64Array::from(vec![1; 1_000_000]));
    let file = write(vec![("a", ones)], zstd_properties());
    assert!(file.len() < 100_000, "{}", file.len());
    check_too_large(decode(&file, &low_expansion_options()), "sources.max_expansion");
}

#[test]
fn long_list_row_memory_is_limited() {
    let file = write(vec![("a", list(&[8_000_000]))], zstd_properties());
    assert!(file.len() < 100_000, "{}", file.len());
    check_too_large(decode(&file, &low_memory_options()), MEMORY_OPTION);
    // If only some lists are long, the memory suffices.
    let lengths: Vec<usize> = (0..20_000).map(|row| if row % 5_000 == 0 { 50_000 } else { row % 3 }).collect();
    let file = write(vec![("a", list(&lengths))], zstd_properties());
    let decoded = entities(&file, &low_memory_options());
    assert_eq!(decoded.len(), lengths.len());
    let decoded = decoded.iter().map(|entity| entity["a"].as_array().expect("expected a list").len());
    assert!(decoded.eq(lengths.iter().copied()));
}

#[test]
fn few_long_strings_are_read() {
    // A batch with the size that fits the mean length would contain all long strings.
    let texts: Vec<String> = (0..3_000).map(|row| "y".repeat(if row >= 2_950 { 1 << 20 } else { 3 })).collect();
    let properties = WriterProperties::builder()
        .set_write_batch_size(1)
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .build();
    let file = write(vec![("a", Arc::new(StringArray::from(texts.clone())))], properties);
    let decoded = entities(&file, &low_memory_options());
    assert!(decoded.iter().map(|entity| entity["a"].as_str()).eq(texts.iter().map(|text| Some(text.as_str()))));
}

#[test]
fn page_expansion_is_limited_despite_footer() {
    // Each page has one value, followed by a megabyte that no value uses. The footer contains only the compressed
    // sizes.
    let padded = gzip(&[&7_i64.to_le_bytes()[..], &vec![0; 1 << 20]].concat());
    let page = ForgedPage { uncompressed: Some((1 << 20) + 8), ..ForgedPage::data(1, forge::PLAIN, padded) };
    let pages = |count: usize| {
        let pages = vec![page.clone(); count];
        let column = Column { physical: forge::INT64, codec: forge::GZIP, repetition: 0, rows: count as i64, pages };
        column.file()
    };
    let few = pages(2);
    let many = pages(100);
    assert!(many.len() * 50 < 100 << 20, "{}", many.len());
    let options = |free_bytes| DecodeOptions {
        expansion_limits: ExpansionLimits { max_ratio: 50, free_bytes },
        ..low_memory_options()
    };
    assert_eq!(entities(&few, &options(3 << 20)), [json!({"a": 7}), json!({"a": 7})]);
    check_too_large(decode(&many, &options(3 << 20)), "sources.max_expansion");
    // The source size limit rejects the file before anything is decoded.
    let limited = DecodeOptions { max_source_bytes: 50 << 20, ..low_memory_options() };
    let error =
        open_decoder(SourceInput::from_reader(std::io::Cursor::new(many)), &limited).and_then(|(mut decoder, _)| {
            let mut text = Vec::new();
            decoder.next_entity(&mut text)
        });
    check_too_large(error, "sources.max_bytes");
}

#[test]
fn compressed_parquet_copy_is_charged_to_user() {
    let texts: Vec<String> = (0..2_000).map(|row| format!("text {row}")).collect();
    let file = write(vec![("a", Arc::new(StringArray::from(texts)))], WriterProperties::default());
    let length = file.len() as u64;
    let packed = gzip(&file);
    let quota = |bytes| {
        let disk = DiskReserve::new(&std::env::temp_dir(), 0);
        SpoolQuota::new(SpoolLimits { total_bytes: bytes, user_bytes: bytes, share_percent: 100, disk_reserve: disk })
    };
    let charged_to = |quota: &SpoolQuota| DecodeOptions {
        spool_account: quota.reservation_for_user(UserId::new(1)).quota(),
        ..low_memory_options()
    };
    let sufficient = quota(length);
    let (mut decoder, _) =
        open_decoder(SourceInput::from_reader(std::io::Cursor::new(packed.clone())), &charged_to(&sufficient))
            .expect("failed to open decoder");
    assert!(decoder.next_entity(&mut Vec::new()).expect("failed to decode entity"));
    assert_eq!(sufficient.used_bytes(), length);
    drop(decoder);
    assert_eq!(sufficient.used_bytes(), 0);

    let insufficient = quota(length - 1);
    let rejected = decode(&packed, &charged_to(&insufficient));
    assert!(matches!(rejected, Err(SourceError::DiskQuotaExceeded(_))), "{rejected:?}");
    assert_eq!(insufficient.used_bytes(), 0);
}

#[test]
fn schema_size_and_depth_are_limited() {
    let schema =
        Schema::new((0..200).map(|column| Field::new(column.to_string(), DataType::Int32, true)).collect::<Vec<_>>());
    let nulls = |rows| schema.fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), nulls(1)).expect("failed to build batch");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("failed to create writer");
    writer.write(&batch).expect("failed to write");
    let file = writer.into_inner().expect("failed to write");
    assert_eq!(decode(&file, &low_memory_options()).expect("failed to decode").0, 1);
    check_too_large(
        decode(&file, &DecodeOptions { max_columns: 199, ..low_memory_options() }),
        "sources.max_columns (199)",
    );

    // A row group takes a few bytes in the file, but its metadata takes some thousand bytes of memory.
    let chunk = || Struct::default().i64(2, 0).nested(3, Struct::default().i32(1, forge::INT64));
    let group = Struct::default().list(1, 1, vec![chunk()]).i64(2, 0).i64(3, 0);
    let root = Struct::default().text(4, "root").i32(5, 1);
    let leaf = Struct::default().i32(1, forge::INT64).i32(3, 0).text(4, "a");
    let footer = |count, groups| {
        Struct::default().i32(1, 1).list(2, 2, vec![root.clone(), leaf.clone()]).i64(3, 0).list(4, count, groups)
    };
    let many = forge::end(b"PAR1".to_vec(), footer(100_000, vec![group.clone(); 100_000]).end());
    check_too_large(decode(&many, &low_memory_options()), MEMORY_OPTION);
    // Row groups without columns take memory, too.
    let empty = Struct::default().list(1, 0, Vec::new()).i64(2, 0).i64(3, 0);
    let bare = Struct::default().i32(1, 1).list(2, 1, vec![Struct::default().text(4, "root").i32(5, 0)]).i64(3, 0);
    let many = forge::end(b"PAR1".to_vec(), bare.list(4, 100_000, vec![empty; 100_000]).end());
    check_too_large(decode(&many, &low_memory_options()), MEMORY_OPTION);
    // The footer announces more row groups than it contains.
    let overstated = forge::end(b"PAR1".to_vec(), footer(0x7fff_ffff, vec![group]).end());
    check_invalid(decode(&overstated, &low_memory_options()), "malformed");

    let nested = |depth: usize| {
        let group = |name: &str| Struct::default().i32(3, 1).text(4, name).i32(5, 1);
        let mut elements = vec![root.clone()];
        elements.extend((0..depth).map(|_| group("g")));
        elements.push(leaf.clone());
        let footer =
            Struct::default().i32(1, 1).list(2, elements.len() as u64, elements).i64(3, 0).list(4, 0, Vec::new());
        forge::end(b"PAR1".to_vec(), footer.end())
    };
    check_invalid(decode(&nested(100_000), &low_memory_options()), "nests deeper");
    assert_eq!(decode(&nested(100), &low_memory_options()).expect("failed to decode").0, 0);
}

#[test]
fn inconsistent_pages_are_rejected() {
    let column = |physical, pages| Column { physical, codec: forge::UNCOMPRESSED, repetition: 0, rows: 2, pages };
    let page = ForgedPage::data(2, forge::PLAIN, [1_i64, 2].map(i64::to_le_bytes).concat());
    let valid = column(forge::INT64, vec![page]);
    assert_eq!(entities(&valid.file(), &low_memory_options()), [json!({"a": 1}), json!({"a": 2})]);

    // A dictionary that announces two billion entries.
    let index = [&[1][..], &varint(2 << 1), &[0]].concat();
    let data = ForgedPage::data(2, forge::RLE_DICTIONARY, index);
    let dictionary = ForgedPage::dictionary(0x7fff_ffff, 5_i64.to_le_bytes().to_vec());
    check_invalid(
        decode(&column(forge::INT64, vec![dictionary, data.clone()]).file(), &low_memory_options()),
        "more entries",
    );
    let dictionary = ForgedPage::dictionary(1, 5_i64.to_le_bytes().to_vec());
    let decoded = entities(&column(forge::INT64, vec![dictionary, data]).file(), &low_memory_options());
    assert_eq!(decoded, [json!({"a": 5}), json!({"a": 5})]);

    // A page that announces two gigabytes, and one that expands to more than it announces.
    let zeros = gzip(&vec![0; 40 << 20]);
    for (uncompressed, text) in [(0x7fff_ffff, MEMORY_OPTION), (16, "does not have the uncompressed size")] {
        let page = ForgedPage { uncompressed: Some(uncompressed), ..ForgedPage::data(2, forge::PLAIN, zeros.clone()) };
        let file = Column { codec: forge::GZIP, ..column(forge::INT64, vec![page]) }.file();
        let error = decode(&file, &low_memory_options()).expect_err("decoded an invalid source");
        assert!(error.to_string().contains(text), "{error}");
    }

    // A page that extends past the end of the file, and a page with a negative size.
    let mut truncated = valid.file();
    truncated.drain(4..12);
    assert!(decode(&truncated, &low_memory_options()).is_err());
    let huge = ForgedPage { uncompressed: Some(-1), ..valid.pages[0].clone() };
    check_invalid(decode(&column(forge::INT64, vec![huge]).file(), &low_memory_options()), "header of a page");
}

#[test]
fn delta_encoded_strings_are_limited() {
    let column = |encoding, values, bytes| Column {
        physical: forge::BYTE_ARRAY,
        codec: forge::UNCOMPRESSED,
        repetition: 0,
        rows: values,
        pages: vec![ForgedPage::data(values as i32, encoding, bytes)],
    };
    // A billion lengths of 0 in one block with one miniblock and a bit width of 0.
    let count = 1 << 30;
    let lengths = [varint(1 << 30), varint(1), varint(count), zigzag(0), zigzag(0), vec![0]].concat();
    let error = decode(&column(forge::DELTA_LENGTH, count as i64, lengths).file(), &low_memory_options())
        .expect_err("decoded an invalid source");
    assert!(error.to_string().contains(MEMORY_OPTION), "{error}");

    // Each string is the previous one with one more letter: ten kilobytes become fifty megabytes.
    let steps = |first: i64, step: i64, count: u64| {
        let mut bytes = [varint(128), varint(4), varint(count), zigzag(first)].concat();
        for _ in 0..(count - 1).div_ceil(128) {
            bytes.extend([zigzag(step), vec![0; 4]].concat());
        }
        bytes
    };
    let growing = |rows: u64| {
        let bytes = [steps(0, 1, rows), steps(1, 0, rows), vec![b'z'; rows as usize]].concat();
        column(forge::DELTA, rows as i64, bytes).file()
    };
    assert_eq!(entities(&growing(3), &low_memory_options()), ["7a", "7a7a", "7a7a7a"].map(|text| json!({"a": text})));
    check_too_large(decode(&growing(10_000), &low_memory_options()), MEMORY_OPTION);
    let truncated = [steps(0, 1, 300), steps(1, 0, 300), vec![b'z'; 299]].concat();
    check_invalid(
        decode(&column(forge::DELTA, 300, truncated).file(), &low_memory_options()),
        "string lengths of a page",
    );
}

#[test]
fn all_writer_encodings_are_read() {
    let rows = 1_000_usize;
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter((0..rows).map(|row| (row % 7 != 0).then_some(row as i64 * 3))));
    let texts = StringArray::from_iter((0..rows).map(|row| (row % 5 != 0).then(|| format!("text {:06}", row / 3))));
    let lists = list(&(0..rows).map(|row| row % 4).collect::<Vec<_>>());
    let expected = |row: usize| {
        let number = if !row.is_multiple_of(7) { json!(row * 3) } else { Value::Null };
        let text = if !row.is_multiple_of(5) { json!(format!("text {:06}", row / 3)) } else { Value::Null };
        json!({"n": number, "t": text, "l": vec![7; row % 4]})
    };
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for codec in
            [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default()), zstd_codec()]
        {
            for encoding in
                [None, Some(Encoding::PLAIN), Some(Encoding::DELTA_LENGTH_BYTE_ARRAY), Some(Encoding::DELTA_BYTE_ARRAY)]
            {
                let mut builder = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(codec)
                    .set_data_page_row_count_limit(150)
                    .set_write_batch_size(25)
                    .set_dictionary_enabled(encoding.is_none());
                if let Some(encoding) = encoding {
                    builder = builder.set_column_encoding("t".into(), encoding);
                }
                let columns =
                    vec![("n", numbers.clone()), ("t", Arc::new(texts.clone()) as ArrayRef), ("l", lists.clone())];
                let decoded = entities(&write(columns, builder.build()), &low_memory_options());
                assert_eq!(decoded.len(), rows);
                for (row, entity) in decoded.iter().enumerate() {
                    assert_eq!(*entity, expected(row), "row {row}, {version:?}, {codec}, {encoding:?}");
                }
            }
        }
    }
}

fn zstd_codec() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// Returns a column with two numbers in one page, whose compressed bytes are given.
fn two_numbers(codec: i32, bytes: Vec<u8>) -> Column {
    let page = ForgedPage { uncompressed: Some(16), ..ForgedPage::data(2, forge::PLAIN, bytes) };
    Column { physical: forge::INT64, codec, repetition: 0, rows: 2, pages: vec![page] }
}

fn brotli(bytes: &[u8], window_log: i32) -> Vec<u8> {
    let mut packed = Vec::new();
    let params =
        brotli::enc::BrotliEncoderParams { lgwin: window_log, large_window: window_log > 24, ..Default::default() };
    brotli::BrotliCompress(&mut &bytes[..], &mut packed, &params).expect("failed to write");
    packed
}

/// Compresses blocks with LZ4 in Hadoop's framing.
fn hadoop(blocks: &[&[u8]]) -> Vec<u8> {
    let framed = blocks.iter().map(|block| {
        let packed = lz4_flex::block::compress(block);
        [&(block.len() as u32).to_be_bytes()[..], &(packed.len() as u32).to_be_bytes(), &packed].concat()
    });
    framed.collect::<Vec<_>>().concat()
}

#[test]
fn lz4_and_brotli_pages_are_limited() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let too_many = [1_i64, 2, 3].map(i64::to_le_bytes).concat();
    let lz4 = |bytes: &[u8]| lz4_flex::block::compress(bytes);
    for (codec, packed) in [
        (forge::BROTLI, brotli(&numbers, 22)),
        (forge::LZ4_RAW, lz4(&numbers)),
        (forge::LZ4, hadoop(&[&numbers])),
        (forge::LZ4, hadoop(&[&numbers[..8], &[], &numbers[8..]])),
        (forge::LZ4, lz4(&numbers)),
    ] {
        let decoded = entities(&two_numbers(codec, packed.clone()).file(), &low_memory_options());
        assert_eq!(decoded, [json!({"a": 1}), json!({"a": 2})], "codec {codec}");
        let truncated = packed[..packed.len() - 1].to_vec();
        check_invalid(decode(&two_numbers(codec, truncated).file(), &low_memory_options()), "(column \"a\")");
    }
    for (codec, packed) in [
        (forge::BROTLI, brotli(&too_many, 22)),
        (forge::BROTLI, brotli(&numbers, 26)),
        (forge::BROTLI, Vec::new()),
        (forge::LZ4_RAW, lz4(&too_many)),
        (forge::LZ4_RAW, Vec::new()),
        (forge::LZ4, hadoop(&[&too_many])),
        (forge::LZ4, hadoop(&[&numbers[..8]])),
        (forge::LZ4, [&u32::MAX.to_be_bytes()[..], &u32::MAX.to_be_bytes()].concat()),
    ] {
        check_invalid(decode(&two_numbers(codec, packed).file(), &low_memory_options()), "(column \"a\")");
    }
    check_invalid(
        decode(&two_numbers(forge::LZO, numbers).file(), &low_memory_options()),
        "LZO compression is not supported; valid: none,",
    );
}

#[test]
fn brotli_window_counts_as_memory() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let file = |window_log| two_numbers(forge::BROTLI, brotli(&numbers, window_log)).file();
    let options = DecodeOptions { parquet_memory_bytes: 8 << 20, ..low_memory_options() };
    assert_eq!(entities(&file(18), &options).len(), 2);
    check_too_large(decode(&file(24), &options), MEMORY_OPTION);
    assert_eq!(entities(&file(24), &low_memory_options()).len(), 2);
}

#[test]
fn empty_column_chunks_are_not_read() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    // The page offsets of a chunk without values have no meaning.
    let without_values = |rows| Column { rows, pages: Vec::new(), ..column.clone() };
    assert_eq!(entities(&without_values(0).file(), &low_memory_options()), [] as [Value; 0]);
    let damage = "row group 0 of the Parquet file has 0 rows, but its footer says 2";
    check_invalid(decode(&without_values(2).file(), &low_memory_options()), damage);
    // Pages with values that the footer does not count.
    let mut hidden = column.clone();
    hidden.pages[0].values = 0;
    check_invalid(decode(&hidden.file(), &low_memory_options()), damage);
}

#[test]
fn unknown_footer_fields_are_ignored() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    // Dremio writes 0 as the dictionary offset if there is none, and a list in the field for the bloom filter length.
    let file =
        column.file_with(|metadata| metadata.i64(11, 0).list(15, 1, vec![Struct::default().i32(1, 0)]), |chunk| chunk);
    assert_eq!(entities(&file, &low_memory_options()), [json!({"a": 1}), json!({"a": 2})]);
    // fastparquet writes empty lists without an element type.
    let root = Struct::default().text(4, "root").i32(5, 1);
    let leaf = Struct::default().i32(1, forge::INT64).i32(3, 0).text(4, "a");
    let footer = Struct::default().i32(1, 1).list(2, 2, vec![root, leaf]).i64(3, 0).untyped_list(4).untyped_list(5);
    let file = forge::end(b"PAR1".to_vec(), footer.end());
    assert_eq!(decode(&file, &low_memory_options()).expect("failed to decode").0, 0);
}

#[test]
fn encrypted_file_is_reported() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    let text = "column \"a\" is encrypted, but strata has no keys";
    check_invalid(
        decode(
            &column.file_with(|metadata| metadata, |chunk| chunk.nested(8, Struct::default())),
            &low_memory_options(),
        ),
        text,
    );
    // A file with an encrypted footer starts and ends with another magic number.
    let mut file = column.file();
    let end = file.len() - 4;
    file[..4].copy_from_slice(b"PARE");
    file[end..].copy_from_slice(b"PARE");
    check_invalid(decode(&file, &low_memory_options()), "the Parquet file is encrypted, but strata has no keys");
}
