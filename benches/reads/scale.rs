//! The growth of costs with the size of a version: the same reads on versions of several sizes with the default
//! configuration, each in its own process. The first request finds all caches of the process empty. Further requests
//! find the parts of files, but no responses, in the caches.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strata_service::{ProcessPurpose, ReadTarget, Services};
use strata_types::ids::DatasetId;
use strata_types::version::VersionSelector;

use crate::cases;
use crate::support::import;
use crate::support::process::{directory_bytes, run_self, status};
use crate::support::requests::{CheckedRequest, Expected};
use crate::support::samples::{Samples, milliseconds, thousands};
use crate::support::source::Source;
use crate::support::table::aligned;

/// The names of the measured cases.
const MEASURED_CASES: [&str; 16] = [
    "page of 100, offset 0, compact",
    "page of 100, offset n/2, compact",
    "filter id, unique, 211 ids",
    "filter category, frequent, count",
    "filter promotion.code, rare, count",
    "contains description, rare, count",
    "contains description, frequent, count",
    "contains description, no match, count",
    "keyword, one, rare, count",
    "keyword, one, frequent, count",
    "keyword, two, and, count",
    "keyword, no match, count",
    "keyword, rare, limit 100",
    "sort by number, asc, limit 100",
    "dedup by two fields, count",
    "dedup by two fields, limit 100",
];

#[derive(Serialize, Deserialize)]
struct ScaleReport {
    total: u64,
    /// The SHA-256 hash of the body.
    sha256: String,
    first: Duration,
    next: Duration,
    peak_bytes: Option<u64>,
}

/// Imports each number of entities and makes the same reads on all versions. Returns a table for each size with the
/// cost per entity, compared with the cost at the first size.
pub fn measure(directory: &Path, sizes: &[u64], only: &str) -> String {
    let mut text = String::new();
    let mut first_size: Vec<(f64, f64)> = Vec::new();
    for entities in sizes {
        let source = Source::open(directory, *entities).expect("failed to generate the source file");
        let data = directory.join(format!("data-{entities}"));
        eprintln!("importing {entities} entities");
        let imported = import::in_child(&source.path, &data);
        text.push_str(&format!(
            "\n{} entities, {} bytes of JSON; the default configuration; {} cores\n\
             import: {:.1} s, peak resident memory {} MB, {} bytes on disk\n\n",
            thousands(*entities),
            thousands(source.json_bytes),
            std::thread::available_parallelism().map_or(1, usize::from),
            imported.seconds,
            imported.peak_bytes.unwrap_or_default() / 1_000_000,
            thousands(directory_bytes(&data.join("store"))),
        ));
        let cases = cases::cases(&source).into_iter();
        let asked = cases.filter(|case| MEASURED_CASES.contains(&case.name.as_str()) && case.name.contains(only));
        let mut rows = Vec::new();
        for (number, case) in asked.enumerate() {
            eprintln!("{}", case.name);
            let request = &case.requests[case.requests.len() / 2];
            let report: ScaleReport = run_self(&[
                "--read-again".as_ref(),
                data.as_os_str(),
                imported.name_slug.as_ref(),
                request.query.as_ref(),
            ]);
            check(&report, request, &source);
            let each = |duration: Duration| duration.as_secs_f64() * 1e9 / *entities as f64;
            let first = each(report.first);
            let next = each(report.next);
            if first_size.len() == number {
                first_size.push((first, next));
            }
            let (before_first, before_next) = first_size[number];
            rows.push([
                case.name.clone(),
                milliseconds(report.first),
                milliseconds(report.next),
                format!("{first:.2}"),
                format!("{next:.3}"),
                format!("{:.2}", first / before_first),
                format!("{:.2}", next / before_next),
                (report.peak_bytes.unwrap_or_default() / 1_000_000).to_string(),
            ]);
        }
        std::fs::remove_dir_all(&data).expect("failed to remove the data");
        text.push_str(&aligned(HEADINGS, rows));
    }
    text
}

/// Ratios compare the nanoseconds per entity with those at the first size: 1 if the cost grows with the version, and
/// less if the cost depends on the size of the response.
const HEADINGS: [&str; 8] =
    ["read", "first ms", "next ms", "first ns/entity", "next ns/entity", "ratio first", "ratio next", "peak MB"];

fn check(report: &ScaleReport, request: &CheckedRequest, source: &Source) {
    assert_eq!(report.total, request.expected.total(source), "{}", request.query);
    if let Some(body) = request.expected.body(source) {
        assert_eq!(report.sha256, hex::encode(Sha256::digest(body)), "{}", request.query);
    }
}

/// Reads repeatedly in the child process and prints the report.
pub fn run(arguments: &[String]) {
    let [data, name_slug, query] = arguments else { panic!("--read-again takes a data directory, a slug and a query") };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    let report = runtime.block_on(async {
        let mut config = import::config(Path::new(data), 0);
        config.cache.memory_bytes = None;
        let services = Services::open(&config, ProcessPurpose::Serve).await.expect("failed to open the data directory");
        services.readiness.check().await.expect("failed to query the catalog and the store");
        let target =
            ReadTarget { dataset: DatasetId::new(1), name_slug: name_slug.clone(), version: VersionSelector::Active };
        let request = CheckedRequest { query: query.clone(), expected: Expected::All(0) };
        let read = async || {
            let started = Instant::now();
            let answer = crate::read(&services, &target, crate::parsed(&request)).await;
            let total = answer.total;
            let mut body = Vec::new();
            crate::drain(answer.body, |chunk| body.extend_from_slice(&chunk)).await;
            (started.elapsed(), total, body)
        };
        let (first, total, body) = read().await;
        let mut next = Samples::default();
        let started = Instant::now();
        while next.wants_more(started, 3) {
            let (duration, _, again) = read().await;
            assert!(again == body, "another answer than the first one");
            next.add(duration);
        }
        let sha256 = hex::encode(Sha256::digest(&body));
        ScaleReport { total, sha256, first, next: next.median(), peak_bytes: status("VmHWM:") }
    });
    println!("{}", serde_json::to_string(&report).expect("failed to parse the report"));
    runtime.shutdown_timeout(Duration::from_secs(5));
}
