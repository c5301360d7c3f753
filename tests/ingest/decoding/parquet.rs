//! Parquet: nulls, progress, damaged files, and row groups.

use std::io;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Fields, Int64Type};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::{ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use strata_ingest::{DecodeOptions, DetectedFormat, SourceError, SourceInput, open_decoder};
use strata_types::source::{SourceCompression, SourceFormat};

use super::{check, decode, decode_and_detect};

pub(crate) fn parquet_bytes(batch: &RecordBatch, row_group_rows: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(row_group_rows)).build();
    let mut writer =
        ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).expect("failed to create writer");
    writer.write(batch).expect("failed to write");
    writer.close().expect("failed to write");
    bytes
}

pub(crate) fn mixed_batch() -> RecordBatch {
    let point = StructArray::new(
        Fields::from(vec![Field::new("x", DataType::Int64, true), Field::new("t", DataType::Utf8, true)]),
        vec![
            Arc::new(Int64Array::from(vec![Some(1), None, None])) as ArrayRef,
            Arc::new(StringArray::from(vec![Some("a\n\"b\""), None, Some("é")])) as ArrayRef,
        ],
        None,
    );
    let numbers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), Some(vec![]), None]);
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![i64::MAX, -1, 0])) as ArrayRef, false),
        ("name", Arc::new(StringArray::from(vec![Some("Ünï"), None, Some("")])) as ArrayRef, true),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])) as ArrayRef, true),
        ("value", Arc::new(Float64Array::from(vec![Some(1.5), Some(f64::NAN), None])) as ArrayRef, true),
        ("point", Arc::new(point) as ArrayRef, true),
        ("numbers", Arc::new(numbers) as ArrayRef, true),
        ("raw", Arc::new(BinaryArray::from(vec![Some(&b"\x01\xff"[..]), None, None])) as ArrayRef, true),
        ("at", Arc::new(TimestampMillisecondArray::from(vec![Some(0), None, None])) as ArrayRef, true),
    ])
    .expect("failed to build batch")
}

#[test]
fn parquet_nulls_are_explicit() {
    let expected = r#"
        {"id":9223372036854775807,"name":"Ünï","ok":true,"value":1.5,"point":{"x":1,"t":"a\n\"b\""},"numbers":[1,null],"raw":"01ff","at":"1970-01-01T00:00:00"}
        {"id":-1,"name":null,"ok":null,"value":null,"point":{"x":null,"t":null},"numbers":[],"raw":null,"at":null}
        {"id":0,"name":"","ok":false,"value":null,"point":{"x":null,"t":"é"},"numbers":null,"raw":null,"at":null}"#;
    let bytes = parquet_bytes(&mixed_batch(), 2);
    check("a.parquet", &bytes, expected);
    check("", &bytes, expected);
    check("a.parquet", parquet_bytes(&mixed_batch().slice(0, 0), 2), "");
}

#[test]
fn parquet_file_reports_progress() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let path = directory.path().join("a.parquet");
    std::fs::write(&path, parquet_bytes(&mixed_batch(), 1)).expect("failed to write file");
    let input = SourceInput::open_file(&path).expect("failed to open file");
    let progress = input.progress();
    let (text, detected) = decode_and_detect(input, &DecodeOptions::default());
    assert_eq!(text.lines().count(), 3, "{text}");
    assert_eq!(detected, Some(DetectedFormat { format: SourceFormat::Parquet, compression: SourceCompression::None }));
    assert_eq!(Some(progress.read_bytes()), progress.total_bytes());
}

#[test]
fn damaged_parquet_is_invalid_document() {
    let bytes = parquet_bytes(&mixed_batch(), 2);
    for cut in [3, 4, 12, bytes.len() / 2, bytes.len() - 1] {
        let input = SourceInput::from_reader(io::Cursor::new(bytes[..cut].to_vec())).with_name("a.parquet");
        let error = open_decoder(input, &DecodeOptions::default()).err().expect("opened a truncated file");
        assert!(matches!(error, SourceError::InvalidDocument { .. }), "{error:?}");
    }
    // Decoding a file with a flipped byte must not panic. It might succeed.
    for position in (0..bytes.len()).step_by(7) {
        let mut damaged = bytes.clone();
        damaged[position] ^= 0x55;
        decode(SourceInput::from_reader(io::Cursor::new(damaged)).with_name("a.parquet"), &DecodeOptions::default());
    }
}

#[test]
fn parquet_row_count_mismatch_is_invalid_document() {
    let bytes = parquet_bytes(&mixed_batch(), 2);
    let metadata =
        ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).expect("failed to parse footer");
    let first = metadata.row_group(0).clone();
    let with_rows = |group: usize, rows: i64, total: i64| {
        let mut groups = metadata.row_groups().to_vec();
        groups[group] =
            groups[group].clone().into_builder().set_num_rows(rows).build().expect("failed to build row group");
        (groups, total)
    };
    let changes = [
        // The footer's total matches the row groups, but the number of decoded rows differs.
        with_rows(0, 3, 4),
        with_rows(0, 1, 2),
        with_rows(1, 7, 9),
        with_rows(1, 0, 2),
        // Only the footer's total differs.
        (metadata.row_groups().to_vec(), 0),
        (metadata.row_groups().to_vec(), 4),
        (metadata.row_groups().to_vec(), -1),
        (Vec::new(), 3),
        (vec![first.clone()], 3),
        (vec![first.clone(), first], 3),
    ];
    for (groups, total) in changes {
        let rows: Vec<i64> = groups.iter().map(RowGroupMetaData::num_rows).collect();
        let changed = metadata.clone().into_builder().set_row_groups(groups).build();
        let mut bytes = bytes.clone();
        // The new footer is appended, so that all offsets remain valid.
        let start = bytes.len();
        ParquetMetaDataWriter::new(&mut bytes, &changed).finish().expect("failed to write");
        // The writer computes the total. The compact protocol stores it as a 64-bit integer between the schema and a
        // list.
        let number = |rows: i64| u8::try_from((rows << 1) ^ (rows >> 63)).expect("number out of range");
        let pattern = [0x16, number(rows.iter().sum()), 0x19];
        let offset = bytes[start..].windows(3).position(|bytes| bytes == pattern).expect("failed to find row count");
        bytes[start + offset + 1] = number(total);
        let input = SourceInput::from_reader(io::Cursor::new(bytes)).with_name("a.parquet");
        let text = decode(input, &DecodeOptions::default());
        assert!(text.lines().any(|line| line.starts_with("! ")), "{rows:?} of {total}: {text}");
    }
}

#[test]
fn empty_row_groups_are_skipped() {
    let bytes = parquet_bytes(&mixed_batch(), 2);
    let metadata =
        ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).expect("failed to parse footer");
    let mut columns = metadata.row_group(0).columns().to_vec();
    for column in &mut columns {
        // pyarrow writes a dictionary without entries, and no data page.
        let changed = column.clone().into_builder().set_num_values(0).set_data_page_offset(0);
        *column = changed.set_dictionary_page_offset(Some(4)).build().expect("failed to build column");
    }
    let empty = metadata.row_group(0).clone().into_builder().set_num_rows(0).set_column_metadata(columns);
    let empty = empty.build().expect("failed to build row group");
    let [first, second] = metadata.row_groups() else { panic!("two row groups") };
    let groups = [&empty, first, &empty, &empty, second, &empty].map(Clone::clone);
    let file_with = |groups: Vec<RowGroupMetaData>| {
        let mut bytes = bytes.clone();
        let metadata = metadata.clone().into_builder().set_row_groups(groups).build();
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().expect("failed to write");
        let input = SourceInput::from_reader(io::Cursor::new(bytes)).with_name("a.parquet");
        decode(input, &DecodeOptions::default())
    };
    assert_eq!(file_with(groups.to_vec()), file_with(metadata.row_groups().to_vec()));
    assert_eq!(file_with(vec![empty]), "");
}

#[test]
fn parquet_dictionary_values_use_little_memory() {
    // 5,000 rows with the same value of 200 kB are a file of some kilobytes and 1 GB of text. The rows are printed one
    // by one, and the limit of the source counts the text.
    let long = "x".repeat(200_000);
    let column = StringArray::from_iter_values((0..5_000).map(|_| long.as_str()));
    let batch = RecordBatch::try_from_iter([("a", Arc::new(column) as ArrayRef)]).expect("failed to build batch");
    let bytes = parquet_bytes(&batch, 10_000);
    assert!(bytes.len() < 1_000_000, "{}", bytes.len());
    let options = DecodeOptions { max_source_bytes: 2_000_000, ..DecodeOptions::default() };
    let input = SourceInput::from_reader(io::Cursor::new(bytes)).with_name("a.parquet");
    let text = decode(input, &options);
    assert_eq!(text.lines().count(), 10);
    assert!(text.ends_with("! the source is larger than sources.max_bytes (2000000)\n"));
}

/// A page can contain headers of other types. The checks once used the first header, so that this dictionary seemed to
/// be empty.
#[test]
fn parquet_page_uses_header_of_its_type() {
    // In the Thrift compact protocol, 0x15 is the next field, a 32-bit number in zigzag encoding; 0x1c and 0x2c are
    // structs one and two fields further on; 0x12 is the next field with the value false; 0 ends a struct.
    let fields = |numbers: &[u8]| -> Vec<u8> { numbers.iter().flat_map(|number| [0x15, number << 1]).collect() };
    let plain = 0;
    let rle = 3;
    let rle_dictionary = 8;
    let header_of_data = |values: u8| [vec![0x2c], fields(&[values, plain, rle, rle]), vec![0]].concat();
    let header_of_dictionary = |values: u8| [vec![0x2c], fields(&[values, plain]), vec![0]].concat();
    let entries = [7_i64, 8, 9].map(i64::to_le_bytes).concat();
    let dictionary = [fields(&[2, 24, 24]), header_of_data(0), header_of_dictionary(3), vec![0], entries].concat();
    // A version 2 page with three values in three rows, without nulls and levels.
    let header_of_v2 = [vec![0x1c], fields(&[3, 0, 3, rle_dictionary, 0, 0]), vec![0x12, 0]].concat();
    // Eight bit-packed indices of two bits each: 0, 1, 2, and padding.
    let indices = vec![2, 3, 0b10_01_00, 0];
    let headers = [header_of_data(1), header_of_dictionary(1), header_of_v2].concat();
    let data = [fields(&[3, 4, 4]), headers, vec![0], indices].concat();

    let column = Arc::new(Int64Array::from(vec![7, 8, 9])) as ArrayRef;
    let batch = RecordBatch::try_from_iter_with_nullable([("a", column, false)]).expect("failed to build batch");
    let written = Bytes::from(parquet_bytes(&batch, 10));
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&written).expect("failed to parse footer");
    let row_group = metadata.row_group(0).clone();
    let chunk = row_group.column(0).clone().into_builder().set_dictionary_page_offset(Some(4));
    let chunk = chunk.set_data_page_offset(4 + dictionary.len() as i64);
    let chunk = chunk
        .set_total_compressed_size((dictionary.len() + data.len()) as i64)
        .build()
        .expect("failed to build column");
    let row_group =
        row_group.into_builder().set_column_metadata(vec![chunk]).build().expect("failed to build row group");
    let metadata = metadata.into_builder().set_row_groups(vec![row_group]).build();
    let mut bytes = [b"PAR1".to_vec(), dictionary, data].concat();
    ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().expect("failed to write");
    check("a.parquet", bytes, "{\"a\":7}\n{\"a\":8}\n{\"a\":9}");
}

#[test]
fn parquet_field_id_overflow_is_malformed() {
    // The ID of the first field is the maximum number. The next field exceeds it.
    let mut footer = vec![0x05, 0xfe];
    footer.extend([0xff; 8]);
    footer.extend([0x01, 0x00, 0x15, 0x00, 0x00]);
    let length = (footer.len() as u32).to_le_bytes().to_vec();
    let bytes = [b"PAR1".to_vec(), footer, length, b"PAR1".to_vec()].concat();
    check("a.parquet", bytes, "! the Parquet file is damaged: its footer is malformed");
}
