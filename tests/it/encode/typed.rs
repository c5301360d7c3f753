//! `typed=true`: the types of columns, the layout of the file, and the results of analysis tools.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector};
use parquet::file::metadata::PageIndexPolicy;
use strata_reference::parquet::{cells, typed_cells};
use strata_testing::scripts::{tool, tools_file};
use strata_testing::{Answer, TestService};

/// Returns the columns of a response with their types.
fn types(answer: &Answer) -> Vec<(String, String)> {
    assert_eq!((answer.status, answer.whole), (200, true), "{}", String::from_utf8_lossy(&answer.body));
    typed_cells(&answer.body).0
}

fn named(types: &[(&str, &str)]) -> Vec<(String, String)> {
    types.iter().map(|(name, column)| ((*name).to_owned(), (*column).to_owned())).collect()
}

/// Entities with all kinds of values that influence the type of a column.
const VALUES: &str = r#"
{"yes":true,"int":9223372036854775807,"min":-9223372036854775808,"zero":-0,"one":1,"big":9007199254740993,"above":9223372036854775808,"below":-9223372036854775809,"huge":1e400,"exp":1e2,"mixed":true,"digits":"1","null":null,"list":[1],"deep":{"a":1,"b":{"c":0.5}},"rows":[{"n":1},{"n":2.5}],"odd":9007199254740993,"a.b":1,"a":{"b":true},"empty":""}
{"yes":false,"int":-1,"min":null,"zero":0,"one":1.0,"big":1,"above":0.5,"below":1,"huge":1,"exp":-1e-2,"mixed":1,"digits":2,"list":2,"deep":{"a":null,"b":{"c":-0.0}},"rows":[{"n":3}],"odd":0.5}
"#;

#[tokio::test]
async fn column_type_fits_all_values() {
    let service = TestService::start().await;
    service.import("Values", VALUES).await;
    const T: &str = "BYTE_ARRAY";
    let all = named(&[
        ("yes", "BOOLEAN"),
        ("int", "INT64"),
        ("min", "INT64"),
        ("zero", "INT64"),
        ("one", "DOUBLE"),
        ("big", "INT64"),
        ("above", "DOUBLE"),
        ("below", T),
        ("huge", T),
        ("exp", "DOUBLE"),
        ("mixed", T),
        ("digits", T),
        ("null", T),
        ("list", T),
        ("deep.a", "INT64"),
        ("deep.b.c", "DOUBLE"),
        ("rows_0_n", "INT64"),
        ("rows_1_n", "DOUBLE"),
        ("odd", T),
        // If an entity has two values with one name, the last one counts.
        ("a.b", "BOOLEAN"),
        ("empty", T),
    ]);
    let path = "/api/1/values/v1/?format=parquet&typed=true";
    let whole = service.get(path).await;
    assert_eq!(types(&whole), all);
    // The types follow from the selected entities, not from the version.
    let second =
        service.get(&format!("{path}&offset=1&keep_field=one,big,huge,digits,mixed,list,below,above,null")).await;
    let expected = [
        ("one", "DOUBLE"),
        ("big", "INT64"),
        ("above", "DOUBLE"),
        ("below", "INT64"),
        ("huge", "INT64"),
        ("mixed", "INT64"),
        ("digits", "INT64"),
        ("list", "INT64"),
    ];
    assert_eq!(types(&second), named(&expected));
    let first = service.get(&format!("{path}&limit=1&keep_field=one,above,mixed,null")).await;
    let expected = [("one", "INT64"), ("above", "DOUBLE"), ("mixed", "BOOLEAN"), ("null", T)];
    assert_eq!(types(&first), named(&expected));
    // In another order; without nulls and empty strings; without entities.
    assert_eq!(types(&service.get(&format!("{path}&sort=int")).await).len(), all.len());
    let without_nulls = types(&service.get(&format!("{path}&denull=true")).await);
    assert_eq!(
        without_nulls,
        all.iter().filter(|(name, _)| !["null", "empty"].contains(&&**name)).cloned().collect::<Vec<_>>()
    );
    let none = types(&service.get(&format!("{path}&limit=0")).await);
    assert_eq!(none, all.iter().map(|(name, _)| (name.clone(), T.to_owned())).collect::<Vec<_>>());

    // Values are preserved bit by bit.
    let (columns, rows) = typed_cells(&whole.body);
    let cell = |name: &str, row: usize| {
        let column = columns.iter().position(|(column, _)| column == name).expect(name);
        rows[row][column].clone().unwrap_or_default()
    };
    assert_eq!(
        (cell("int", 0), cell("min", 0), cell("zero", 0)),
        (i64::MAX.to_string(), i64::MIN.to_string(), "0".into())
    );
    assert_eq!((cell("min", 1), cell("below", 0)), (String::new(), "-9223372036854775809".into()));
    assert!(cell("deep.b.c", 1).ends_with("8000000000000000"), "{}", cell("deep.b.c", 1));
    assert_eq!((cell("yes", 0), cell("huge", 0), cell("rows_1_n", 1)), ("true".into(), "1e400".into(), String::new()));
}

#[tokio::test]
async fn integer_zero_has_no_sign() {
    let service = TestService::start().await;
    service.import("Zeros", r#"[{"n":-0},{"n":-0.0},{"n":0},{"n":0.5}]"#).await;
    let (columns, rows) = typed_cells(&service.get("/api/1/zeros/v1/?format=parquet&typed=true").await.body);
    assert_eq!(columns, named(&[("n", "DOUBLE")]));
    let bits: Vec<_> = rows.iter().map(|row| row[0].as_deref().and_then(|cell| cell.split(' ').next_back())).collect();
    let zero = "0000000000000000";
    assert_eq!(bits, [zero, "8000000000000000", zero, "3fe0000000000000"].map(Some));
}

#[tokio::test]
async fn typed_affects_only_parquet_and_its_etag() {
    let service = TestService::start().await;
    service.import("Values", VALUES).await;
    for format in ["json", "jsonl", "csv", "tsv", "xml"] {
        let uri = format!("/api/1/values/v1/?format={format}");
        let plain = service.get(&uri).await;
        let typed = service.get(&format!("{uri}&typed=1")).await;
        assert_eq!((&plain.body, plain.header("etag")), (&typed.body, typed.header("etag")), "{format}");
    }
    let uri = "/api/1/values/v1/?format=parquet";
    let plain = service.get(uri).await;
    let typed = service.get(&format!("{uri}&typed=1")).await;
    assert!(plain.header("etag").is_some() && plain.header("etag") != typed.header("etag"));
    assert_eq!(service.get(&format!("{uri}&typed=0")).await.body, plain.body);
    assert_eq!(service.get(&format!("{uri}&typed=TRUE")).await.body, typed.body);
    let count = service.get(&format!("{uri}&typed=1&count=1&pretty=0")).await;
    count.is("{\"count\":2,\"dataset_id\":1,\"version\":1,\"alt\":false}");
    service.get(&format!("{uri}&typed=yes")).await.is_error(400);
    // A range request returns a part of the whole file.
    let part = service.get_with(&format!("{uri}&typed=1"), &[("range", "bytes=4-99")]).await;
    assert_eq!((part.status, &part.body[..]), (206, &typed.body[4..100]));
}

#[tokio::test]
async fn ambiguous_paths_get_correct_types() {
    let service = TestService::start().await;
    const T: &str = "BYTE_ARRAY";
    let tables: [(&str, &[(&str, &str)]); 5] = [
        // Two paths with the same column name: only the last value counts.
        (r#"{"a.b":"text","a":{"b":1}}"#, &[("a.b", "INT64")]),
        (r#"{"a":{"b":"text"},"a.b":true}"#, &[("a.b", "BOOLEAN")]),
        (r#"{"x":[{"y":"text"}],"x_0_y":1}"#, &[("x_0_y", "INT64")]),
        (r#"{"x":"text","y":true,"z":null,"":"no name"}"#, &[("x", T), ("y", "BOOLEAN"), ("z", T), ("", T)]),
        (r#"{"x":[true]}{"x":true}"#, &[("x", T)]),
    ];
    for (number, (entities, expected)) in tables.into_iter().enumerate() {
        let name = format!("Table {number}");
        service.import(&name, &entities.replace("}{", "}\n{")).await;
        let uri = format!("/api/{}/table-{number}/v1/?format=parquet&typed=1", number + 1);
        assert_eq!(types(&service.get(&uri).await), named(expected), "{entities}");
    }
}

/// Returns many entities that are sorted by `n`.
fn many(count: u64) -> String {
    let mut lines = String::new();
    for n in 0..count {
        let sparse = if n % 50_000 == 7 { format!(",\"sparse\":{n}") } else { String::new() };
        let text = if n % 3 == 0 { "null".to_owned() } else { format!("\"text {}\"", n % 7) };
        let line = format!(
            "{{\"n\":{n},\"half\":{}.5,\"odd\":{},\"few\":{},\"text\":{text},\"long\":\"unlike any other {n}\"{sparse}}}\n",
            n,
            n % 2 == 1,
            n % 5
        );
        let _ = lines.write_str(&line);
    }
    lines
}

#[tokio::test]
async fn row_groups_are_equal_and_have_page_index() {
    let service = TestService::start().await;
    service.import("Many", &many(150_000)).await;
    let path = "/api/1/many/v1/?format=parquet";
    let typed = service.get(&format!("{path}&typed=1")).await;
    let untyped = service.get(path).await;
    assert_eq!((typed.status, typed.whole), (200, true));
    let (columns, rows) = typed_cells(&typed.body);
    let (names, texts) = cells(&untyped.body);
    assert_eq!(columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    let expected: Vec<_> = ["INT64", "DOUBLE", "BOOLEAN", "INT64", "BYTE_ARRAY", "BYTE_ARRAY", "INT64"].into();
    assert_eq!(columns.iter().map(|(_, column)| column.as_str()).collect::<Vec<_>>(), expected);
    assert_eq!(rows.len(), texts.len());
    for (row, (typed, text)) in rows.iter().zip(&texts).enumerate() {
        let text = text
            .iter()
            .zip(&expected)
            .map(|(cell, column)| Some(strata_reference::types::cell(cell.as_ref()?, column)));
        assert!(typed.iter().cloned().eq(text), "row {row}: {typed:?}");
    }

    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let open =
        || ParquetRecordBatchReaderBuilder::try_new_with_options(typed.body.clone(), options.clone()).expect("a file");
    let metadata = open().metadata().clone();
    let sizes: Vec<i64> = metadata.row_groups().iter().map(|row_group| row_group.num_rows()).collect();
    assert!(sizes.len() > 2 && sizes[..sizes.len() - 1].iter().all(|size| *size == sizes[0]), "{sizes:?}");
    // Only one row group can contain a given value of the sorted column.
    let candidates = metadata.row_groups().iter().filter(|row_group| {
        let statistics = row_group.column(0).statistics().expect("statistics");
        let bound = |bytes: Option<&[u8]>| i64::from_le_bytes(bytes.expect("a bound").try_into().expect("eight bytes"));
        (bound(statistics.min_bytes_opt())..=bound(statistics.max_bytes_opt())).contains(&100_000)
    });
    assert_eq!(candidates.count(), 1);
    let offset_index = metadata.offset_index().expect("an index of pages");
    assert!(metadata.column_index().is_some());
    assert!(
        (offset_index[0][0].page_locations().len() as i64) > sizes[0] / 30_000,
        "{}",
        offset_index[0][0].page_locations().len()
    );
    // The page index leads to the right rows.
    for row in [0, 19_999, 20_000, 65_535, 65_536, 149_999, 100_007] {
        let selection = RowSelection::from(vec![RowSelector::skip(row), RowSelector::select(1)]);
        let mut batches = open().with_row_selection(selection).build().expect("a reader");
        let batch = batches.next().expect("a batch").expect("a batch");
        assert_eq!(batch.num_rows(), 1);
        let found = arrow::util::display::array_value_to_string(batch.column(5), 0).expect("text");
        assert_eq!(found, format!("unlike any other {row}"));
        let found = arrow::util::display::array_value_to_string(batch.column(0), 0).expect("a number");
        assert_eq!(found, row.to_string());
    }
    // The file is byte-identical with another thread count and without a cache.
    let other = TestService::configured(|config| {
        config.query.threads = 1;
        config.cache.memory_bytes = Some(0);
    });
    let other = other.await;
    other.import("Many", &many(150_000)).await;
    let again: Arc<Bytes> = Arc::new(other.get(&format!("{path}&typed=1")).await.body);
    assert!(*again == typed.body);
}

#[tokio::test]
async fn common_tools_read_the_types() {
    let service = TestService::start().await;
    service.import("Values", VALUES).await;
    service.import("Many", &many(150_000)).await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let requests = [
        ("/api/1/values/v1/?format=parquet", "2 rows, 21 columns, 1 row groups, 1 with the last int\n"),
        (
            "/api/1/values/v1/?format=parquet&keep_field=one,below&limit=1",
            "1 rows, 2 columns, 1 row groups, 1 with the last one\n",
        ),
        ("/api/2/many/v1/?format=parquet", "150000 rows, 7 columns, 3 row groups, 1 with the last n\n"),
    ];
    for (uri, expected) in requests {
        let typed = service.get(&format!("{uri}&typed=1")).await;
        let untyped = service.get(uri).await;
        let columns =
            types(&typed).into_iter().map(|(name, column)| format!("{name}={}", column.replace("BYTE_ARRAY", "TEXT")));
        let files = [("typed.parquet", &typed), ("untyped.parquet", &untyped)].map(|(name, answer)| {
            std::fs::write(directory.path().join(name), &answer.body).expect("written");
            directory.path().join(name)
        });
        let output =
            tool("python").arg(tools_file("typed.py")).args(files).args(columns).output().expect("the script runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{uri}: {printed}{errors}");
        assert_eq!(printed, expected, "{uri}");
    }
}
