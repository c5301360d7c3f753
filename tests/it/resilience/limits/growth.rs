//! Tests of responses that are much larger than the entities they are built from. The service rejects them or streams
//! them in small parts, and uses no more memory than docs/guides/tune.md specifies.

use serde_json::json;

use super::LimitFixture;

/// Returns the peak resident memory of a process, in bytes.
fn peak_bytes(process_id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    let kibibytes = line
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse::<u64>().ok())
        .expect("failed to parse the number");
    kibibytes << 10
}

/// Resets the peak resident memory of a process.
fn reset_peak(process_id: u32) {
    std::fs::write(format!("/proc/{process_id}/clear_refs"), "5").expect("Linux");
}

/// Returns an entity of about 1 MiB that repeats long names: in XML it would take 60 GB, flattened 35 GB, and indented
/// 60 MB.
fn growing_entity() -> String {
    let name = "n".repeat(250_000);
    let values = vec!["0"; 120_000].join(",");
    let members: Vec<String> = (0..60_000).map(|number| format!("\"{number}\":0")).collect();
    let deep = format!("{}[{values}]{}", "{\"d\":".repeat(120), "}".repeat(120));
    format!("{{\"{name}\":[{values}],\"{name}x\":{{{}}},\"deep\":{deep}}}", members.join(","))
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn growing_entity_is_rejected_before_allocation() {
    let fixture = LimitFixture::with_environment(&[("STRATA_LIMITS__ENCODED_ENTITY_BYTES", "16777216")]).await;
    let id = fixture.create_dataset("Growing").await;
    fixture.push(id, &format!("[{},{{\"a\":1}}]", growing_entity())).await.assert_status(&[200], "a push");
    let dataset = format!("{id}/growing");
    fixture.read(&dataset, "format=jsonl").await.assert_status(&[200], "format=jsonl");
    reset_peak(fixture.server.process_id());
    let before = peak_bytes(fixture.server.process_id());
    for query in ["", "format=xml", "flatten=true&pretty=false", "flatten=true&format=xml", "flatten=true&format=jsonl"]
    {
        let answer = fixture.read(&dataset, query).await;
        answer.assert_status(&[400], query);
        assert!(answer.text().contains("larger than 16777216 bytes in this format"), "{}", answer.summary());
    }
    for query in ["keep_field=a", "format=csv", "format=parquet"] {
        let answer = fixture.read(&dataset, query).await;
        answer.assert_status(if query == "keep_field=a" { &[200] } else { &[400] }, query);
    }
    let grown = peak_bytes(fixture.server.process_id()).saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
    fixture.assert_healthy().await;
    fixture.stop();
}

/// Returns one entity with 9,000 columns and 20,000 tiny entities. The rows of their table are wide, but almost empty.
fn sparse_entities() -> String {
    let columns: Vec<String> = (0..9_000).map(|column| format!("\"column {column}\":{column}")).collect();
    let mut text = format!("[{{{}}}", columns.join(","));
    for number in 0..20_000 {
        text.push_str(&format!(",{{\"column {}\":{number}}}", number % 9_000));
    }
    text.push(']');
    text
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wide_sparse_tables_use_documented_memory() {
    let fixture = LimitFixture::with_environment(&[("STRATA_QUERY__STREAM_BYTES", "33554432")]).await;
    let id = fixture.create_dataset("Sparse").await;
    fixture.push(id, &sparse_entities()).await.assert_status(&[200], "a push");
    reset_peak(fixture.server.process_id());
    let before = peak_bytes(fixture.server.process_id());
    // The export cache does not store samples.
    let answer = fixture.read(&format!("{id}/sparse"), "format=parquet&sample=20001").await;
    answer.assert_status(&[200], "a sample");
    let encoders = std::thread::available_parallelism().map_or(1, usize::from).min(4) as u64;
    let documented = (40 << 20) + 9_000 * (20 << 10) + encoders * (8 << 20);
    let grown = peak_bytes(fixture.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB for a Parquet export of 9,000 columns; {} MiB are documented", grown >> 20, documented >> 20);
    assert!(grown < documented, "{} MiB, {} were documented", grown >> 20, documented >> 20);

    // 20,000 rows of 9,000 columns are 180 MB of commas. The process holds the parts that are ready for the reader and
    // one part on each thread, in a buffer that grows by doubling. On a loaded machine, all of these have their maximum
    // size.
    reset_peak(fixture.server.process_id());
    let before = peak_bytes(fixture.server.process_id());
    let answer = fixture.read(&format!("{id}/sparse"), "format=csv&limit=20000").await;
    answer.assert_status(&[200], "a table");
    assert!(answer.body.len() > 20_000 * 8_999, "{} bytes", answer.body.len());
    let grown = peak_bytes(fixture.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB for a table of 180 MB", grown >> 20);
    assert!(grown < 128 << 20, "{} MiB", grown >> 20);
    fixture.stop();
}

/// Tests that readers that never read a byte hold no row group, so that other exports do not have to wait.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_sample_readers_do_not_delay_exports() {
    // A little more memory than one export takes.
    let fixture = LimitFixture::with_environment(&[
        ("STRATA_QUERY__MEMORY_BYTES", "268435456"),
        ("STRATA_QUERY__HEAVY_WAIT_S", "60"),
        // The readers stall for the whole test, even on a slow machine.
        ("STRATA_SERVER__WRITE_STALL_S", "3600"),
    ])
    .await;
    let id = fixture.create_dataset("Noise").await;
    let mut state = 1_u64;
    let entities: Vec<String> = (0..15_000)
        .map(|_| {
            let words: Vec<String> = (0..40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    format!("{:016x}", state ^ (state >> 29))
                })
                .collect();
            json!({"noise": words.concat()}).to_string()
        })
        .collect();
    fixture.push(id, &format!("[{}]", entities.join(","))).await.assert_status(&[200], "a push");
    let url = fixture.url(&format!("/api/{id}/noise/v1/?format=parquet&sample=15000"));
    reset_peak(fixture.server.process_id());
    let before = peak_bytes(fixture.server.process_id());
    let mut stalled = Vec::new();
    for _ in 0..12 {
        let answer = fixture.client.get(&url).send().await.expect("failed to get a response");
        assert_eq!(answer.status(), 200);
        stalled.push(answer);
    }
    let answer = fixture.read(&format!("{id}/noise"), "format=parquet&sample=15000").await;
    answer.assert_status(&[200], "a thirteenth");
    assert!(answer.body.starts_with(b"PAR1") && answer.body.ends_with(b"PAR1"));
    let grown = peak_bytes(fixture.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB with twelve readers that take nothing", grown >> 20);
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);
    // The responses are complete when the readers finally read them.
    for answer in stalled {
        let body = answer.bytes().await.expect("failed to read the body");
        assert!(body.len() > 4 << 20 && body.ends_with(b"PAR1"), "{} bytes", body.len());
    }
    fixture.stop();
}
