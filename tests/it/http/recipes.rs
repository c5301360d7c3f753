//! The programs in `docs/guides/client-code.md` print the documented output, although the service returns errors,
//! publishes a version between two pages, and interrupts downloads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{IF_RANGE, RANGE};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http_body_util::BodyExt;
use strata_testing::machine::get;
use strata_testing::pages::page;
use strata_testing::scripts::tool;
use strata_testing::serving::serve;
use strata_testing::{FIXTURE_FILES, FIXTURES, ImportedSource, TestService};

const PAGE: &str = "docs/guides/client-code.md";

/// The languages, as in the code fences.
const LANGUAGES: [&str; 4] = ["python", "r", "js", "sh"];

/// The rate limit per minute: more requests than a program sends.
const READS: usize = 25;

/// The number of consecutive interrupted downloads.
const CUTS: usize = 2;

/// A clock that stands still: first at the start of a minute, in which the test uses up the rate limit, and then
/// shortly before its end, until a request returns 429. So every program gets a 429, and waits 2 s.
#[derive(Clone, Default)]
struct LateClock {
    is_late: Arc<AtomicBool>,
    refused: Arc<OnceLock<Instant>>,
}

impl LateClock {
    fn elapsed(&self) -> Duration {
        let late = if self.is_late.load(Ordering::SeqCst) { Duration::from_millis(58_500) } else { Duration::ZERO };
        late + self.refused.get().map(Instant::elapsed).unwrap_or_default()
    }
}

/// A layer that causes problems between a program and the service.
struct Trouble {
    service: Arc<TestService>,
    clock: LateClock,
    /// The next version of the dataset.
    source: PathBuf,
    was_busy: AtomicBool,
    has_published: AtomicBool,
    cuts: AtomicUsize,
    seen: Mutex<Vec<Seen>>,
}

/// A request and the status of its response.
#[derive(Debug)]
struct Seen {
    uri: String,
    /// Whether the request resumes a download (`Range` and `If-Range`).
    is_resumption: bool,
    status: u16,
}

/// Causes problems after the first 429: a 503, a new version after the first page, and interrupted downloads.
async fn trouble(State(trouble): State<Arc<Trouble>>, request: Request, next: Next) -> Response {
    let uri = request.uri().to_string();
    let is_resumption = [RANGE, IF_RANGE].iter().all(|name| request.headers().contains_key(name));
    let mut answer = next.run(request).await;
    if answer.status() == 429 {
        let _ = trouble.clock.refused.set(Instant::now());
    } else if trouble.clock.refused.get().is_some() && answer.status().is_success() {
        if !trouble.was_busy.swap(true, Ordering::SeqCst) {
            // A 503 of a read has no `Retry-After`.
            answer = (axum::http::StatusCode::SERVICE_UNAVAILABLE, "Too busy. Try again in 1 s.").into_response();
        } else if uri.contains("/active/") && !trouble.has_published.swap(true, Ordering::SeqCst) {
            trouble.publish().await;
        } else if uri.contains("/earthquakes/v1/?format=parquet") && trouble.takes_a_cut() {
            answer = cut(answer).await;
        }
    }
    let seen = Seen { uri, is_resumption, status: answer.status().as_u16() };
    trouble.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
    answer
}

impl Trouble {
    async fn publish(&self) {
        let source = ImportedSource::new("Earthquakes", self.source.to_str().expect("invalid UTF-8"));
        let published = self.service.import_source(source).await.expect("failed to import");
        assert_eq!(published.version.get(), 2);
    }

    fn takes_a_cut(&self) -> bool {
        self.cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

/// Imports the demo datasets that the programs read, with their IDs. The others are empty. Returns the key of the
/// private dataset.
async fn load(service: &TestService) -> String {
    let empty = service.directory().join("empty.json");
    std::fs::write(&empty, "[]").expect("failed to write");
    let mut key = None;
    for (name, file, records_path) in FIXTURE_FILES {
        let is_read = ["Earthquakes", "Palmer Penguins"].contains(&name);
        let source = if is_read { Path::new(FIXTURES).join(file) } else { empty.clone() };
        let source = ImportedSource {
            private: name == "Palmer Penguins",
            records_path: records_path.filter(|_| is_read),
            ..ImportedSource::new(name, source.to_str().expect("invalid UTF-8"))
        };
        key = service.import_source(source).await.expect("failed to import").private_key;
    }
    key.expect("last dataset is not private").expose().to_owned()
}

/// Interrupts a response after half of its body.
async fn cut(answer: Response) -> Response {
    let (parts, body) = answer.into_parts();
    let whole = body.collect().await.expect("missing body").to_bytes();
    let half = whole.slice(..whole.len() / 2);
    // The first half is sent before the failure.
    let broken = futures::stream::once(async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Err(std::io::Error::other("cut"))
    });
    let stream = futures::stream::iter([Ok(half)]).chain(broken);
    Response::from_parts(parts, Body::from_stream(stream))
}

/// Returns the program of a language and its expected output.
fn recipe(language: &str) -> (String, String) {
    let mut program = String::new();
    let mut expected = String::new();
    let text = page(PAGE);
    let mut is_its = false;
    for block in text.split("\n```").skip(1).step_by(2) {
        let (kind, block) = block.split_once('\n').expect("missing block");
        if LANGUAGES.contains(&kind) {
            is_its = kind == language;
        }
        match kind {
            "text" if is_its => expected.extend([block, "\n"]),
            _ if kind == language => program.extend([block, "\n"]),
            _ => {}
        }
    }
    (program, expected)
}

/// Runs the program of a language. `command` gets the name of the file with the program.
async fn check(language: &str, mut command: Command, file: &str) {
    let clock = LateClock::default();
    let counted = clock.clone();
    let service = TestService::timed_by(
        move || counted.elapsed(),
        |config| {
            config.limits.public_per_minute = READS as u64;
        },
    );
    let service = Arc::new(service.await);
    let key = load(&service).await;
    let source = service.directory().join("next.json");
    std::fs::write(&source, "[{\"properties\":{\"mag\":9.9,\"place\":\"nowhere\"}}]").expect("failed to write");
    let trouble_made = Arc::new(Trouble {
        service: service.clone(),
        clock: clock.clone(),
        source,
        was_busy: AtomicBool::default(),
        has_published: AtomicBool::default(),
        cuts: AtomicUsize::new(CUTS),
        seen: Mutex::default(),
    });
    let address = serve(service.router().layer(from_fn_with_state(trouble_made.clone(), trouble))).await;

    let (program, expected) = recipe(language);
    let directory = tempfile::tempdir().expect("failed to create directory");
    let program = program.replace("127.0.0.1:8080", &address.to_string());
    std::fs::write(directory.path().join(file), program).expect("failed to write");
    command.arg(file).current_dir(directory.path()).env("STRATA_KEY", key).env("NO_PROXY", "*").stdin(Stdio::null());
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env_remove(name);
    }
    let run = tokio::task::spawn_blocking(move || {
        // The rate limit of this minute is used up.
        for _ in 0..READS {
            get(&format!("http://{address}/api/1/nothing/v1/"), None);
        }
        clock.is_late.store(true, Ordering::SeqCst);
        command.output().expect("failed to run program")
    });
    let output = run.await.expect("task panicked");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let seen = std::mem::take(&mut *trouble_made.seen.lock().unwrap_or_else(PoisonError::into_inner));
    let seen = &seen[READS..];
    assert!(output.status.success(), "{printed}{errors}{seen:#?}");
    assert_eq!(printed, expected, "{PAGE}, {language}: {errors}");

    // The program met all problems, and the file is complete.
    let count = |status| seen.iter().filter(|seen| seen.status == status).count();
    assert_eq!((count(429), count(503)), (1, 1), "{seen:#?}");
    let parts = seen.iter().filter(|seen| seen.is_resumption).map(|seen| seen.status).collect::<Vec<_>>();
    assert_eq!(parts, [206; CUTS], "{seen:#?}");
    let pages = seen.iter().filter(|seen| seen.uri.contains("/earthquakes/v1/?") && seen.uri.contains("limit=500"));
    assert!(trouble_made.has_published.load(Ordering::SeqCst) && pages.count() >= 3, "{seen:#?}");
    let direct = service.get("/api/3/earthquakes/v1/?format=parquet&typed=true").await;
    let file = std::fs::read(directory.path().join("earthquakes.parquet")).expect("missing file");
    assert!(file == direct.body, "{} bytes instead of {}", file.len(), direct.body.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_recipes_work() {
    check("python", tool("python"), "recipes.py").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: needs R"]
async fn r_recipes_work() {
    check("r", Command::new("Rscript"), "recipes.R").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn javascript_recipes_work() {
    check("js", Command::new("node"), "recipes.mjs").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shell_recipes_work() {
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail"]);
    check("sh", bash, "recipes.sh").await;
}

#[test]
fn every_recipe_is_tested() {
    let text = page(PAGE);
    let blocks: Vec<&str> = text.split("\n```").collect();
    assert!(blocks.len() % 2 == 1, "a block has no end");
    let kinds: BTreeSet<&str> = blocks.iter().skip(1).step_by(2).filter_map(|block| block.lines().next()).collect();
    assert_eq!(kinds, BTreeSet::from_iter(LANGUAGES.into_iter().chain(["text", "console"])));
    for language in LANGUAGES {
        let (program, expected) = recipe(language);
        for word in ["127.0.0.1:8080", "STRATA_KEY"] {
            assert!(program.contains(word), "{language}: {word}");
        }
        assert!(expected.contains("344"), "{language}");
    }
    // The programs contain only the URL of the demo, so they send requests to no other server.
    let urls = |text: &str| text.matches("://").count();
    let all: usize = LANGUAGES.iter().map(|language| urls(&recipe(language).0)).sum();
    assert_eq!(all, LANGUAGES.len());
}
