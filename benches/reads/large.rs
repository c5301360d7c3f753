//! Large responses with the default configuration, each in its own process to measure its peak memory. The cache holds
//! only a part of the version.

use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use strata_service::{ProcessPurpose, ReadTarget, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::cases;
use crate::support::import;
use crate::support::process::{run_self, status};
use crate::support::requests::{CheckedRequest, Expected};
use crate::support::samples::thousands;
use crate::support::source::Source;

/// The measurement of one response.
#[derive(Serialize, Deserialize)]
struct LargeReadReport {
    entities: u64,
    bytes: u64,
    /// The time until the first byte of the body is available.
    first_seconds: f64,
    seconds: f64,
    peak_bytes: Option<u64>,
}

/// Imports `entities` entities and measures large responses. Returns a table.
pub fn measure(directory: &Path, entities: u64, only: &str) -> String {
    let source = Source::open(directory, entities).expect("failed to generate the source file");
    let data = directory.join(format!("data-{entities}"));
    eprintln!("importing {entities} entities");
    let imported = import::in_child(&source.path, &data);
    let mut text = format!(
        "\n{} entities, {} bytes of JSON; the default configuration\n\n{:<32}{:>12}{:>18}{:>12}{:>10}{:>10}{:>10}\n",
        thousands(entities),
        thousands(source.json_bytes),
        "response",
        "entities",
        "bytes",
        "first s",
        "total s",
        "MB/s",
        "peak MB",
    );
    for (name, request) in cases::large() {
        if !name.contains(only) {
            continue;
        }
        eprintln!("{name}");
        let data_path = data.as_os_str();
        let report: LargeReadReport =
            run_self(&["--read".as_ref(), data_path, imported.name_slug.as_ref(), request.query.as_ref()]);
        if let Expected::All(min_bytes) = request.expected {
            assert!(report.bytes >= min_bytes * report.entities, "{name}");
        }
        text.push_str(&format!(
            "{name:<32}{:>12}{:>18}{:>12.2}{:>10.2}{:>10.0}{:>10}\n",
            thousands(report.entities),
            thousands(report.bytes),
            report.first_seconds,
            report.seconds,
            report.bytes as f64 / 1e6 / report.seconds,
            report.peak_bytes.map_or("unknown".to_owned(), |bytes| (bytes / 1_000_000).to_string()),
        ));
    }
    std::fs::remove_dir_all(&data).expect("failed to remove the data");
    text
}

/// Reads in the child process and prints the report.
pub fn run(arguments: &[String]) {
    let [data, name_slug, query] = arguments else { panic!("--read takes a data directory, a slug and a query") };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    let report = runtime.block_on(async {
        let mut config = import::config(Path::new(data), 1 << 30);
        // The timeout must not end a slow selection, because its duration is measured.
        config.query.timeout_s = 3_600;
        let services = Services::open(&config, ProcessPurpose::Serve).await.expect("failed to open the data directory");
        let target =
            ReadTarget { dataset: DatasetId::new(1), name_slug: name_slug.clone(), version: VersionSelector::Active };
        let request = CheckedRequest { query: query.clone(), expected: Expected::All(0) };
        let started = Instant::now();
        let answer = crate::read(&services, &target, crate::parsed(&request)).await;
        let first_seconds = started.elapsed().as_secs_f64();
        let entities = answer.total;
        let bytes = crate::drain(answer.body, |_| {}).await;
        let seconds = started.elapsed().as_secs_f64();
        LargeReadReport { entities, bytes, first_seconds, seconds, peak_bytes: status("VmHWM:") }
    });
    println!("{}", serde_json::to_string(&report).expect("failed to parse the report"));
    runtime.shutdown_timeout(std::time::Duration::from_secs(5));
}
