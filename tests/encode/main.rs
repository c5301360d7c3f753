//! Tests of `strata_encode`: each rule as text in, text out, and every format against the naive reference over hostile
//! entities.

mod batches;
mod bounds;
mod compress;
mod types;

use std::sync::Arc;

use arrow::datatypes::DataType;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::LogicalType;
use proptest::collection::vec;
use proptest::prelude::*;
use strata_encode::{
    self as encode, CellBatch, CellBatchFactory, ColumnEncoder, EncodedSizeLimit, EntityTooLarge, ListContents,
    ListElement, ParquetFileStream,
};
use strata_json::{TableColumnNames, TableColumnNamesBuilder, TooManyColumnsError};
use strata_reference as reference;
use strata_reference::value::set;
use strata_reference::{Value, formats, hostile, rules};
use strata_types::read_request::{ReadRequest, ResponseFormat};

const NO_LIMIT: usize = usize::MAX;

/// Converts entities in any spelling to canonical documents.
fn documents(entities: &[&str]) -> Vec<String> {
    let canonical = |entity: &&str| {
        let mut out = Vec::new();
        strata_json::canonicalize(entity.as_bytes(), &mut out).expect("valid");
        String::from_utf8(out).expect("UTF-8")
    };
    entities.iter().map(canonical).collect()
}

fn columns_of(documents: &[String]) -> TableColumnNames {
    let mut builder = TableColumnNamesBuilder::new(NO_LIMIT);
    documents.iter().for_each(|document| builder.add_entity(document.as_bytes()).expect("no limit"));
    builder.finish()
}

/// Encodes the body of a response whose columns are the columns of the entities.
fn body(format: ResponseFormat, flatten: bool, documents: &[String]) -> String {
    body_with(format, flatten, documents, columns_of(documents))
}

fn body_with(format: ResponseFormat, flatten: bool, documents: &[String], columns: TableColumnNames) -> String {
    let request = ReadRequest { format, flatten, pretty: false, ..ReadRequest::default() };
    let size_limit = EncodedSizeLimit::new(1 << 20);
    let encoder = encode::new_text_encoder(&request, Some(Arc::new(columns)), size_limit).expect("a text format");
    let mut out = Vec::new();
    let contents = ListContents::from_entity_count(documents.len() as u64);
    encoder.write_header(contents, &mut out);
    for (ordinal, document) in (0..).zip(documents) {
        encoder.write_entity(document.as_bytes(), ListElement::from_ordinal(ordinal), &mut out).expect("not too large");
    }
    encoder.write_footer(contents, &mut out);
    String::from_utf8(out).expect("UTF-8")
}

#[track_caller]
fn check(format: ResponseFormat, entities: &[&str], expected: &str) {
    assert_eq!(body(format, false, &documents(entities)), expected);
}

#[track_caller]
fn check_xml(entities: &[&str], expected: &str) {
    let expected = format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset>{expected}</dataset>");
    check(ResponseFormat::Xml, entities, &expected);
    well_formed(&expected).expect("well-formed");
}

// --- json, jsonl ---

#[test]
fn flatten_applies_to_json_and_jsonl() {
    let entities = documents(&[r#"{"a":{"b":1},"c":[{"d":"x"},{}],"e":[1,"y"]}"#, "{}"]);
    let flattened = r#"{"a.b":1,"c_0_d":"x","e":"[1,\"y\"]"}"#;
    assert_eq!(body(ResponseFormat::Json, true, &entities), format!("[{flattened},{{}}]"));
    assert_eq!(body(ResponseFormat::Jsonl, true, &entities), format!("{flattened}\n{{}}\n"));
    assert_eq!(body(ResponseFormat::Jsonl, false, &entities), format!("{}\n{{}}\n", entities[0]));
}

#[test]
fn pretty_json_is_flattened_too() {
    let request = ReadRequest { flatten: true, ..ReadRequest::default() };
    let encoder = encode::new_text_encoder(&request, None, EncodedSizeLimit::new(1 << 20)).expect("a text format");
    let mut out = Vec::new();
    encoder.write_header(ListContents::NonEmpty, &mut out);
    encoder.write_entity(br#"{"a":{"b":[]}}"#, ListElement::First, &mut out).expect("not too large");
    encoder.write_footer(ListContents::NonEmpty, &mut out);
    assert_eq!(String::from_utf8(out).expect("UTF-8"), "[\n  {\n    \"a.b\": \"[]\"\n  }\n]");
}

#[test]
fn parquet_has_no_text_encoder() {
    let request = ReadRequest { format: ResponseFormat::Parquet, ..ReadRequest::default() };
    assert!(encode::new_text_encoder(&request, None, EncodedSizeLimit::new(1 << 20)).is_none());
}

// --- size limit ---

/// Returns the size of an encoded entity, or an error if it exceeds a MiB and four times its JSON.
fn size_in(request: &ReadRequest, entity: &str) -> Result<usize, EntityTooLarge> {
    let encoder = encode::new_text_encoder(request, None, EncodedSizeLimit::new(1 << 20)).expect("a text format");
    let mut out = Vec::new();
    let written = encoder.write_entity(entity.as_bytes(), ListElement::First, &mut out);
    // No oversized output is built: at most the limit, one more tag or name, and spare capacity.
    assert!(out.len() <= (1 << 20) + 6 * entity.len() + (64 << 10), "{} bytes", out.len());
    written.map(|()| out.len())
}

#[test]
fn encoded_entity_over_size_limit_is_rejected() {
    let plain = ReadRequest { pretty: false, ..ReadRequest::default() };
    let pretty = ReadRequest::default();
    let flattened = ReadRequest { flatten: true, ..plain.clone() };
    let lines = ReadRequest { format: ResponseFormat::Jsonl, ..plain.clone() };
    let xml = ReadRequest { format: ResponseFormat::Xml, ..plain.clone() };
    let refused = |entity: &str| Err(EntityTooLarge { limit_bytes: (1 << 20).max(4 * entity.len()) });

    // Each of 20,000 values is indented by 254 spaces.
    let deep = format!("{}[{}]{}", "{\"a\":".repeat(126), vec!["0"; 20_000].join(","), "}".repeat(126));
    assert_eq!(size_in(&pretty, &deep), refused(&deep));
    assert_eq!(size_in(&plain, &deep), Ok(deep.len()));
    assert_eq!(size_in(&lines, &deep), Ok(deep.len() + 1));

    // Each of 5,000 elements has a start tag of 10,000 letters, and an end tag.
    let tagged = format!("{{\"{}\":[{}]}}", "t".repeat(10_000), vec!["0"; 5_000].join(","));
    assert_eq!(size_in(&xml, &tagged), refused(&tagged));
    assert_eq!(size_in(&flattened, &tagged).map(|size| size < 2 * tagged.len()), Ok(true));

    // Each of 5,000 flattened names consists of 10,000 letters and a number.
    let members: Vec<String> = (0..5_000).map(|number| format!("\"{number}\":0")).collect();
    let named = format!("{{\"{}\":{{{}}}}}", "n".repeat(10_000), members.join(","));
    assert_eq!(size_in(&flattened, &named), refused(&named));
    assert_eq!(size_in(&ReadRequest { flatten: true, ..xml.clone() }, &named), refused(&named));
    assert_eq!(size_in(&xml, &named).map(|size| size < 4 * named.len()), Ok(true));

    // A large entity may always grow to four times its JSON.
    let large = format!("{{\"a\":[{}]}}", vec!["\"text\""; 300_000].join(","));
    assert!(size_in(&pretty, &large).is_ok_and(|size| size > 2 << 20));
}

/// Names that were cached for a rejected entity are not used for the next one.
#[test]
fn encoder_after_rejected_entity_is_reusable() {
    let request = ReadRequest { flatten: true, pretty: false, ..ReadRequest::default() };
    let encoder = encode::new_text_encoder(&request, None, EncodedSizeLimit::new(1 << 10)).expect("a text format");
    let members: Vec<String> = (0..500).map(|number| format!("\"{number}\":0")).collect();
    let named = format!("{{\"{}\":{{{}}}}}", "n".repeat(200), members.join(","));
    encoder.write_entity(named.as_bytes(), ListElement::First, &mut Vec::new()).expect_err("too large");
    for entity in [r#"{"n":{"0":1,"b":2}}"#.to_owned(), format!("{{\"{}\":{{\"0\":1}}}}", "n".repeat(200))] {
        let mut out = Vec::new();
        encoder.write_entity(entity.as_bytes(), ListElement::First, &mut out).expect("not too large");
        let expected = Value::parse_entity(&entity).map(|entity| rules::flatten(&entity).write()).expect("an entity");
        assert_eq!(String::from_utf8(out), Ok(expected));
    }
}

// --- columns ---

#[test]
fn columns_are_ordered_by_first_appearance() {
    let documents =
        documents(&[r#"{"b":1,"a":{"y":1,"x":2}}"#, r#"{"a":{"z":1,"x":2},"c":[{"k":1},{"k":2,"l":3}],"b":0}"#]);
    assert_eq!(columns_of(&documents).names(), ["b", "a.y", "a.x", "a.z", "c_0_k", "c_1_k", "c_1_l"]);
}

#[test]
fn equal_flattened_names_share_a_column() {
    let documents = documents(&[r#"{"a":{"b":1},"a.b":2,"x_0_y":3,"x":[{"y":4}]}"#]);
    let columns = columns_of(&documents);
    assert_eq!(columns.names(), ["a.b", "x_0_y"]);
    assert_eq!(columns.position("x_0_y"), Some(1));
    assert_eq!(columns.position("y"), None);
    assert_eq!(body(ResponseFormat::Csv, false, &documents), "a.b,x_0_y\n2,4\n");
}

#[test]
fn columns_without_keys_are_only_source() {
    assert_eq!(columns_of(&documents(&["{}", r#"{"a":{"b":{}}}"#])).names(), ["_source"]);
    assert_eq!(TableColumnNames::default().names(), ["_source"]);
    assert_eq!(TableColumnNames::default().len(), 1);
}

#[test]
fn columns_are_limited_by_the_union() {
    let mut builder = TableColumnNamesBuilder::new(2);
    builder.add_entity(br#"{"a":1,"b":{"c":2}}"#).expect("two");
    builder.add_entity(br#"{"b":{"c":2},"b.c":1}"#).expect("the same two");
    assert_eq!(builder.add_entity(br#"{"d":1}"#), Err(TooManyColumnsError { limit: 2 }));
    let text = TooManyColumnsError { limit: 2 }.to_string();
    assert!(text.contains("2 columns") && text.contains("keep_field"), "{text}");

    let part = |document: &[u8]| {
        let mut part = TableColumnNamesBuilder::new(2);
        part.add_entity(document).expect("at most two");
        part
    };
    let mut first = part(br#"{"a":1}"#);
    first.merge(part(br#"{"b":1,"a":1}"#)).expect("two");
    assert_eq!(first.merge(part(br#"{"c":1}"#)), Err(TooManyColumnsError { limit: 2 }));
}

#[test]
fn column_names_over_memory_limit_are_rejected() {
    let key = "k".repeat(1 << 20);
    let elements = vec![r#"{"a":1}"#; 100].join(",");
    let mut builder = TableColumnNamesBuilder::new(NO_LIMIT);
    builder.add_entity(format!("{{\"{key}\":[{elements}]}}").as_bytes()).expect_err("100 MiB of names");
}

#[test]
fn column_names_survive_serialization() {
    let columns = TableColumnNames::from(vec!["b".to_owned(), "a\"\n".to_owned()]);
    let text = serde_json::to_string(&columns).expect("serializable");
    assert_eq!(text, r#"["b","a\"\n"]"#);
    assert_eq!(serde_json::from_str::<TableColumnNames>(&text).expect("valid"), columns);
}

// --- csv, tsv ---

#[test]
fn cells_are_quoted_only_where_needed() {
    let entities = [r#"{"a":" x ","b":"a,b","c":"say \"hi\"","d":"l\nm","e":"r\rs","f":"t\tu","g":"'; \\ \u0001"}"#];
    let plain = "'; \\ \u{1}";
    let csv = format!("a,b,c,d,e,f,g\n x ,\"a,b\",\"say \"\"hi\"\"\",\"l\nm\",\"r\rs\",t\tu,{plain}\n");
    check(ResponseFormat::Csv, &entities, &csv);
    let tsv = format!("a\tb\tc\td\te\tf\tg\n x \ta,b\t\"say \"\"hi\"\"\"\t\"l\nm\"\t\"r\rs\"\t\"t\tu\"\t{plain}\n");
    check(ResponseFormat::Tsv, &entities, &tsv);
}

#[test]
fn csv_scalars_keep_their_text() {
    let entities =
        [r#"{"n":1.50,"i":123456789012345678901234567890,"t":true,"f":false,"z":null,"e":"","o":{},"s":"Ä😀"}"#];
    check(ResponseFormat::Csv, &entities, "n,i,t,f,z,e,s\n1.50,123456789012345678901234567890,true,false,,,Ä😀\n");
}

#[test]
fn csv_arrays_are_compact_json() {
    let entities = [r#"{"a":[ 1 ],"b":[1, "x\n\""],"c":[],"d":[{"k":null},1]}"#];
    check(ResponseFormat::Csv, &entities, "a,b,c,d\n[1],\"[1,\"\"x\\n\\\"\"\"\"]\",[],\"[{\"\"k\"\":null},1]\"\n");
    check(ResponseFormat::Tsv, &[r#"{"a":[1,2]}"#], "a\n[1,2]\n");
}

#[test]
fn single_empty_cell_is_quoted() {
    check(ResponseFormat::Csv, &[r#"{"a":"x"}"#, r#"{"a":""}"#, r#"{"a":null}"#, "{}"], "a\nx\n\"\"\n\"\"\n\"\"\n");
    check(ResponseFormat::Tsv, &[r#"{"":null}"#], "\"\"\n\"\"\n");
    check(ResponseFormat::Csv, &[r#"{"":1,"b":""}"#, "{}"], ",b\n1,\n,\n");
    check(ResponseFormat::Csv, &["{}"], "_source\n\"\"\n");
}

#[test]
fn csv_header_names_are_quoted() {
    check(ResponseFormat::Csv, &[r#"{"a,b":1,"c\"":2,"d\te":3}"#], "\"a,b\",\"c\"\"\",d\te\n1,2,3\n");
}

#[test]
fn csv_without_entities_has_a_header() {
    let columns = TableColumnNames::from(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(body_with(ResponseFormat::Csv, false, &[], columns.clone()), "a,b\n");
    assert_eq!(body_with(ResponseFormat::Tsv, false, &[], columns), "a\tb\n");
}

#[test]
fn csv_fields_without_column_are_skipped() {
    let columns = TableColumnNames::from(vec!["b".to_owned()]);
    assert_eq!(body_with(ResponseFormat::Csv, false, &documents(&[r#"{"a":1,"b":2,"c":3}"#]), columns), "b\n2\n");
}

// --- xml ---

#[test]
fn xml_scalars_are_escaped_text() {
    check_xml(
        &[r#"{"s":"a<b>&c \"d\" 'e' ]]>","n":1.0,"t":true,"f":false}"#, "{}"],
        "<entity><s>a&lt;b&gt;&amp;c \"d\" 'e' ]]&gt;</s><n>1.0</n><t>true</t><f>false</f></entity><entity/>",
    );
}

#[test]
fn xml_empty_values_are_empty_elements() {
    check_xml(
        &[r#"{"null":null,"empty":"","object":{},"array":[],"elements":[null,""]}"#],
        "<entity><null/><empty/><object/><arrays/><elements><element/><element/></elements></entity>",
    );
    check(ResponseFormat::Xml, &[], "<?xml version=\"1.0\" encoding=\"UTF-8\"?><dataset/>");
}

#[test]
fn xml_forbidden_characters_are_replaced() {
    check_xml(
        &[r#"{"a":"\u0000\u0008\t\n\r\u001f\u007f\u0085","b":"\uffff\ufffe\ufffd\uffee😀"}"#],
        "<entity><a>\u{fffd}\u{fffd}\t\n&#13;\u{fffd}\u{7f}\u{85}</a><b>\u{fffd}\u{fffd}\u{fffd}\u{ffee}😀</b></entity>",
    );
}

#[test]
fn xml_names_become_valid_tags() {
    let cases = [
        ("price", "price"),
        ("_source", "_source"),
        ("a b", "a_b"),
        ("a-b.c:d", "a_b_c_d"),
        ("1st", "_1st"),
        ("", "_"),
        ("-", "_"),
        ("größe", "größe"),
        ("名前", "名前"),
        ("a😀b", "a_b"),
        ("𝐱", "_"),
        ("٣", "_٣"),
        ("x²", "x_"),
        ("<&>", "___"),
        // Letters that older XML parsers reject in names.
        ("ꙮ", "_"),
    ];
    for (name, tag) in cases {
        check_xml(&[&format!("{{\"{name}\":1}}")], &format!("<entity><{tag}>1</{tag}></entity>"));
    }
}

#[test]
fn xml_tags_beyond_cache_are_the_same() {
    let long = "n".repeat(200);
    let fields = |numbers: std::ops::Range<usize>| {
        let field = |number| format!(r#""f{number}":{number},"o{number}":{{"{long}":null}},"#);
        let fields: String = numbers.map(field).collect();
        format!(r#"{{{fields}"leaves":[1,[2],{{"child":[{{}}]}}],"{long}":[{{"leaf":3}}]}}"#)
    };
    // One entity has more names than the cache can contain.
    let entities = [fields(0..2), fields(0..5_000), fields(4_000..4_010), fields(0..2)];
    let values = entities.each_ref().map(|entity| Value::parse_entity(entity).expect("an entity"));
    assert_eq!(body(ResponseFormat::Xml, false, &entities), formats::xml(&values));
}

#[test]
fn xml_arrays_have_plural_tags() {
    let cases = [
        ("tag", "tags", "tag"),
        ("tags", "tags", "tag"),
        ("category", "categories", "category"),
        ("children", "children", "child"),
        ("sheep", "sheeps", "sheep"),
        ("", "_s", "_"),
        ("!", "_s", "_"),
        ("2 men", "_2_men", "_2_man"),
    ];
    for (name, array, element) in cases {
        let expected = format!("<entity><{array}><{element}>x</{element}></{array}></entity>");
        check_xml(&[&format!("{{\"{name}\":[\"x\"]}}")], &expected);
    }
}

#[test]
fn xml_nested_arrays_are_items() {
    check_xml(
        &[r#"{"m":[[1,2],[3],[],[[4]]],"deep":{"boxes":[{"k":[5]},{}]}}"#],
        "<entity><ms><m><item>1</item><item>2</item></m><m><item>3</item></m><m/><m><item><item>4</item></item></m></ms>\
         <deep><boxes><box><ks><k>5</k></ks></box><box/></boxes></deep></entity>",
    );
}

#[test]
fn xml_with_flatten_is_flat() {
    let entities = documents(&[r#"{"a":{"b":1},"c":[{"d":"x"}],"e":[1,"<"]}"#]);
    let xml = body(ResponseFormat::Xml, true, &entities);
    assert!(xml.contains("<entity><a_b>1</a_b><c_0_d>x</c_0_d><e>[1,\"&lt;\"]</e></entity>"), "{xml}");
}

// --- parquet ---

/// The maximum bytes of a row group.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Encodes a file from parts with this many entities and row groups with this many bytes of cells.
fn parquet_file(documents: &[String], columns: &TableColumnNames, part_rows: usize, row_group_bytes: usize) -> Bytes {
    let mut stream =
        ParquetFileStream::try_new(columns, None, row_group_bytes, usize::MAX).expect("columns that Parquet can hold");
    let batches = CellBatchFactory::new(Arc::new(columns.clone()), None);
    let mut file = Vec::new();
    for part in documents.chunks(part_rows) {
        let mut builder = batches.new_builder();
        part.iter().for_each(|document| builder.add_entity(document.as_bytes()));
        assert_eq!(builder.rows, part.len());
        file.extend_from_slice(&written_batch(&mut stream, builder.finish()));
    }
    written_row_group(&mut stream);
    file.extend_from_slice(&stream.finish_file().expect("a file"));
    file.into()
}

/// Returns the bytes that are ready after a batch.
fn written_batch(stream: &mut ParquetFileStream, batch: CellBatch) -> Bytes {
    stream.push(batch);
    if stream.is_row_group_full() {
        written_row_group(stream);
    }
    stream.take_written_bytes().expect("bytes")
}

fn written_row_group(stream: &mut ParquetFileStream) {
    let Some(row_group) = stream.take_row_group() else { return };
    let mut encoder = ColumnEncoder::try_new().expect("an encoder");
    let mut encode = |column| row_group.encode_column(column, &mut encoder).expect("encoded");
    stream.write_row_group((0..row_group.column_count()).map(&mut encode).collect()).expect("written");
}

/// Returns the column names of a file and its cells, row by row.
fn read_back(file: Bytes) -> (Vec<String>, Vec<Vec<Option<String>>>) {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file.clone()).expect("a Parquet file");
    for field in builder.schema().fields() {
        assert_eq!((field.data_type(), field.is_nullable()), (&DataType::Utf8, true));
    }
    for column in builder.parquet_schema().columns() {
        assert_eq!(column.logical_type_ref(), Some(&LogicalType::String));
    }
    reference::parquet::cells(&file)
}

#[test]
fn parquet_cells_are_text_or_null() {
    let documents = documents(&[
        r#"{"s":"x\n","n":1.50,"b":true,"z":null,"e":"","a":[1,"y"],"o":{"p":false}}"#,
        "{}",
        r#"{"o.p":"first","o":{"p":"last"}}"#,
    ]);
    let columns = columns_of(&documents);
    let (names, rows) = read_back(parquet_file(&documents, &columns, 2, ROW_GROUP_BYTES));
    assert_eq!(names, ["s", "n", "b", "z", "e", "a", "o.p"]);
    let text = |text: &str| Some(text.to_owned());
    let first = [text("x\n"), text("1.50"), text("true"), None, text(""), text("[1,\"y\"]"), text("false")];
    let last = [None, None, None, None, None, None, text("last")];
    assert_eq!(rows, [first.to_vec(), vec![None; 7], last.to_vec()]);
}

#[test]
fn later_null_of_same_name_wins() {
    let documents = documents(&[r#"{"o.p":"first","o":{"p":null}}"#]);
    assert_eq!(read_back(parquet_file(&documents, &columns_of(&documents), 1, ROW_GROUP_BYTES)).1, [[None]]);
    assert_eq!(body(ResponseFormat::Csv, false, &documents), "o.p\n\"\"\n");
}

#[test]
fn parquet_without_entities_has_the_columns() {
    let columns = TableColumnNames::from(vec!["a".to_owned(), String::new()]);
    let (names, rows) = read_back(parquet_file(&[], &columns, 1, ROW_GROUP_BYTES));
    assert_eq!((names, rows), (vec!["a".to_owned(), String::new()], Vec::new()));
}

#[test]
fn parquet_bytes_are_ready_when_row_groups_fill() {
    // 20 MiB for each part. Dictionary and compression leave about half of the bytes.
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{:08x}", state >> 32)
    };
    let columns = TableColumnNames::from(vec!["a".to_owned(), "b".to_owned()]);
    let mut stream = ParquetFileStream::try_new(&columns, None, ROW_GROUP_BYTES, usize::MAX).expect("a file");
    let columns = Arc::new(columns);
    let mut early = 0;
    for _ in 0..4 {
        let mut builder = CellBatchFactory::new(columns.clone(), None).new_builder();
        while builder.size_bytes() < 20 << 20 {
            let text: String = (0..1024).map(|_| noise()).collect();
            builder.add_entity(format!("{{\"a\":\"{text}\"}}").as_bytes());
        }
        early += written_batch(&mut stream, builder.finish()).len();
    }
    written_row_group(&mut stream);
    let last = stream.finish_file().expect("a file").len();
    assert!(early > 15 << 20 && last > 0, "{early} bytes before the end, then {last}");
}

/// Columns of every kind: with several pages, with and without a dictionary, with few cells, with a single value.
fn columns_of_every_kind() -> Vec<String> {
    let row = |row: u32| {
        let mut fields = vec![
            format!("\"long\":\"{row} {}\"", "ü".repeat(150)),
            format!("\"different\":\"{}\"", row.wrapping_mul(0x9e37_79b9)),
            format!("\"few\":\"value {}\"", row % 300),
            "\"same\":\"always\"".to_owned(),
            format!("\"half\":{}", if row.is_multiple_of(3) { "null".to_owned() } else { (row % 70).to_string() }),
        ];
        if row % 1_000 < 2 {
            fields.push(format!("\"rare\":\"{}\"", if row.is_multiple_of(2) { "" } else { "😀" }));
        }
        if row == 4_321 {
            fields.push(format!("\"large\":\"{}\"", "x".repeat(3 << 20)));
        }
        format!("{{{}}}", fields.join(","))
    };
    (0..9_000).map(row).collect()
}

#[test]
fn parquet_pages_of_every_kind_read_back() {
    let documents = columns_of_every_kind();
    let entities: Vec<Value> = documents.iter().map(|text| Value::parse(text).expect("JSON")).collect();
    let columns = formats::columns(&entities);
    let file = parquet_file(&documents, &TableColumnNames::from(columns.clone()), 700, ROW_GROUP_BYTES);
    let (names, rows) = read_back(file.clone());
    assert_eq!(names, columns);
    assert!(rows == formats::cells(&entities, &columns), "other cells");

    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    let row_group = reader.metadata().row_group(0);
    for (number, name) in names.iter().enumerate() {
        let column = row_group.column(number);
        let has_dictionary = column.dictionary_page_offset().is_some();
        assert_eq!(has_dictionary, ["few", "same", "half", "rare"].contains(&name.as_str()), "{name}");
        let texts = || rows.iter().filter_map(|row| row[number].as_deref());
        let statistics = column.statistics().expect("statistics");
        assert_eq!(statistics.null_count_opt(), Some((rows.len() - texts().count()) as u64), "{name}");
        let (min_delta, most) =
            (statistics.min_bytes_opt().expect("a minimum"), statistics.max_bytes_opt().expect("one"));
        assert!(texts().all(|text| (min_delta..=most).contains(&text.as_bytes())), "{name}");
        assert!(min_delta.len() <= 64 && most.len() <= 64, "{name}");
        let exact = texts().min().map(str::as_bytes) == Some(min_delta);
        assert_eq!(statistics.min_is_exact(), exact, "{name}");
        assert_eq!(statistics.max_is_exact(), texts().max().map(str::as_bytes) == Some(most), "{name}");
    }
}

#[test]
fn parquet_codes_and_levels_of_any_size_read_back() {
    for bits in 0..16 {
        let distinct = (1_u32 << bits) + 1;
        let percent = 97 * bits / 15;
        let row = |row: u32| {
            let is_null = row.wrapping_mul(0x9e37_79b9) % 100 < percent;
            let other = if is_null { "null".to_owned() } else { format!("\"{row}\"") };
            format!("{{\"code\":\"value {}\",\"other\":{other}}}", row % distinct)
        };
        let documents: Vec<String> = (0..2 * distinct + 300).map(row).collect();
        let entities: Vec<Value> = documents.iter().map(|text| Value::parse(text).expect("JSON")).collect();
        let columns = formats::columns(&entities);
        let file = parquet_file(&documents, &TableColumnNames::from(columns.clone()), 10_000, ROW_GROUP_BYTES);
        assert!(read_back(file).1 == formats::cells(&entities, &columns), "{bits} bits");
    }
}

/// Ranges of a file may be encoded by several processes with different numbers of threads.
#[test]
fn parquet_bytes_do_not_depend_on_encoders() {
    let documents = columns_of_every_kind();
    let columns = columns_of(&documents);
    let file = |one_encoder: bool| {
        let mut stream = ParquetFileStream::try_new(&columns, None, ROW_GROUP_BYTES, usize::MAX).expect("a file");
        for part in documents.chunks(1_000) {
            let mut builder = CellBatchFactory::new(Arc::new(columns.clone()), None).new_builder();
            part.iter().for_each(|document| builder.add_entity(document.as_bytes()));
            stream.push(builder.finish());
        }
        let row_group = stream.take_row_group().expect("rows");
        let mut order: Vec<usize> = row_group.columns_by_size_desc();
        let largest: Vec<&str> = order[..2].iter().map(|&column| columns.names()[column].as_str()).collect();
        assert_eq!(largest, ["large", "long"]);
        if !one_encoder {
            order.sort_unstable();
        }
        let mut encoder = ColumnEncoder::try_new().expect("an encoder");
        let mut chunks = Vec::new();
        for column in order {
            if !one_encoder {
                encoder = ColumnEncoder::try_new().expect("an encoder");
            }
            chunks.push((column, row_group.encode_column(column, &mut encoder).expect("encoded")));
        }
        chunks.sort_unstable_by_key(|(column, _)| *column);
        let chunks = chunks.into_iter().map(|(_, chunk)| chunk).collect();
        stream.write_row_group(chunks).expect("written");
        stream.finish_file().expect("a file")
    };
    let expected = parquet_file(&documents, &columns, 1_000, ROW_GROUP_BYTES);
    assert!(file(true) == expected && file(false) == expected, "other bytes");
}

/// The bytes of a row group are limited for any number of columns and rows. Missing cells need no memory.
#[test]
fn parquet_row_groups_are_limited_by_bytes() {
    let documents: Vec<String> = (0..3_000).map(|row| format!("{{\"c{}\":\"{row}\"}}", row % 300)).collect();
    let columns = columns_of(&documents);
    assert_eq!(columns.len(), 300);
    let row_groups = |most_bytes| {
        let file = parquet_file(&documents, &columns, 50, most_bytes);
        let (names, rows) = read_back(file.clone());
        assert_eq!((names.as_slice(), rows.len()), (columns.names(), 3_000));
        assert_eq!(rows[2_999][299].as_deref(), Some("2999"));
        assert_eq!(rows.iter().flatten().flatten().count(), 3_000);
        ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file").metadata().num_row_groups()
    };
    assert_eq!(row_groups(ROW_GROUP_BYTES), 1);
    // 900,000 cells, of which 3,000 have values.
    assert!((2..30).contains(&row_groups(24 << 10)), "{}", row_groups(24 << 10));
}

#[test]
fn parquet_of_many_columns_has_one_row_group() {
    let documents: Vec<String> = (0..40)
        .map(|row| {
            let members: Vec<String> = (0..100).map(|k| format!("\"c{}\":{row}", row * 50 + k)).collect();
            format!("{{{}}}", members.join(","))
        })
        .collect();
    let columns = columns_of(&documents);
    assert_eq!(columns.len(), 2050);
    let file = parquet_file(&documents, &columns, 1, ROW_GROUP_BYTES);
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a Parquet file");
    assert_eq!(builder.metadata().num_row_groups(), 1);
}

// --- against the reference ---

/// The entities of a response. Half of them are variants of one entity, with members left out and in another order,
/// like real entities.
fn entities() -> impl Strategy<Value = Vec<Value>> {
    let alike =
        (hostile::entity(), vec((any::<u64>(), any::<prop::sample::Index>()), 0..6)).prop_map(|(entity, changes)| {
            let Value::Object(members) = &entity else { unreachable!("an entity is an object") };
            let change = |(kept, turn): &(u64, prop::sample::Index)| {
                let mut members: Vec<_> = members
                    .iter()
                    .enumerate()
                    .filter(|(n, _)| kept >> (n % 64) & 1 == 1)
                    .map(|(_, m)| m.clone())
                    .collect();
                if !members.is_empty() {
                    let by = turn.index(members.len());
                    members.rotate_left(by);
                }
                Value::Object(members)
            };
            std::iter::once(entity.clone()).chain(changes.iter().map(change)).collect::<Vec<_>>()
        });
    (vec(hostile::entity(), 0..5), alike, any::<bool>()).prop_map(|(mut some, alike, first)| {
        if first {
            some.splice(0..0, alike);
        } else {
            some.extend(alike);
        }
        some
    })
}

/// Entities with many fields, some of them left out, in any order.
fn wide_entities() -> impl Strategy<Value = Vec<Value>> {
    let entity = vec(0_u32..60, 0..60).prop_map(|fields| {
        let mut members = Vec::new();
        for (place, field) in fields.into_iter().enumerate() {
            let object = |key: &str| Value::Object(vec![(key.to_owned(), Value::Number(place.to_string()))]);
            let value = match field % 4 {
                0 => object(&format!("k{}", place % 3)),
                1 => Value::Array((0..place % 3).map(|element| object(&format!("k{element}"))).collect()),
                _ => Value::String(place.to_string()),
            };
            set(&mut members, format!("f{field}"), value);
        }
        Value::Object(members)
    });
    vec(entity, 0..8)
}

fn written(entities: &[Value]) -> Vec<String> {
    entities.iter().map(Value::write).collect()
}

proptest! {
    #[test]
    fn columns_match_reference(entities in entities(), at in any::<prop::sample::Index>(), limit in 1_usize..40) {
        let documents = written(&entities);
        let expected = formats::columns(&entities);
        let columns = columns_of(&documents);
        prop_assert_eq!(columns.names(), expected.as_slice());
        for (position, name) in expected.iter().enumerate() {
            prop_assert_eq!(columns.position(name), Some(position));
        }
        // In two parts, with a limit.
        let find = |documents: &[String]| {
            let mut builder = TableColumnNamesBuilder::new(limit);
            documents.iter().try_for_each(|document| builder.add_entity(document.as_bytes())).map(|()| builder)
        };
        let (before, after) = documents.split_at(at.index(documents.len() + 1));
        let merged = find(before).and_then(|mut first| {
            first.merge(find(after)?)?;
            Ok(first.finish())
        });
        match merged {
            Ok(merged) => {
                prop_assert!(expected.len() <= limit);
                prop_assert_eq!(merged.names(), expected.as_slice());
            }
            Err(error) => {
                prop_assert!(expected.len() > limit);
                prop_assert_eq!(error, TooManyColumnsError { limit });
            }
        }
    }

    #[test]
    fn csv_and_tsv_match_reference(entities in entities()) {
        let documents = written(&entities);
        let columns = formats::columns(&entities);
        let csv = body(ResponseFormat::Csv, false, &documents);
        prop_assert_eq!(&csv, &formats::csv(&entities, &columns));
        prop_assert_eq!(&csv, &body(ResponseFormat::Csv, true, &documents));
        let tsv = body(ResponseFormat::Tsv, false, &documents);
        prop_assert_eq!(&tsv, &formats::tsv(&entities, &columns));
        // A CSV reader returns the same cells.
        for (text, delimiter) in [(csv, b','), (tsv, b'\t')] {
            let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(text.as_bytes());
            let header: Vec<String> = reader.headers().expect("a header").iter().map(str::to_owned).collect();
            prop_assert_eq!(&header, &columns);
            let rows = reader.records().map(|record| record.expect("a record").iter().map(str::to_owned).collect());
            let rows: Vec<Vec<String>> = rows.collect();
            let cells = formats::cells(&entities, &columns).into_iter();
            let expected: Vec<Vec<String>> =
                cells.map(|row| row.into_iter().map(Option::unwrap_or_default).collect()).collect();
            prop_assert_eq!(rows, expected);
        }
    }

    #[test]
    fn xml_matches_reference_and_is_well_formed(entities in entities()) {
        let documents = written(&entities);
        let xml = body(ResponseFormat::Xml, false, &documents);
        prop_assert_eq!(&xml, &formats::xml(&entities));
        prop_assert_eq!(well_formed(&xml), Ok(()));
        let flattened: Vec<Value> = entities.iter().map(rules::flatten).collect();
        let xml = body(ResponseFormat::Xml, true, &documents);
        prop_assert_eq!(&xml, &formats::xml(&flattened));
        prop_assert_eq!(well_formed(&xml), Ok(()));
    }

    #[test]
    fn flattened_json_matches_reference(entities in entities()) {
        let documents = written(&entities);
        let flattened: Vec<Value> = entities.iter().map(rules::flatten).collect();
        prop_assert_eq!(body(ResponseFormat::Json, true, &documents), Value::Array(flattened.clone()).write());
        let lines: String = flattened.iter().map(|entity| entity.write() + "\n").collect();
        prop_assert_eq!(body(ResponseFormat::Jsonl, true, &documents), lines);
    }

    #[test]
    fn wide_entities_match_reference(entities in wide_entities()) {
        let documents = written(&entities);
        let columns = formats::columns(&entities);
        let found = columns_of(&documents);
        prop_assert_eq!(found.names(), columns.as_slice());
        prop_assert_eq!(body(ResponseFormat::Csv, false, &documents), formats::csv(&entities, &columns));
        let flattened: Vec<Value> = entities.iter().map(rules::flatten).collect();
        prop_assert_eq!(body(ResponseFormat::Json, true, &documents), Value::Array(flattened).write());
    }

    #[test]
    fn parquet_reads_back_cell_by_cell(
        entities in entities(),
        part_rows in 1_usize..5,
        row_group_bytes in prop::sample::select(&[1, 400, 3_000, ROW_GROUP_BYTES]),
    ) {
        let documents = written(&entities);
        let columns = formats::columns(&entities);
        let (names, rows) = read_back(parquet_file(&documents, &columns_of(&documents), part_rows, row_group_bytes));
        prop_assert_eq!(rows, formats::cells(&entities, &columns));
        prop_assert_eq!(names, columns);
    }
}

// --- a strict checker for the XML that strata writes ---

/// Checks that the text is a declaration and one well-formed element, by the productions of XML 1.0, fifth edition,
/// that strata uses: elements without attributes, character data, four references.
fn well_formed(xml: &str) -> Result<(), String> {
    let mut rest = xml.strip_prefix("<?xml version=\"1.0\" encoding=\"UTF-8\"?>").ok_or("no declaration")?;
    let mut open: Vec<&str> = Vec::new();
    while !rest.is_empty() {
        let markup = rest.find('<').ok_or("text after the end")?;
        if open.is_empty() && (markup > 0 || rest.len() < xml.len() - 38) {
            return Err(format!("{rest:?} outside of the root"));
        }
        character_data(&rest[..markup])?;
        let end = rest[markup..].find('>').ok_or("an open tag")? + markup;
        let tag = &rest[markup + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            if open.pop() != Some(name) {
                return Err(format!("</{name}> closes another element"));
            }
        } else if let Some(name) = tag.strip_suffix('/') {
            is_name(name)?;
        } else {
            is_name(tag)?;
            open.push(tag);
        }
    }
    match open.last() {
        None => Ok(()),
        Some(name) => Err(format!("<{name}> is not closed")),
    }
}

fn character_data(text: &str) -> Result<(), String> {
    let mut pieces = text.split('&');
    let plain = pieces.next().unwrap_or_default();
    let texts = pieces.map(|piece| {
        let known = ["amp;", "lt;", "gt;", "#13;"].iter().find_map(|reference| piece.strip_prefix(reference));
        known.ok_or_else(|| format!("&{piece}"))
    });
    for text in std::iter::once(Ok(plain)).chain(texts) {
        let allowed = |c: char| matches!(c, '\t' | '\n' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
        if let Some(character) = text?.chars().find(|&character| !allowed(character) || character == '>') {
            return Err(format!("{character:?} in text"));
        }
    }
    Ok(())
}

fn is_name(name: &str) -> Result<(), String> {
    let starts = |c: char| {
        matches!(c, 'A'..='Z' | '_' | 'a'..='z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
            | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
            | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}')
    };
    let continues = |c: char| starts(c) || matches!(c, '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}');
    match name.starts_with(starts) && name.chars().all(continues) {
        true => Ok(()),
        false => Err(format!("<{name}>")),
    }
}
