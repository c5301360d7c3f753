//! Tests of the memory that a real process uses for decompression bombs.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int32Array, ListArray, RecordBatch, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};
use strata_testing::forged_parquet::{self as forge, Column, ForgedPage};
use strata_testing::http_client;
use strata_testing::machine::{Machine, Server};
use strata_testing::packed::gzip;

/// The memory limit for one Parquet source in this test, in MiB.
const PARQUET_MIB: u64 = 64;

/// The additional memory of each refresh according to docs/guides/deploy.md, Memory, in MiB of resident memory.
const REFRESH_MIB: u64 = 600;

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let batch = RecordBatch::try_from_iter(columns).expect("a batch");
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).expect("a writer");
    writer.write(&batch).expect("written");
    writer.into_inner().expect("written")
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let long = "x".repeat(4 << 20);
    let field = Arc::new(Field::new("item", DataType::Int32, true));
    let numbers = Arc::new(Int32Array::from(vec![7; 8_000_000]));
    let list = ListArray::new(field, OffsetBuffer::from_lengths([8_000_000]), numbers, None);
    let pages = vec![ForgedPage {
        uncompressed: Some(0x7fff_fff0),
        ..ForgedPage::data(2, forge::PLAIN, gzip(&vec![0; 64 << 20]))
    }];
    let column = Column { physical: forge::INT64, codec: forge::GZIP, repetition: 0, rows: 2, pages };
    let index = [&[1][..], &forge::varint(2 << 1), &[0]].concat();
    let dictionary = vec![
        ForgedPage::dictionary(0x7fff_ffff, 5_i64.to_le_bytes().to_vec()),
        ForgedPage::data(2, forge::RLE_DICTIONARY, index),
    ];
    let entries = Column { codec: forge::UNCOMPRESSED, pages: dictionary, ..column.clone() };
    vec![
        ("runs of a long text", parquet(vec![("a", Arc::new(StringArray::from(vec![&*long; 60])) as ArrayRef)])),
        ("a long list", parquet(vec![("a", Arc::new(list) as ArrayRef)])),
        ("a page that announces two gigabytes", column.file()),
        ("a dictionary that announces as many entries", entries.file()),
        ("a gzip of nothing", gzip(&vec![b'\n'; 70 << 20])),
        ("many keys", many_keys()),
    ]
}

/// Returns a large entity with as many keys as fit. This entity is no attack, but is expensive.
fn many_keys() -> Vec<u8> {
    let mut entity = b"{\"k\":0".to_vec();
    let mut number = 0;
    while entity.len() < 1 << 20 {
        entity.extend(format!(",\"{number:x}\":0").into_bytes());
        number += 1;
    }
    entity.extend(b"}\n");
    entity
}

/// Returns the peak resident memory of a process, in MiB.
fn peak_mib(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("failed to parse the number") / 1_024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decompression_bombs_use_documented_memory() {
    let machine = Machine::new();
    let added = machine.run_with_input(
        &["user", "add", "eve@example.test", "--plan", "free", "--token", "t"],
        "correct horse battery\n",
    );
    let token =
        String::from_utf8(added.stdout).expect("text").lines().last().expect("failed to find the token").to_owned();
    let memory = (PARQUET_MIB << 20).to_string();
    let server = Server::start(&machine, &[], &[("STRATA_SOURCES__PARQUET_MEMORY_BYTES", &*memory)]);
    let client = http_client().build().expect("failed to build the client");
    let call = |path: String, kind: &'static str, body: Vec<u8>| {
        let request = client.post(format!("{}{path}", server.base_url)).bearer_auth(&token);
        let request = request.header("content-type", kind).timeout(Duration::from_secs(300)).body(body);
        async move {
            let answer = request.send().await.expect("failed to get a response");
            (answer.status().as_u16(), answer.text().await.expect("a text"))
        }
    };
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let (status, text) =
            call("/dataset/create".into(), "application/json", json!({"name": name}).to_string().into()).await;
        assert_eq!(status, 200, "{text}");
        let record: Value = serde_json::from_str(&text).expect("failed to parse JSON");
        ids.push(record["dataset"]["dataset_id"].as_u64().expect("failed to find the ID"));
    }
    let before = peak_mib(server.id());
    for (what, bomb) in bombs() {
        // Two refreshes at the same time, the maximum for one user.
        let push =
            |id: u64| call(format!("/dataset/refresh?dataset_id={id}"), "application/octet-stream", bomb.clone());
        let (one, two) = tokio::join!(push(ids[0]), push(ids[1]));
        for (status, text) in [one, two] {
            let is_honest = what == "many keys";
            assert!(if is_honest { status == 200 } else { [413, 422].contains(&status) }, "{what}: {status} {text}");
        }
        let taken = peak_mib(server.id()) - before;
        println!("{what}: {} bytes sent, at most {taken} MiB used so far", bomb.len());
        assert!(taken < 2 * (PARQUET_MIB + REFRESH_MIB), "{what}: {taken} MiB");
    }
    let (code, _) = server.stop("-TERM");
    assert_eq!(code, Some(0));
}
