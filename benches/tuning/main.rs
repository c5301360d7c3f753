//! Slow reads made fast with `index`: the plan and the time of each, the change, the plan and the time after it.
//!
//! ```text
//! cargo bench --bench tuning                 100,000 entities
//! cargo bench --bench tuning -- 1000000      a million
//! cargo bench --bench tuning -- --plans      with every explanation in full
//! ```
//!
//! Steps:
//! 1. The source of the benchmark of reads is imported with the default choice of shredded columns: version 1.
//! 2. Each of the [`SLOW`] reads is explained, and measured warm.
//! 3. The paths that the explanations name are put into `index`, and the source is imported again: version 2.
//! 4. The same reads are explained and measured again. Their bodies must be those of version 1.
//!
//! What the shredded columns cost is told, too: the size of the file and the time of the import, with and without them.
//! No duration is asserted.

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
    AnswerBody, Authorization, AuthorizedRead, Client, ImportProgress, ImportRequest, ProfileRequest, Purpose,
    ReadTarget, Requester, Services,
};
use strata_types::dataset::DatasetChange;
use strata_types::ids::DatasetId;
use strata_types::index::IndexSettings;
use strata_types::request::ReadRequest;
use strata_types::user::{Plan, User};
use strata_types::version::{VersionNumber, VersionSelector};

use support::import;
use support::samples::{Samples, thousands};
use support::source::Source;

/// The allocator of the service's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Reads that the default choice of shredded columns leaves slow, with the path that each needs.
const SLOW: [(&str, &str); 3] = [
    // One entity in a hundred has a promotion.
    ("filter=promotion.percent:20&count=true", "promotion.percent"),
    // Longer texts than get a shredded column by themselves.
    ("sort=description&limit=10", "description"),
    // Of the entities that hold these letters anywhere, most do in their description.
    ("filter_contains=reviews.text:stra&count=true", "reviews.text"),
];

/// Measures slow reads before and after a change of `index`
#[derive(Parser)]
struct Arguments {
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
    let arguments = Arguments::parse();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-reads");
    let source = Source::open(&directory, arguments.entities).expect("the source file can be made");
    let data = directory.join(format!("tuning-{}", arguments.entities));
    if data.exists() {
        std::fs::remove_dir_all(&data).expect("the last run's data can be removed");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    runtime.block_on(async {
        let bench = Bench::open(source, &data, arguments.plans).await;
        bench.run().await;
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    std::fs::remove_dir_all(&data).expect("the data can be removed");
}

/// What all steps share.
struct Bench {
    services: Arc<Services>,
    owner: User,
    source: Source,
    plans: bool,
}

/// A version that was made.
struct Imported {
    dataset: DatasetId,
    name_slug: String,
    version: VersionNumber,
    duration: Duration,
    size_bytes: u64,
}

/// What was seen of a read of one version.
struct Seen {
    plan: String,
    samples: Samples,
    body_sha256: Vec<u8>,
}

impl Bench {
    async fn open(source: Source, data: &Path, plans: bool) -> Bench {
        let mut config = import::config(data, (6 * source.json_bytes).max(1 << 30));
        config.query.timeout_s = 600;
        let services = Services::open(&config, Purpose::Serve).await.expect("a data directory");
        let added = services
            .accounts
            .add_user("bench@example.org", "not a secret", Plan::Scale, Some("bench"))
            .await
            .expect("a user");
        let token = added.expect("a token was asked for");
        let owner = services
            .sessions
            .user_of_token(strata_service::Client::Unspecified, token.expose())
            .await
            .expect("the catalog answers")
            .expect("the user")
            .user;
        Bench { services, owner, source, plans }
    }

    async fn run(&self) {
        let first = self.import().await;
        let before = self.see(&first).await;

        let always = SLOW.map(|(_, path)| path);
        let index = IndexSettings::try_new(&always, &[]).expect("paths");
        let settings = DatasetChange { index: Some(index), ..DatasetChange::default() };
        self.services.datasets.update(&self.owner, first.dataset, settings).await.expect("an update");
        let second = self.import().await;
        let after = self.see(&second).await;

        println!("{} entities, {} bytes of JSON", thousands(self.source.entities), thousands(self.source.json_bytes));
        for (((query, path), before), after) in SLOW.iter().zip(&before).zip(&after) {
            assert!(before.body_sha256 == after.body_sha256, "{query}: an index changed the answer");
            println!("\n{query}\n\nbefore:\n\n{}\nindex: always {path}\n\nafter:\n\n{}", before.plan, after.plan);
        }
        println!("{:<56} {:>12} {:>12} {:>8}", "warm median", "before ms", "after ms", "ratio");
        for (((query, _), before), after) in SLOW.iter().zip(&before).zip(&after) {
            let [before, after] = [before, after].map(|seen| seen.samples.median().as_secs_f64() * 1e3);
            println!("{query:<56} {before:>12.2} {after:>12.2} {:>8.1}", before / after);
        }
        for (what, of) in [
            ("import, ms", (|made: &Imported| made.duration.as_millis() as u64) as fn(&Imported) -> u64),
            ("file, bytes", |made: &Imported| made.size_bytes),
        ] {
            let (before, after) = (of(&first), of(&second));
            println!(
                "{what:<56} {:>12} {:>12} {:>8.2}",
                thousands(before),
                thousands(after),
                before as f64 / after as f64
            );
        }
    }

    async fn import(&self) -> Imported {
        eprintln!("importing {} entities", self.source.entities);
        let request = ImportRequest {
            source: self.source.path.display().to_string(),
            name: "bench".to_owned(),
            owner_email: self.owner.email.clone(),
            about: strata_types::dataset::About::default(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
        };
        let started = Instant::now();
        let imported =
            self.services.refreshes.import(request, Arc::new(ImportProgress::default())).await.expect("an import");
        let duration = started.elapsed();
        let profile = self
            .services
            .reads
            .profile(ProfileRequest {
                caller: Some(&self.owner),
                client: Client::Unspecified,
                dataset: imported.dataset_id,
                version: VersionSelector::Latest,
                alt: false,
            })
            .await
            .expect("a profile");
        Imported {
            dataset: imported.dataset_id,
            name_slug: imported.name_slug,
            version: imported.version,
            duration,
            size_bytes: profile.file_size_bytes,
        }
    }

    /// Explains and measures every read.
    async fn see(&self, imported: &Imported) -> Vec<Seen> {
        let mut all = Vec::new();
        for (query, _) in SLOW {
            eprintln!("version {}: {query}", imported.version);
            all.push(self.see_one(imported, query).await);
        }
        all
    }

    async fn see_one(&self, imported: &Imported, query: &str) -> Seen {
        let request = || params::parse(Some(query)).expect("the query is valid").0;
        // What is measured is warm, so is what is explained.
        let body_sha256 = self.read(imported, request()).await;
        let selector = VersionSelector::Number(imported.version);
        let explained =
            self.services.reads.explain(Some(&self.owner), imported.dataset, selector, request(), Vec::new()).await;
        let explained = explained.expect("an explanation").to_string();
        let plan = if self.plans { explained } else { plan_of(&explained) };
        let (mut samples, started) = (Samples::default(), Instant::now());
        while samples.wants_more(started, 5) {
            let started = Instant::now();
            let again = self.read(imported, request()).await;
            samples.add(started.elapsed());
            assert!(again == body_sha256, "{query}: another body");
        }
        Seen { plan, samples, body_sha256 }
    }

    /// Reads as the endpoint does; the SHA-256 of the body, but for the number of the version that a count holds.
    async fn read(&self, imported: &Imported, request: ReadRequest) -> Vec<u8> {
        let target = ReadTarget {
            dataset: imported.dataset,
            name_slug: imported.name_slug.clone(),
            version: VersionSelector::Number(imported.version),
        };
        let lookup = self.services.lookups.find(&target).await.expect("the catalog answers");
        let anyone = Requester::Client { client: Client::Unspecified, authorization: Authorization::None };
        let admitted = lookup.authorize(anyone, false).expect("a public dataset");
        let count = request.count;
        let answer = self
            .services
            .reads
            .respond(AuthorizedRead::new(&admitted, &Arc::new(request)), ContentCoding::Identity)
            .await
            .expect("an answer");
        if count {
            return answer.total.to_le_bytes().to_vec();
        }
        let mut hash = Sha256::new();
        match answer.body {
            AnswerBody::Whole(bytes) => hash.update(&bytes),
            AnswerBody::Stream(mut chunks) => {
                while let Some(chunk) = chunks.try_next().await.expect("the rest of the body") {
                    hash.update(&chunk);
                }
            }
            AnswerBody::Export(_) => unreachable!("no read asks for Parquet"),
        }
        hash.finalize().to_vec()
    }
}

/// The sections of an explanation that tell how it found what it found.
fn plan_of(explained: &str) -> String {
    let sections = explained.split("\n\n").filter(|section| {
        ["Physical plan", "Scan", "Document pages", "Hints"].iter().any(|title| section.starts_with(title))
    });
    sections.fold(String::new(), |text, section| text + section.trim_end() + "\n\n")
}
