//! Parquet bombs, of every kind that is known: made by a writer, or forged.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, new_null_array};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use serde_json::{Value, json};
use strata_ingest::{DecodeOptions, ExpansionLimits, SourceError, SourceInput, open};
use strata_store::budget::{SpoolBudget, SpoolLimits};
use strata_store::free_space::DiskReserve;
use strata_testing::forged_parquet::{self as forge, Column, Page, Struct, varint, zigzag};
use strata_testing::packed::gzip;

use super::bombs::{decode, tight, too_large};

const MEMORY: &str = "sources.parquet_memory_bytes";

/// With little memory, and no bound of what may become of it but that.
fn small() -> DecodeOptions {
    let expansion = ExpansionLimits { times: u64::MAX, free_bytes: u64::MAX };
    DecodeOptions { parquet_memory_bytes: 32 << 20, expansion, ..DecodeOptions::default() }
}

fn write(columns: Vec<(&str, ArrayRef)>, properties: WriterProperties) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("written");
    writer.into_inner().expect("written")
}

fn packed() -> WriterProperties {
    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build()
}

fn list(lengths: &[usize]) -> ArrayRef {
    let values = Int32Array::from(vec![7; lengths.iter().sum()]);
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    Arc::new(ListArray::new(field, OffsetBuffer::from_lengths(lengths.iter().copied()), Arc::new(values), None))
}

#[track_caller]
fn damaged<T: std::fmt::Debug>(result: Result<T, SourceError>, text: &str) {
    match result {
        Err(error @ SourceError::BadDocument { .. }) => assert!(error.to_string().contains(text), "{error}"),
        other => panic!("{other:?}, not: {text}"),
    }
}

fn entities(file: &[u8], options: &DecodeOptions) -> Vec<Value> {
    let (mut decoder, _) = open(SourceInput::stream(std::io::Cursor::new(file.to_vec())), options).expect("opened");
    let (mut entities, mut text) = (Vec::new(), Vec::new());
    while decoder.next(&mut text).expect("an entity") {
        entities.push(serde_json::from_slice(&text).expect("JSON"));
        text.clear();
    }
    entities
}

#[test]
fn a_text_that_many_rows_refer_to_is_bounded_by_what_came() {
    let long = "x".repeat(1 << 20);
    let file = write(vec![("a", Arc::new(StringArray::from(vec![&*long; 100])))], packed());
    assert!(file.len() < 100_000, "{}", file.len());
    too_large(decode(&file, &DecodeOptions::default()), "sources.max_expansion");
    // With room for it, all rows come, in little memory.
    assert_eq!(decode(&file, &small()).expect("decoded").0, 100);
}

#[test]
fn rows_without_columns_and_runs_of_one_value_are_bounded_by_what_came() {
    let ones = Arc::new(Int64Array::from(vec![1; 1_000_000]));
    let file = write(vec![("a", ones)], packed());
    assert!(file.len() < 100_000, "{}", file.len());
    too_large(decode(&file, &tight()), "sources.max_expansion");
}

#[test]
fn a_row_with_a_long_list_is_bounded_in_memory() {
    let file = write(vec![("a", list(&[8_000_000]))], packed());
    assert!(file.len() < 100_000, "{}", file.len());
    too_large(decode(&file, &small()), MEMORY);
    // Lists that are long here and there are not.
    let lengths: Vec<usize> = (0..20_000).map(|row| if row % 5_000 == 0 { 50_000 } else { row % 3 }).collect();
    let file = write(vec![("a", list(&lengths))], packed());
    let found = entities(&file, &small());
    assert_eq!(found.len(), lengths.len());
    let found = found.iter().map(|entity| entity["a"].as_array().expect("a list").len());
    assert!(found.eq(lengths.iter().copied()));
}

#[test]
fn a_few_long_texts_among_short_ones_are_read() {
    // A batch of the size that fits the mean would hold all of the long ones.
    let texts: Vec<String> = (0..3_000).map(|row| "y".repeat(if row >= 2_950 { 1 << 20 } else { 3 })).collect();
    let properties = WriterProperties::builder()
        .set_write_batch_size(1)
        .set_dictionary_enabled(false)
        .set_compression(Compression::SNAPPY)
        .build();
    let file = write(vec![("a", Arc::new(StringArray::from(texts.clone())))], properties);
    let found = entities(&file, &small());
    assert!(found.iter().map(|entity| entity["a"].as_str()).eq(texts.iter().map(|text| Some(text.as_str()))));
}

#[test]
fn what_pages_become_is_bounded_by_what_came_whatever_the_footer_says() {
    // A value in each page, and a megabyte that no value takes. The footer knows of the packed bytes alone.
    let hollow = gzip(&[&7_i64.to_le_bytes()[..], &vec![0; 1 << 20]].concat());
    let page = Page { uncompressed: Some((1 << 20) + 8), ..Page::data(1, forge::PLAIN, hollow) };
    let pages = |count: usize| {
        let pages = vec![page.clone(); count];
        let column = Column { physical: forge::INT64, codec: forge::GZIP, repetition: 0, rows: count as i64, pages };
        column.file()
    };
    let (few, many) = (pages(2), pages(100));
    assert!(many.len() * 50 < 100 << 20, "{}", many.len());
    let options = |free_bytes| DecodeOptions { expansion: ExpansionLimits { times: 50, free_bytes }, ..small() };
    assert_eq!(entities(&few, &options(3 << 20)), [json!({"a": 7}), json!({"a": 7})]);
    too_large(decode(&many, &options(3 << 20)), "sources.max_expansion");
    // It is refused before anything is decoded, and also as larger than a source may be.
    let limited = DecodeOptions { source_limit_bytes: 50 << 20, ..small() };
    let error = open(SourceInput::stream(std::io::Cursor::new(many)), &limited).and_then(|(mut decoder, _)| {
        let mut text = Vec::new();
        decoder.next(&mut text)
    });
    too_large(error, "sources.max_bytes");
}

#[test]
fn the_copy_of_a_packed_file_is_charged_to_its_user_while_it_is_there() {
    let texts: Vec<String> = (0..2_000).map(|row| format!("text {row}")).collect();
    let file = write(vec![("a", Arc::new(StringArray::from(texts)))], WriterProperties::default());
    let length = file.len() as u64;
    let packed = gzip(&file);
    let budget = |bytes| {
        let disk = DiskReserve::new(&std::env::temp_dir(), 0);
        SpoolBudget::new(SpoolLimits { bytes, user_bytes: bytes, share_percent: 100, disk })
    };
    let charged = |budget: &SpoolBudget| DecodeOptions { spool_account: budget.charge(1).account(), ..small() };
    let roomy = budget(length);
    let (mut decoder, _) =
        open(SourceInput::stream(std::io::Cursor::new(packed.clone())), &charged(&roomy)).expect("open");
    assert!(decoder.next(&mut Vec::new()).expect("an entity"));
    assert_eq!(roomy.used_bytes(), length);
    drop(decoder);
    assert_eq!(roomy.used_bytes(), 0);

    let tight = budget(length - 1);
    let refused = decode(&packed, &charged(&tight));
    assert!(matches!(refused, Err(SourceError::Full(_))), "{refused:?}");
    assert_eq!(tight.used_bytes(), 0);
}

#[test]
fn columns_row_groups_and_nesting_are_bounded_before_they_are_built() {
    let schema =
        Schema::new((0..200).map(|column| Field::new(column.to_string(), DataType::Int32, true)).collect::<Vec<_>>());
    let nulls = |rows| schema.fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
    let batch = RecordBatch::try_new(Arc::new(schema.clone()), nulls(1)).expect("a batch");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    let file = writer.into_inner().expect("written");
    assert_eq!(decode(&file, &small()).expect("decoded").0, 1);
    too_large(decode(&file, &DecodeOptions { columns_max: 199, ..small() }), "sources.max_columns (199)");

    // Each row group takes a few bytes, and its records some thousand.
    let chunk = || Struct::default().i64(2, 0).of(3, Struct::default().i32(1, forge::INT64));
    let group = Struct::default().list(1, 1, vec![chunk()]).i64(2, 0).i64(3, 0);
    let root = Struct::default().text(4, "root").i32(5, 1);
    let leaf = Struct::default().i32(1, forge::INT64).i32(3, 0).text(4, "a");
    let footer = |count, groups| {
        Struct::default().i32(1, 1).list(2, 2, vec![root.clone(), leaf.clone()]).i64(3, 0).list(4, count, groups)
    };
    let many = forge::end(b"PAR1".to_vec(), footer(100_000, vec![group.clone(); 100_000]).end());
    too_large(decode(&many, &small()), MEMORY);
    // Also without columns.
    let empty = Struct::default().list(1, 0, Vec::new()).i64(2, 0).i64(3, 0);
    let bare = Struct::default().i32(1, 1).list(2, 1, vec![Struct::default().text(4, "root").i32(5, 0)]).i64(3, 0);
    let many = forge::end(b"PAR1".to_vec(), bare.list(4, 100_000, vec![empty; 100_000]).end());
    too_large(decode(&many, &small()), MEMORY);
    // More are announced than there are.
    let lied = forge::end(b"PAR1".to_vec(), footer(0x7fff_ffff, vec![group]).end());
    damaged(decode(&lied, &small()), "malformed");

    let nested = |depth: usize| {
        let group = |name: &str| Struct::default().i32(3, 1).text(4, name).i32(5, 1);
        let mut elements = vec![root.clone()];
        elements.extend((0..depth).map(|_| group("g")));
        elements.push(leaf.clone());
        let footer =
            Struct::default().i32(1, 1).list(2, elements.len() as u64, elements).i64(3, 0).list(4, 0, Vec::new());
        forge::end(b"PAR1".to_vec(), footer.end())
    };
    damaged(decode(&nested(100_000), &small()), "nests deeper");
    assert_eq!(decode(&nested(100), &small()).expect("decoded").0, 0);
}

#[test]
fn pages_that_lie_are_refused() {
    let column = |physical, pages| Column { physical, codec: forge::UNCOMPRESSED, repetition: 0, rows: 2, pages };
    let honest = column(forge::INT64, vec![Page::data(2, forge::PLAIN, [1_i64, 2].map(i64::to_le_bytes).concat())]);
    assert_eq!(entities(&honest.file(), &small()), [json!({"a": 1}), json!({"a": 2})]);

    // A dictionary with two thousand million entries.
    let index = [&[1][..], &varint(2 << 1), &[0]].concat();
    let data = Page::data(2, forge::RLE_DICTIONARY, index);
    let dictionary = Page::dictionary(0x7fff_ffff, 5_i64.to_le_bytes().to_vec());
    damaged(decode(&column(forge::INT64, vec![dictionary, data.clone()]).file(), &small()), "more entries");
    let dictionary = Page::dictionary(1, 5_i64.to_le_bytes().to_vec());
    let found = entities(&column(forge::INT64, vec![dictionary, data]).file(), &small());
    assert_eq!(found, [json!({"a": 5}), json!({"a": 5})]);

    // A page that announces two gigabytes, and one that becomes more than it announces.
    let zeros = gzip(&vec![0; 40 << 20]);
    for (uncompressed, text) in [(0x7fff_ffff, MEMORY), (16, "does not have the uncompressed size")] {
        let page = Page { uncompressed: Some(uncompressed), ..Page::data(2, forge::PLAIN, zeros.clone()) };
        let file = Column { codec: forge::GZIP, ..column(forge::INT64, vec![page]) }.file();
        let error = decode(&file, &small()).expect_err("refused");
        assert!(error.to_string().contains(text), "{error}");
    }

    // Beyond the file, before its start, without an end.
    let mut cut = honest.file();
    cut.drain(4..12);
    assert!(decode(&cut, &small()).is_err());
    let huge = Page { uncompressed: Some(-1), ..honest.pages[0].clone() };
    damaged(decode(&column(forge::INT64, vec![huge]).file(), &small()), "header of a page");
}

#[test]
fn texts_in_delta_encodings_are_written_out_within_bounds() {
    let column = |encoding, values, bytes| Column {
        physical: forge::BYTE_ARRAY,
        codec: forge::UNCOMPRESSED,
        repetition: 0,
        rows: values,
        pages: vec![Page::data(values as i32, encoding, bytes)],
    };
    // A thousand million lengths of nothing: one block, one miniblock, no bits.
    let count = 1 << 30;
    let lengths = [varint(1 << 30), varint(1), varint(count), zigzag(0), zigzag(0), vec![0]].concat();
    let error = decode(&column(forge::DELTA_LENGTH, count as i64, lengths).file(), &small()).expect_err("refused");
    assert!(error.to_string().contains(MEMORY), "{error}");

    // Each text is the one before it and one more letter: ten kilobytes become fifty megabytes.
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
    assert_eq!(entities(&growing(3), &small()), ["7a", "7a7a", "7a7a7a"].map(|text| json!({"a": text})));
    too_large(decode(&growing(10_000), &small()), MEMORY);
    let cut = [steps(0, 1, 300), steps(1, 0, 300), vec![b'z'; 299]].concat();
    damaged(decode(&column(forge::DELTA, 300, cut).file(), &small()), "string lengths of a page");
}

#[test]
fn what_writers_make_is_read_as_before_in_every_encoding() {
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
            [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::GZIP(Default::default()), packed_codec()]
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
                let found = entities(&write(columns, builder.build()), &small());
                assert_eq!(found.len(), rows);
                for (row, entity) in found.iter().enumerate() {
                    assert_eq!(*entity, expected(row), "row {row}, {version:?}, {codec}, {encoding:?}");
                }
            }
        }
    }
}

fn packed_codec() -> Compression {
    Compression::ZSTD(ZstdLevel::default())
}

/// Two numbers in one page, compressed.
fn two_numbers(codec: i32, bytes: Vec<u8>) -> Column {
    let page = Page { uncompressed: Some(16), ..Page::data(2, forge::PLAIN, bytes) };
    Column { physical: forge::INT64, codec, repetition: 0, rows: 2, pages: vec![page] }
}

fn brotli(bytes: &[u8], log_of_window: i32) -> Vec<u8> {
    let mut packed = Vec::new();
    let params = brotli::enc::BrotliEncoderParams {
        lgwin: log_of_window,
        large_window: log_of_window > 24,
        ..Default::default()
    };
    brotli::BrotliCompress(&mut &bytes[..], &mut packed, &params).expect("memory takes all");
    packed
}

/// Blocks of LZ4 in the framing of Hadoop.
fn hadoop(blocks: &[&[u8]]) -> Vec<u8> {
    let framed = blocks.iter().map(|block| {
        let packed = lz4_flex::block::compress(block);
        [&(block.len() as u32).to_be_bytes()[..], &(packed.len() as u32).to_be_bytes(), &packed].concat()
    });
    framed.collect::<Vec<_>>().concat()
}

#[test]
fn pages_of_lz4_and_brotli_are_read_in_bounds() {
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
        let found = entities(&two_numbers(codec, packed.clone()).file(), &small());
        assert_eq!(found, [json!({"a": 1}), json!({"a": 2})], "codec {codec}");
        let cut = packed[..packed.len() - 1].to_vec();
        damaged(decode(&two_numbers(codec, cut).file(), &small()), "(column \"a\")");
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
        damaged(decode(&two_numbers(codec, packed).file(), &small()), "(column \"a\")");
    }
    damaged(
        decode(&two_numbers(forge::LZO, numbers).file(), &small()),
        "LZO compression is not supported; valid: none,",
    );
}

#[test]
fn the_window_of_brotli_counts_as_memory() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let file = |log_of_window| two_numbers(forge::BROTLI, brotli(&numbers, log_of_window)).file();
    let options = DecodeOptions { parquet_memory_bytes: 8 << 20, ..small() };
    assert_eq!(entities(&file(18), &options).len(), 2);
    too_large(decode(&file(24), &options), MEMORY);
    assert_eq!(entities(&file(24), &small()).len(), 2);
}

#[test]
fn column_chunks_without_values_are_not_read() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    // The offsets of pages mean nothing.
    let without_values = |rows| Column { rows, pages: Vec::new(), ..column.clone() };
    assert_eq!(entities(&without_values(0).file(), &small()), [] as [Value; 0]);
    let damage = "row group 0 of the Parquet file has 0 rows, but its footer says 2";
    damaged(decode(&without_values(2).file(), &small()), damage);
    // Pages with values of which the footer does not know.
    let mut hidden = column.clone();
    hidden.pages[0].values = 0;
    damaged(decode(&hidden.file(), &small()), damage);
}

#[test]
fn footer_fields_of_other_writers_are_ignored() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    // Dremio: no dictionary at 0, and a list in the field that became the length of a bloom filter.
    let file =
        column.file_with(|metadata| metadata.i64(11, 0).list(15, 1, vec![Struct::default().i32(1, 0)]), |chunk| chunk);
    assert_eq!(entities(&file, &small()), [json!({"a": 1}), json!({"a": 2})]);
    // fastparquet: lists of nothing without a type.
    let root = Struct::default().text(4, "root").i32(5, 1);
    let leaf = Struct::default().i32(1, forge::INT64).i32(3, 0).text(4, "a");
    let footer = Struct::default().i32(1, 1).list(2, 2, vec![root, leaf]).i64(3, 0).untyped_list(4).untyped_list(5);
    let file = forge::end(b"PAR1".to_vec(), footer.end());
    assert_eq!(decode(&file, &small()).expect("decoded").0, 0);
}

#[test]
fn encrypted_files_are_called_encrypted() {
    let numbers = [1_i64, 2].map(i64::to_le_bytes).concat();
    let column = two_numbers(forge::UNCOMPRESSED, numbers);
    let text = "column \"a\" is encrypted, but strata has no keys";
    damaged(decode(&column.file_with(|metadata| metadata, |chunk| chunk.of(8, Struct::default())), &small()), text);
    // With an encrypted footer the file begins and ends otherwise.
    let mut file = column.file();
    let end = file.len() - 4;
    file[..4].copy_from_slice(b"PARE");
    file[end..].copy_from_slice(b"PARE");
    damaged(decode(&file, &small()), "the Parquet file is encrypted, but strata has no keys");
}
