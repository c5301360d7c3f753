//! Slow reads that the `index` setting makes fast: the plan and the latency of each read before and after the change.
//!
//! ```text
//! cargo bench --bench tuning                 100,000 entities
//! cargo bench --bench tuning -- 1000000      a million
//! cargo bench --bench tuning -- --plans      with every explanation in full
//! ```
//!
//! 1. The benchmark imports the source of the `reads` benchmark with the default indexed columns as version 1.
//! 2. It explains each of the [`SLOW_READS`] reads and measures it with warm caches.
//! 3. It adds the paths that the explanations name to `index` and imports the source again as version 2.
//! 4. It explains and measures the same reads again. The bodies must not differ between the versions.
//!
//! The benchmark also prints the cost of the indexed columns: the file size and the import time with and without them.
//! It asserts no duration.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each benchmark uses a part of it")]
mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use futures::TryStreamExt;
use sha2::{Digest, Sha256};
use strata_encode::ContentCoding;
use strata_http::params;
use strata_service::{
    AuthorizationHeader, AuthorizedRead, ClientNetwork, ImportRequest, ProcessPurpose, ProfileRequest, ReadRequester,
    ReadTarget, RefreshCounters, ResponseBody, Services,
};
use strata_types::dataset::DatasetChange;
use strata_types::ids::DatasetId;
use strata_types::index_settings::IndexSettings;
use strata_types::read_request::ReadRequest;
use strata_types::user::{User, UserPlan};
use strata_types::version::{VersionNumber, VersionSelector, VersionVariant};

use support::import;
use support::samples::{Samples, thousands};
use support::source::Source;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads that are slow with the default indexed columns, with the path that each read needs.
const SLOW_READS: [(&str, &str); 3] = [
    // One entity in a hundred has a promotion.
    ("filter=promotion.percent:20&count=true", "promotion.percent"),
    // The texts are longer than the default choice allows for an indexed column.
    ("sort=description&limit=10", "description"),
    // Most of the entities that contain these letters contain them in the description, not in the reviews.
    ("filter_contains=reviews.text:stra&count=true", "reviews.text"),
];

/// Measures slow reads before and after a change of `index`
#[derive(Parser)]
struct TuningArguments {
    /// Number of entities
    #[arg(value_name = "ENTITIES", default_value = "100000")]
    entities: u64,
    /// Print every explanation in full, not only its plan
    #[arg(long)]
    plans: bool,
    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let arguments = TuningArguments::parse();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-reads");
    let source = Source::open(&directory, arguments.entities).expect("failed to generate the source file");
    let data = directory.join(format!("tuning-{}", arguments.entities));
    if data.exists() {
        std::fs::remove_dir_all(&data).expect("failed to remove the data of the last run");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    runtime.block_on(async {
        let bench = TuningBenchmark::open(source, &data, arguments.plans).await;
        bench.run().await;
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    std::fs::remove_dir_all(&data).expect("failed to remove the data");
}

/// The service and the user that all steps share.
struct TuningBenchmark {
    services: Arc<Services>,
    owner: User,
    source: Source,
    plans: bool,
}

/// An imported version, with the duration of its import and the size of its file.
struct MeasuredImport {
    dataset: DatasetId,
    name_slug: String,
    version: VersionNumber,
    duration: Duration,
    size_bytes: u64,
}

/// The measurement of one read of one version.
struct ReadMeasurement {
    plan: String,
    samples: Samples,
    body_sha256: Vec<u8>,
}

impl TuningBenchmark {
    async fn open(source: Source, data: &Path, plans: bool) -> TuningBenchmark {
        let mut config = import::config(data, (6 * source.json_bytes).max(1 << 30));
        config.query.timeout_s = 600;
        let services = Services::open(&config, ProcessPurpose::Serve).await.expect("failed to open the data directory");
        let added = services
            .accounts
            .add_user("bench@example.org", "not a secret", UserPlan::Scale, Some("bench"))
            .await
            .expect("failed to add a user");
        let token = added.expect("the response lacks the token");
        let owner = services
            .sessions
            .find_user_by_token(strata_service::ClientNetwork::Unspecified, token.expose())
            .await
            .expect("failed to query the catalog")
            .expect("failed to find the user")
            .user;
        TuningBenchmark { services, owner, source, plans }
    }

    async fn run(&self) {
        let first = self.import().await;
        let before = self.measure_all(&first).await;

        let always = SLOW_READS.map(|(_, path)| path);
        let index = IndexSettings::try_new(&always, &[]).expect("failed to parse the paths");
        let settings = DatasetChange { index: Some(index), ..DatasetChange::default() };
        self.services
            .datasets
            .update(&self.owner, first.dataset, settings)
            .await
            .expect("failed to update the dataset");
        let second = self.import().await;
        let after = self.measure_all(&second).await;

        println!("{} entities, {} bytes of JSON", thousands(self.source.entities), thousands(self.source.json_bytes));
        for (((query, path), before), after) in SLOW_READS.iter().zip(&before).zip(&after) {
            assert!(before.body_sha256 == after.body_sha256, "{query}: an index changed the answer");
            println!("\n{query}\n\nbefore:\n\n{}\nindex: always {path}\n\nafter:\n\n{}", before.plan, after.plan);
        }
        println!("{:<56} {:>12} {:>12} {:>8}", "warm median", "before ms", "after ms", "ratio");
        for (((query, _), before), after) in SLOW_READS.iter().zip(&before).zip(&after) {
            let [before, after] = [before, after].map(|measurement| measurement.samples.median().as_secs_f64() * 1e3);
            println!("{query:<56} {before:>12.2} {after:>12.2} {:>8.1}", before / after);
        }
        let duration_ms: fn(&MeasuredImport) -> u64 = |import| import.duration.as_millis() as u64;
        let size_bytes: fn(&MeasuredImport) -> u64 = |import| import.size_bytes;
        for (what, measured) in [("import, ms", duration_ms), ("file, bytes", size_bytes)] {
            let before = measured(&first);
            let after = measured(&second);
            println!(
                "{what:<56} {:>12} {:>12} {:>8.2}",
                thousands(before),
                thousands(after),
                before as f64 / after as f64
            );
        }
    }

    async fn import(&self) -> MeasuredImport {
        eprintln!("importing {} entities", self.source.entities);
        let request = ImportRequest {
            source: self.source.path.display().to_string(),
            name: "bench".to_owned(),
            owner_email: self.owner.email.clone(),
            about: strata_types::dataset::DatasetMetadata::default(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
        };
        let started = Instant::now();
        let imported = self
            .services
            .refreshes
            .import(request, Arc::new(RefreshCounters::default()))
            .await
            .expect("failed to import");
        let duration = started.elapsed();
        let profile = self
            .services
            .reads
            .profile(ProfileRequest {
                caller: Some(&self.owner),
                client: ClientNetwork::Unspecified,
                dataset: imported.dataset_id,
                version: VersionSelector::Latest,
                variant: VersionVariant::Original,
            })
            .await
            .expect("failed to read the profile");
        MeasuredImport {
            dataset: imported.dataset_id,
            name_slug: imported.name_slug,
            version: imported.version,
            duration,
            size_bytes: profile.file_size_bytes,
        }
    }

    /// Explains and measures every read.
    async fn measure_all(&self, imported: &MeasuredImport) -> Vec<ReadMeasurement> {
        let mut all = Vec::new();
        for (query, _) in SLOW_READS {
            eprintln!("version {}: {query}", imported.version);
            all.push(self.measure(imported, query).await);
        }
        all
    }

    async fn measure(&self, imported: &MeasuredImport, query: &str) -> ReadMeasurement {
        let request = || params::parse_query(Some(query)).expect("failed to parse the query").0;
        // The first read warms the caches for both the explanation and the measurement.
        let body_sha256 = self.read(imported, request()).await;
        let selector = VersionSelector::Number(imported.version);
        let explained =
            self.services.reads.explain(Some(&self.owner), imported.dataset, selector, request(), Vec::new()).await;
        let explained = explained.expect("failed to explain").to_string();
        let plan = if self.plans { explained } else { plan_of(&explained) };
        let mut samples = Samples::default();
        let started = Instant::now();
        while samples.wants_more(started, 5) {
            let started = Instant::now();
            let again = self.read(imported, request()).await;
            samples.add(started.elapsed());
            assert!(again == body_sha256, "{query}: another body");
        }
        ReadMeasurement { plan, samples, body_sha256 }
    }

    /// Reads like the endpoint. Returns the SHA-256 hash of the body without the version number that a count contains.
    async fn read(&self, imported: &MeasuredImport, request: ReadRequest) -> Vec<u8> {
        let target = ReadTarget {
            dataset: imported.dataset,
            name_slug: imported.name_slug.clone(),
            version: VersionSelector::Number(imported.version),
        };
        let lookup = self.services.lookups.find(&target).await.expect("failed to query the catalog");
        let anyone =
            ReadRequester::Client { client: ClientNetwork::Unspecified, authorization: AuthorizationHeader::None };
        let admitted = lookup.authorize(anyone, VersionVariant::Original).expect("the dataset is not public");
        let count = request.count;
        let answer = self
            .services
            .reads
            .respond(AuthorizedRead::new(&admitted, &Arc::new(request)), ContentCoding::Identity)
            .await
            .expect("failed to get a response");
        if count {
            return answer.total.to_le_bytes().to_vec();
        }
        let mut hash = Sha256::new();
        match answer.body {
            ResponseBody::Whole(bytes) => hash.update(&bytes),
            ResponseBody::Stream(mut chunks) => {
                while let Some(chunk) = chunks.try_next().await.expect("failed to read the body") {
                    hash.update(&chunk);
                }
            }
            ResponseBody::Export(_) => unreachable!("no read has the format parquet"),
        }
        hash.finalize().to_vec()
    }
}

/// Returns the sections of an explanation that describe how the query found its result.
fn plan_of(explained: &str) -> String {
    let sections = explained.split("\n\n").filter(|section| {
        ["Physical plan", "Scan", "Document pages", "Hints"].iter().any(|title| section.starts_with(title))
    });
    sections.fold(String::new(), |text, section| text + section.trim_end() + "\n\n")
}
