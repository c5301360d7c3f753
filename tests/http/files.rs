//! Files: versions under fixed URLs, with the responses of reads.

use std::io::Cursor;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow_ipc::reader::StreamReader;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use sha2::{Digest, Sha256};
use strata_testing::TestService;
use strata_testing::owned::Owned;
use strata_testing::service::Answer;

async fn service() -> Owned {
    let owned = Owned::start(|config| config.limits.public_per_minute = 1_000).await;
    owned.dataset("Some", json!({}), &["[{\"a\":1},{\"b\":[2]}]", "[{\"c\":3}]"]).await;
    owned.save(1, 2, "[{\"d\":4},{\"d\":5}]").await;
    owned
}

#[tokio::test]
async fn file_is_read_with_format() {
    let owned = service().await;
    for format in ["json", "jsonl", "csv", "tsv", "xml", "parquet"] {
        for (name, path) in [("v1", "v1"), ("active", "v2"), ("v2-alt", "v2/alt")] {
            for query in ["", "limit=1", "filter=c:3&x=1", "sort=a:desc"] {
                let file = owned.service.get(&format!("/files/1/some/{name}.{format}?{query}")).await;
                let read = owned.service.get(&format!("/api/1/some/{path}?pretty=0&{query}&format={format}")).await;
                assert_eq!((file.status, &file.body), (read.status, &read.body), "{name}.{format}?{query}");
                let headers = [
                    "content-type",
                    "content-disposition",
                    "etag",
                    "x-total-count",
                    "x-dataset-version",
                    "x-dataset-alt",
                    "x-unknown-parameters",
                ];
                for header in headers {
                    assert_eq!(file.header(header), read.header(header), "{name}.{format}?{query} {header}");
                }
            }
        }
    }
    owned.service.get("/files/1/some/v2.json").await.is("[{\"c\":3}]");
    owned.service.get("/files/1/some/v2.json?pretty=1").await.is("[\n  {\n    \"c\": 3\n  }\n]");
    let page = owned.service.get("/files/1/some/active-alt.jsonl?limit=1").await;
    let link = page.header("link").expect("missing link");
    assert!(link.contains("/files/1/some/v2-alt.jsonl?limit=1&offset=1>; rel=\"next\""), "{link}");
}

/// Reads the rows of an Arrow stream, and the number of its batches.
fn read_arrow(answer: &Answer) -> (RecordBatch, usize) {
    let reader = StreamReader::try_new(Cursor::new(&answer.body), None).expect("not an Arrow stream");
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("invalid batch")).collect();
    (concat_batches(&schema, &batches).expect("different schemas"), batches.len())
}

fn read_parquet(answer: &Answer) -> RecordBatch {
    let file = Bytes::copy_from_slice(&answer.body);
    let reader = ParquetRecordBatchReaderBuilder::try_new(file).expect("not a Parquet file");
    let schema = reader.schema().clone();
    let batches: Vec<RecordBatch> =
        reader.build().expect("failed to read").map(|batch| batch.expect("invalid batch")).collect();
    concat_batches(&schema, &batches).expect("different schemas")
}

#[tokio::test]
async fn arrow_has_columns_of_typed_parquet() {
    let owned = Owned::start(|config| config.limits.public_per_minute = 1_000).await;
    let entity = |id: u64| match id % 3 {
        0 => format!(r#"{{"id":{id},"on":true,"at":{{"x":1.5}},"mixed":{id}}}"#),
        1 => format!(r#"{{"id":{id},"text":"\u00e4\"{id}","at":{{"x":null}},"mixed":"m","list":[1,2]}}"#),
        _ => format!(r#"{{"id":{id},"on":false,"text":"","late":"{}"}}"#, "y".repeat(40)),
    };
    let list = |range: std::ops::Range<u64>| format!("[{}]", range.map(entity).collect::<Vec<_>>().join(","));
    owned.dataset("Some", json!({}), &[&list(0..7), &list(0..9_000), "[]", r#"[{}]"#]).await;
    owned.save(1, 1, &list(4..6)).await;
    for name in ["v1", "v2", "v3", "v4", "v1-alt"] {
        for query in ["", "limit=5&sort=id:desc", "filter=id:8000", "keep_field=at,text&offset=1"] {
            let arrow = owned.service.get(&format!("/files/1/some/{name}.arrow?{query}")).await;
            assert_eq!((arrow.status, arrow.whole), (200, true), "{name}: {}", arrow.text());
            let parquet = owned.service.get(&format!("/files/1/some/{name}.parquet?typed=true&{query}")).await;
            let (rows, batches) = read_arrow(&arrow);
            let typed = read_parquet(&parquet);
            assert_eq!(rows.columns(), typed.columns(), "{name}?{query}");
            let names = |batch: &RecordBatch| -> Vec<String> {
                batch.schema().fields().iter().map(|field| field.name().clone()).collect()
            };
            assert_eq!(names(&rows), names(&typed), "{name}?{query}");
            assert_eq!(batches > 1, rows.num_rows() > 8_000, "{batches} batches");
            for header in ["x-total-count", "x-dataset-version", "x-dataset-alt"] {
                assert_eq!(arrow.header(header), parquet.header(header), "{name}?{query} {header}");
            }
            let again = owned.service.get(&format!("/files/1/some/{name}.arrow?typed=false&{query}")).await;
            assert_eq!((&again.body, again.header("etag")), (&arrow.body, arrow.header("etag")), "{name}?{query}");
        }
    }
    let answer = owned.service.get("/files/1/some/active.arrow").await;
    assert_eq!(answer.header("content-type"), Some("application/vnd.apache.arrow.stream"));
    assert_eq!(answer.header("content-disposition"), Some("attachment; filename=\"some-v4.arrow\""));
    owned.service.get("/api/1/some/v1?format=arrow").await.is_error(400);
}

#[tokio::test]
async fn invalid_requests_are_rejected() {
    let owned = service().await;
    for (uri, status) in [
        ("/files", 400),
        ("/files/1/some", 400),
        ("/files/1/some/v1", 400),
        ("/files/1/some/v1.yaml", 400),
        ("/files/1/some/v1.arrow.gz", 400),
        ("/files/1/some/v1.jsonl/", 400),
        ("/files/1/some/v1.jsonl?format=json", 400),
        ("/files/1/some/v1.jsonl?count=true", 400),
        ("/files/1/some/v1.jsonl?alt=1", 400),
        ("/files/1/some/v1.jsonl?limit=x", 400),
        ("/files/1/some/v9.jsonl", 404),
        ("/files/1/some/v1-alt.jsonl", 404),
        ("/files/9/some/v1.jsonl", 404),
    ] {
        owned.service.get(uri).await.is_error(status);
    }
    for method in ["POST", "PUT", "DELETE"] {
        let answer = owned.service.send(method, "/files/1/some/v1.jsonl", None).await;
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")), "{method}");
    }
}

#[tokio::test]
async fn head_has_headers_of_get() {
    let owned = service().await;
    for uri in ["/files/1/some/v1.jsonl", "/files/1/some/v1.parquet", "/files/1/some/v9.json", "/files/1/some/v1.x"] {
        let head = owned.service.send("HEAD", uri, None).await;
        let get = owned.service.get(uri).await;
        assert_eq!((head.status, head.body.len()), (get.status, 0), "{uri}");
        for header in ["content-type", "etag", "x-dataset-version", "repr-digest", "content-disposition"] {
            assert_eq!(head.header(header), get.header(header), "{uri} {header}");
        }
        assert_eq!(head.header("content-length"), Some(&*get.body.len().to_string()), "{uri}");
    }
    let usage = owned.call("GET", "/dataset/usage?dataset_id=1", "").await;
    assert!(usage.text().contains("\"requests\":6"), "{}", usage.text());
}

#[tokio::test]
async fn range_is_for_get_of_parquet_only() {
    let owned = service().await;
    let parquet = "/files/1/some/v1.parquet";
    let whole = owned.service.get(parquet).await.body;
    let range = [("range", "bytes=4-9")];
    let part = owned.service.get_with(parquet, &range).await;
    let expected = format!("bytes 4-9/{}", whole.len());
    assert_eq!((part.status, part.header("content-range"), &part.body[..]), (206, Some(&*expected), &whole[4..10]));
    assert_eq!(part.header("repr-digest"), None);
    owned.service.get_with(parquet, &[("range", "bytes=999999-")]).await.is_error(416);
    assert_eq!(owned.service.get_with("/files/1/some/v1.jsonl", &range).await.status, 200);
    let head = axum::http::Request::head(parquet).header("range", "bytes=4-9");
    let head = owned.service.call(head.body(axum::body::Body::empty()).expect("invalid request")).await;
    assert_eq!((head.status, head.header("content-length")), (200, Some(&*whole.len().to_string())));
}

#[tokio::test]
async fn digest_covers_whole_versions_only() {
    use base64::Engine;
    let owned = service().await;
    for name in ["v1", "v2", "v2-alt"] {
        let uri = format!("/files/1/some/{name}.jsonl");
        let whole = owned.service.get(&uri).await;
        let digest = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(&whole.body));
        assert_eq!(whole.header("repr-digest"), Some(&*format!("sha-256=:{digest}:")), "{name}");
        for query in ["limit=1", "filter=a:1", "include_source=false"] {
            assert_eq!(owned.service.get(&format!("{uri}?{query}")).await.header("repr-digest"), None, "{query}");
        }
    }
    assert_eq!(owned.service.get("/files/1/some/v1.json").await.header("repr-digest"), None);
    assert_eq!(owned.service.get("/api/1/some/v1?format=jsonl").await.header("repr-digest"), None);
}

#[tokio::test]
async fn preflight_needs_no_dataset() {
    let service = TestService::configured(|config| config.limits.public_per_minute = 1).await;
    for uri in ["/files/1/some/v1.jsonl", "/files/7/none/active-alt.parquet", "/files/7/none/v1.csv?format=x"] {
        let answer = service.send("OPTIONS", uri, None).await;
        assert_eq!((answer.status, answer.body.len()), (204, 0), "{uri}");
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-methods", "GET, HEAD, OPTIONS"),
            ("access-control-allow-headers", "Authorization, Range, If-Range, If-None-Match"),
            ("access-control-max-age", "86400"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{uri}");
        }
    }
    service.send("OPTIONS", "/files/1/some", None).await.is_error(400);
}
