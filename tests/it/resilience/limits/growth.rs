//! Answers that are much larger than what they are made of: they are refused, or come in small parts. Memory is what
//! the docs/guides/tune.md promises.

use serde_json::json;

use super::World;

/// Bytes of memory that a process has had at most.
fn peak_bytes(process_id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a peak");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number");
    kibibytes << 10
}

/// Forgets the peak.
fn reset_peak(process_id: u32) {
    std::fs::write(format!("/proc/{process_id}/clear_refs"), "5").expect("Linux");
}

/// An entity of a MiB that repeats: in XML it would take 60 GB, flattened 35 GB, indented 60 MB.
fn growing() -> String {
    let name = "n".repeat(250_000);
    let values = vec!["0"; 120_000].join(",");
    let members: Vec<String> = (0..60_000).map(|number| format!("\"{number}\":0")).collect();
    let deep = format!("{}[{values}]{}", "{\"d\":".repeat(120), "}".repeat(120));
    format!("{{\"{name}\":[{values}],\"{name}x\":{{{}}},\"deep\":{deep}}}", members.join(","))
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_that_grows_without_bound_is_refused_and_takes_no_memory() {
    let world = World::configured(&[("STRATA_LIMITS__ENCODED_ENTITY_BYTES", "16777216")]).await;
    let id = world.dataset("Growing").await;
    world.push(id, &format!("[{},{{\"a\":1}}]", growing())).await.is(&[200], "a push");
    let dataset = format!("{id}/growing");
    world.read(&dataset, "format=jsonl").await.is(&[200], "format=jsonl");
    reset_peak(world.server.process_id());
    let before = peak_bytes(world.server.process_id());
    for query in ["", "format=xml", "flatten=true&pretty=false", "flatten=true&format=xml", "flatten=true&format=jsonl"]
    {
        let answer = world.read(&dataset, query).await;
        answer.is(&[400], query);
        assert!(answer.text().contains("larger than 16777216 bytes in this format"), "{}", answer.shown());
    }
    for query in ["keep_field=a", "format=csv", "format=parquet"] {
        let answer = world.read(&dataset, query).await;
        answer.is(if query == "keep_field=a" { &[200] } else { &[400] }, query);
    }
    let grown = peak_bytes(world.server.process_id()).saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
    world.is_well().await;
    world.end();
}

/// 20,000 tiny entities beside one of 9,000 columns: rows are wide, although what is in them is not.
fn sparse() -> String {
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
async fn wide_and_sparse_tables_take_the_memory_that_is_promised() {
    let world = World::configured(&[("STRATA_QUERY__STREAM_BYTES", "33554432")]).await;
    let id = world.dataset("Sparse").await;
    world.push(id, &sparse()).await.is(&[200], "a push");
    reset_peak(world.server.process_id());
    let before = peak_bytes(world.server.process_id());
    // A sample is nobody else's, so it is not made for the cache.
    let answer = world.read(&format!("{id}/sparse"), "format=parquet&sample=20001").await;
    answer.is(&[200], "a sample");
    let encoders = std::thread::available_parallelism().map_or(1, usize::from).min(4) as u64;
    let promised = (40 << 20) + 9_000 * (20 << 10) + encoders * (8 << 20);
    let grown = peak_bytes(world.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB for a Parquet export of 9,000 columns; {} MiB are promised", grown >> 20, promised >> 20);
    assert!(grown < promised, "{} MiB, {} were promised", grown >> 20, promised >> 20);

    // So many entities of 30 bytes are 180 MB of commas. What is ahead of the reader is there, and what is being made:
    // a part on each thread, in a buffer that grows by doubling. A loaded machine has all of them at their largest.
    reset_peak(world.server.process_id());
    let before = peak_bytes(world.server.process_id());
    let answer = world.read(&format!("{id}/sparse"), "format=csv&limit=20000").await;
    answer.is(&[200], "a table");
    assert!(answer.body.len() > 20_000 * 8_999, "{} bytes", answer.body.len());
    let grown = peak_bytes(world.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB for a table of 180 MB", grown >> 20);
    assert!(grown < 128 << 20, "{} MiB", grown >> 20);
    world.end();
}

/// Readers that take nothing hold no row group, and keep nobody else waiting.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_samples_keep_no_export_waiting() {
    // As much memory as one export takes, and a little more.
    let world = World::configured(&[
        ("STRATA_QUERY__MEMORY_BYTES", "268435456"),
        ("STRATA_QUERY__HEAVY_WAIT_S", "60"),
        // They stall for as long as this test takes, on whatever machine.
        ("STRATA_SERVER__WRITE_STALL_S", "3600"),
    ])
    .await;
    let id = world.dataset("Noise").await;
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
    world.push(id, &format!("[{}]", entities.join(","))).await.is(&[200], "a push");
    let url = world.url(&format!("/api/{id}/noise/v1/?format=parquet&sample=15000"));
    reset_peak(world.server.process_id());
    let before = peak_bytes(world.server.process_id());
    let mut stalled = Vec::new();
    for _ in 0..12 {
        let answer = world.client.get(&url).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        stalled.push(answer);
    }
    let answer = world.read(&format!("{id}/noise"), "format=parquet&sample=15000").await;
    answer.is(&[200], "a thirteenth");
    assert!(answer.body.starts_with(b"PAR1") && answer.body.ends_with(b"PAR1"));
    let grown = peak_bytes(world.server.process_id()).saturating_sub(before);
    eprintln!("{} MiB with twelve readers that take nothing", grown >> 20);
    assert!(grown < 256 << 20, "{} MiB", grown >> 20);
    // They are whole when they are read after all.
    for answer in stalled {
        let body = answer.bytes().await.expect("a body");
        assert!(body.len() > 4 << 20 && body.ends_with(b"PAR1"), "{} bytes", body.len());
    }
    world.end();
}
