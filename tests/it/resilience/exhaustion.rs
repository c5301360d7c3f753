//! Tests of a resource that is exhausted or unavailable: disk space, file descriptors, a directory, a lock, or the
//! store. Each test takes the resource away from a running server, tries every operation, and gives the resource back.
//!
//! While the resource is unavailable, operations that do not need it return the same bytes as before. Operations that
//! need it return 503 with a readable reason and without internal names, and `/readyz` reports it. Afterwards,
//! everything works again without a restart, and no incomplete file, descriptor, or permit remains.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use strata_testing::faultfs::FaultFs;
use strata_testing::http_client;
use strata_testing::loopback_server::{LoopbackServer, ok};
use strata_testing::machine::{Machine, Server, succeeded};
use strata_testing::s3_server::S3Server;

/// Longer than any operation takes; a hang exceeds it.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

/// The operations that each test tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ServiceOperation {
    /// Reads a page that is not in any cache.
    Read,
    /// Reads a Parquet export that is not in any cache.
    Export,
    Push,
    Fetch,
    Alternate,
    Diff,
    /// A management call that writes nothing.
    List,
    /// A management call that writes.
    Create,
    Backup,
    Sweep,
}

const OPERATIONS: [ServiceOperation; 10] = [
    ServiceOperation::Read,
    ServiceOperation::Export,
    ServiceOperation::Push,
    ServiceOperation::Fetch,
    ServiceOperation::Alternate,
    ServiceOperation::Diff,
    ServiceOperation::List,
    ServiceOperation::Create,
    ServiceOperation::Backup,
    ServiceOperation::Sweep,
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum OperationOutcome {
    Done,
    /// The operation returned 503, or the command failed, with this text.
    Refused(String),
    /// Any other result.
    Wrong(String),
}

/// The way in which the test takes a resource away.
#[derive(Clone, Copy)]
enum Removal {
    /// Rules for the file system of `FaultFs`.
    Rules(&'static [&'static str]),
    /// Another process holds the write lock of the catalog.
    Lock,
    StoppedStore,
    /// The S3 server rejects requests with these methods.
    RefusingStore(&'static [&'static str]),
}

/// A resource and the expected failures without it.
struct Resource {
    name: &'static str,
    means: Removal,
    /// A phrase in the texts of all failures.
    says: &'static str,
    /// The operations that fail; all others succeed.
    refused: &'static [ServiceOperation],
    /// Operations that may fail or succeed, because their data can be in a cache or in an open file.
    either: &'static [ServiceOperation],
    /// Whether `/readyz` reports the service as ready.
    ready: bool,
}

use ServiceOperation::{Alternate, Backup, Create, Diff, Export, Fetch, Push, Read, Sweep};

const RESOURCES: [Resource; 8] = [
    Resource {
        name: "the disk of the data directory is full",
        means: Removal::Rules(&["quota strata-data 0", "quota copies 0"]),
        says: "full",
        refused: &[Push, Fetch, Alternate, Create],
        // These commands report errors in their own words.
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the disk of the store is full",
        means: Removal::Rules(&["quota strata-data/store 0"]),
        says: "a disk is full",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the disk of temporary files is full",
        means: Removal::Rules(&["quota strata-data/tmp 0"]),
        says: "a disk is full",
        refused: &[Push, Fetch, Alternate],
        // Commands use their own temporary directory.
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "the directory of temporary files takes no files",
        means: Removal::Rules(&["fail open,create strata-data/tmp/* 1 0 EACCES"]),
        says: "the directory for temporary files cannot be used: access to the disk is denied",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "the disk of exports is full",
        means: Removal::Rules(&["quota strata-data/exports 0"]),
        says: "full",
        refused: &[],
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "no file can be opened",
        means: Removal::Rules(&[
            "fail open,create strata-data/store/* 1 0 EMFILE",
            "fail open,create strata-data/tmp/* 1 0 EMFILE",
        ]),
        says: "no file descriptors are left",
        refused: &[Push, Fetch, Alternate],
        either: &[Read, Export, Diff, Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the store's directory cannot be read or written",
        means: Removal::Rules(&["fail open,create,list,stat,unlink strata-data/store* 1 0 EACCES"]),
        says: "access to the disk is denied",
        refused: &[Push, Fetch, Alternate],
        either: &[Read, Export, Diff, Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the catalog is locked by another process",
        means: Removal::Lock,
        says: "locked",
        refused: &[Push, Fetch, Alternate, Create, Backup, Sweep],
        either: &[],
        ready: false,
    },
];

const STORE_RESOURCES: [Resource; 3] = [
    Resource {
        name: "the S3 server is stopped",
        means: Removal::StoppedStore,
        says: "is not responding",
        refused: &[Read, Export, Push, Fetch, Alternate, Diff],
        // These commands report errors in their own words.
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the S3 server gives no object",
        means: Removal::RefusingStore(&["GET", "HEAD"]),
        says: "the S3 version file store denied access: the credentials lack the permission s3:GetObject",
        // The service records a version only after it has checked that the store is its own.
        refused: &[Read, Export, Push, Fetch, Alternate, Diff],
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the S3 server takes no object",
        means: Removal::RefusingStore(&["PUT", "POST"]),
        says: "the S3 version file store denied access: the credentials lack the permission s3:PutObject",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: false,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exhausted_resource_is_reported_and_recovers() {
    check(ExhaustionFixture::new(None).await, &RESOURCES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_store_is_reported_and_recovers() {
    check(ExhaustionFixture::new(Some(S3Server::start().await)).await, &STORE_RESOURCES).await;
}

async fn check(mut fixture: ExhaustionFixture, resources: &[Resource]) {
    let mut wrong = String::new();
    for resource in resources {
        let before = fixture.assert_all_work().await;
        let lock = fixture.take_away(resource.means).await;
        for operation in OPERATIONS {
            let outcome = fixture.try_out(operation).await;
            let expected = match &outcome {
                OperationOutcome::Done => !resource.refused.contains(&operation),
                OperationOutcome::Refused(_) if resource.either.contains(&operation) => true,
                OperationOutcome::Refused(text) => {
                    text.contains(resource.says) && resource.refused.contains(&operation)
                }
                OperationOutcome::Wrong(_) => false,
            };
            println!("{}: {operation:?}: {outcome:?}", resource.name);
            if !expected {
                writeln!(wrong, "{}: {operation:?}: {outcome:?}", resource.name).expect("written");
            }
        }
        if fixture.becomes_ready(resource.ready).await != resource.ready {
            writeln!(wrong, "{}: /readyz does not follow", resource.name).expect("written");
        }
        fixture.give_back(lock).await;
        if !fixture.becomes_ready(true).await {
            writeln!(wrong, "{}: not ready when it is back", resource.name).expect("written");
        }
        let after = fixture.assert_all_work().await;
        if after > before + 4 {
            writeln!(wrong, "{}: {before} descriptors before, {after} after", resource.name).expect("written");
        }
    }
    fixture.stop().await;
    assert_eq!(wrong, "");
}

/// A server with one dataset that tests push to and one with a source.
struct ExhaustionFixture {
    machine: Machine,
    faults: FaultFs,
    server: Option<Server>,
    base_url: String,
    token: String,
    client: reqwest::Client,
    _source: LoopbackServer,
    store: Option<S3Server>,
    /// The environment of the server and of the commands.
    environment: Vec<(&'static str, String)>,
    /// The latest acknowledged version number of each dataset.
    versions: BTreeMap<u64, u64>,
    /// A counter that makes requests and names unique.
    number: u64,
}

const ENTITIES: u64 = 400;

fn entities(version: u64) -> Value {
    let entity = |n: u64| json!({"version": version, "n": n, "text": format!("text {n} {}", "x".repeat(200))});
    Value::Array((0..ENTITIES).map(entity).collect())
}

impl ExhaustionFixture {
    /// Starts a server with a directory or an S3 server as its store.
    async fn new(store: Option<S3Server>) -> ExhaustionFixture {
        let machine = Machine::new();
        let arguments = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci"];
        let token = succeeded(&machine.run_with_input(&arguments, "correct horse\n"));
        let token = token.lines().last().expect("failed to find the token").to_owned();
        std::fs::create_dir(machine.path("copies")).expect("failed to create the directory");
        let faults = FaultFs::below(&machine.path(""));
        let mut environment = vec![
            ("STRATA_NET__ALLOW", "127.0.0.0/8".to_owned()),
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0".to_owned()),
            // The caches are disabled, so that every read uses the store.
            ("STRATA_CACHE__MEMORY_BYTES", "0".to_owned()),
            ("STRATA_CACHE__RESPONSE_BYTES", "0".to_owned()),
            ("STRATA_CACHE__DIFF_BYTES", "0".to_owned()),
            // The service retries a failed store request for at most one second.
            ("STRATA_STORE__RETRY_S", "1".to_owned()),
        ];
        environment.extend(store.iter().flat_map(S3Server::environment));
        let names: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let server = faults.serve(&machine, &[], &names);
        // The entities differ each time, because versions with equal entities share one file.
        let number = AtomicU64::new(0);
        let source = LoopbackServer::start(move |_| {
            let number = number.fetch_add(1, Ordering::SeqCst);
            ok("Content-Type: application/json\r\n", format!("[{{\"fetched\":{number}}}]").as_bytes())
        });
        let base_url = server.base_url.clone();
        let client = http_client();
        let client = client.timeout(HANG_TIMEOUT).build().expect("failed to build the client");
        let url = source.url("/");
        let mut fixture = ExhaustionFixture {
            machine,
            faults,
            server: Some(server),
            base_url,
            token,
            client,
            _source: source,
            store,
            environment,
            versions: BTreeMap::from([(1, 0), (2, 0)]),
            number: 0,
        };
        for (name, source) in [("Pushed", "push"), ("Fetched", url.as_str())] {
            let created = fixture.call(Method::POST, "/dataset/create", json!({"name": name, "source": source})).await;
            assert_eq!(created.0, StatusCode::OK, "{}", created.1);
        }
        for _ in 0..2 {
            assert_eq!(fixture.try_out(ServiceOperation::Push).await, OperationOutcome::Done);
        }
        fixture
    }

    /// Takes the resource away. The test must pass the returned lock to [`ExhaustionFixture::give_back`].
    async fn take_away(&mut self, means: Removal) -> Option<SqlitePool> {
        match means {
            Removal::Rules(rules) => self.faults.set(rules),
            Removal::StoppedStore => self.store.as_mut().expect("the store is no S3 server").stop().await,
            Removal::RefusingStore(methods) => self.store.as_ref().expect("the store is no S3 server").refuse(methods),
            Removal::Lock => {
                let path = self.machine.path("strata-data/catalog.sqlite");
                let options = SqlitePoolOptions::new().max_connections(1);
                let catalog =
                    options.connect(&format!("sqlite://{}", path.display())).await.expect("failed to open the catalog");
                sqlx::query("BEGIN IMMEDIATE").execute(&catalog).await.expect("failed to lock");
                return Some(catalog);
            }
        }
        None
    }

    /// Gives the resource back.
    async fn give_back(&mut self, lock: Option<SqlitePool>) {
        self.faults.set(&[]);
        if let Some(catalog) = lock {
            catalog.close().await;
        }
        if let Some(store) = &mut self.store {
            store.refuse(&[]);
            store.stop().await;
            store.resume().await;
        }
    }

    /// Asserts that every operation works. Returns the number of open descriptors afterwards.
    async fn assert_all_work(&mut self) -> usize {
        for operation in OPERATIONS {
            assert_eq!(self.try_out(operation).await, OperationOutcome::Done, "{operation:?}");
        }
        // Connections of the database driver and to sources close a moment later.
        let mut fewest = usize::MAX;
        for _ in 0..20 {
            fewest = fewest.min(self.descriptors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fewest
    }

    fn descriptors(&self) -> usize {
        let id = self.server.as_ref().expect("failed to start the server").id();
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("failed to run the process").count()
    }

    /// Waits until `/readyz` returns the expected status, or until the service must have noticed. Returns whether it is
    /// ready.
    async fn becomes_ready(&self, expected: bool) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let answer =
                self.client.get(format!("{}/readyz", self.base_url)).send().await.expect("failed to get a response");
            let status = answer.status();
            let text = answer.text().await.expect("failed to read the body");
            assert!(status == StatusCode::OK || status == StatusCode::SERVICE_UNAVAILABLE, "{status} {text}");
            if status.is_success() == expected || Instant::now() > until {
                return status.is_success();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Makes a call as the owner and returns the status and the body.
    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, String) {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(&self.token);
        let request = match body {
            Value::Null => request,
            body => request.header("content-type", "application/json").body(body.to_string()),
        };
        let answer = request.send().await.expect("failed to get a response in time");
        let status = answer.status();
        if status.is_server_error() {
            assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8", "{path}");
            // Reads have this header only with status 429.
            let expected = status.as_u16() == 503 && !path.starts_with("/api/");
            assert_eq!(answer.headers().contains_key("retry-after"), expected, "{path}");
        }
        let bytes = answer.bytes().await.expect("failed to read the body");
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Tries an operation and checks its result.
    async fn try_out(&mut self, operation: ServiceOperation) -> OperationOutcome {
        self.number += 1;
        let number = self.number;
        let (status, text) = match operation {
            ServiceOperation::Read => {
                let offset = number % ENTITIES;
                let page = format!("/api/1/pushed/v1/?offset={offset}&limit=1&filter=n:{offset}&x{number}");
                let page = page.replace(&format!("offset={offset}&"), "");
                let (status, text) = self.call(Method::GET, &page, Value::Null).await;
                if status == StatusCode::OK {
                    let read: Value = serde_json::from_str(&text).expect("failed to parse JSON");
                    assert_eq!(read, json!([entities(1)[offset as usize]]), "{page}");
                }
                (status, text)
            }
            ServiceOperation::Export => {
                let path = format!("/api/1/pushed/v2/?format=parquet&offset={}", number % ENTITIES);
                let (status, text) = self.call(Method::GET, &path, Value::Null).await;
                assert!(status != StatusCode::OK || (text.starts_with("PAR1") && text.ends_with("PAR1")));
                (status, text)
            }
            ServiceOperation::Push => {
                let next = self.versions[&1] + 1;
                let body = json!({"dataset_id": 1, "entities": entities(next)});
                let made = self.call(Method::POST, "/dataset/refresh", body).await;
                self.count_version(1, made)
            }
            ServiceOperation::Fetch => {
                let made = self.call(Method::POST, "/dataset/refresh", json!({"dataset_id": 2})).await;
                self.count_version(2, made)
            }
            ServiceOperation::Alternate => {
                let body = json!({"dataset_id": 1, "version": 1, "entities": [{"alternate": number}]});
                let saved = self.call(Method::POST, "/dataset/alternate/save", body).await;
                if saved.0 == StatusCode::OK {
                    let (_, read) = self.call(Method::GET, "/api/1/pushed/v1/alt/?pretty=false", Value::Null).await;
                    assert_eq!(read, format!("[{{\"alternate\":{number}}}]"));
                }
                saved
            }
            ServiceOperation::Diff => {
                let path = format!("/dataset/diff?dataset_id=1&v1=1&v2=2&offset={number}&limit=1");
                let (status, text) = self.call(Method::GET, &path, Value::Null).await;
                if status == StatusCode::OK {
                    let diff: Value = serde_json::from_str(&text).expect("failed to parse JSON");
                    assert_eq!(diff["modified"], json!(ENTITIES), "{text}");
                }
                (status, text)
            }
            ServiceOperation::List => self.call(Method::GET, "/dataset/list", Value::Null).await,
            ServiceOperation::Create => {
                let body = json!({"name": format!("New {number}"), "source": "push"});
                self.call(Method::POST, "/dataset/create", body).await
            }
            ServiceOperation::Backup => return self.command(&["backup", &format!("copies/{number}"), "--copy"]),
            ServiceOperation::Sweep => return self.command(&["sweep", "--older-than", "2h"]),
        };
        match status {
            StatusCode::OK => OperationOutcome::Done,
            StatusCode::SERVICE_UNAVAILABLE => {
                let directory = self.machine.path("");
                assert!(!text.contains(&*directory.to_string_lossy()) && !text.contains(&self.token), "{text}");
                OperationOutcome::Refused(text)
            }
            other => OperationOutcome::Wrong(format!("{other}: {text}")),
        }
    }

    /// Counts an acknowledged version and asserts that its number is the next one.
    fn count_version(&mut self, dataset: u64, answer: (StatusCode, String)) -> (StatusCode, String) {
        if answer.0 == StatusCode::OK {
            let made: Value = serde_json::from_str(&answer.1).expect("failed to parse JSON");
            let versions = self.versions.get_mut(&dataset).expect("a dataset");
            *versions += 1;
            assert_eq!(made["version"]["version_number"], json!(*versions), "{}", answer.1);
        }
        answer
    }

    /// Runs a command with the same data and on the same file system.
    fn command(&self, arguments: &[&str]) -> OperationOutcome {
        let mut command = self.machine.command(arguments);
        command.envs(self.faults.environment()).envs(self.environment.iter().cloned());
        let output = command.output().expect("failed to run the binary");
        match output.status.code() {
            Some(0) => OperationOutcome::Done,
            Some(1) => OperationOutcome::Refused(String::from_utf8_lossy(&output.stderr).into_owned()),
            other => panic!("{arguments:?} ended with {other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Asserts that exactly the acknowledged versions exist and that no other files remain.
    async fn stop(mut self) {
        for (dataset, slug) in [(1, "pushed"), (2, "fetched")] {
            let latest = self.versions[&dataset];
            let path = format!("/dataset/view?dataset_id={dataset}");
            let (_, view) = self.call(Method::GET, &path, Value::Null).await;
            let view: Value = serde_json::from_str(&view).expect("failed to parse JSON");
            assert_eq!(view["dataset"]["versions"].as_array().map(Vec::len), Some(latest as usize), "{view}");
            for version in 1..=latest {
                let (status, text) =
                    self.call(Method::GET, &format!("/api/{dataset}/{slug}/v{version}/"), Value::Null).await;
                assert_eq!(status, StatusCode::OK, "{slug} {version}: {text}");
                if dataset == 1 {
                    let read: Value = serde_json::from_str(&text).expect("failed to parse JSON");
                    assert_eq!(read, entities(version), "{version}");
                }
            }
        }
        let server = self.server.take().expect("failed to start the server");
        let (code, errors) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert_eq!(self.command(&["sweep", "--offline", "--older-than", "0s"]), OperationOutcome::Done);
        let mut check = self.machine.command(&["check"]);
        let checked =
            succeeded(&check.envs(self.environment.iter().cloned()).output().expect("failed to run the binary"));
        assert!(checked.ends_with(" 0 damaged, 0 unnamed\n"), "{checked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_disk_limit_evicts_oldest_exports() {
    let mut fixture = ExhaustionFixture::new(None).await;
    // The disk has space for one and a half exports.
    let export = |offset: u64| format!("{}/api/1/pushed/v2/?format=parquet&offset={offset}", fixture.base_url);
    let bytes = fixture
        .client
        .get(export(0))
        .send()
        .await
        .expect("failed to get a response")
        .bytes()
        .await
        .expect("failed to read the body")
        .len();
    fixture.faults.set(&[&format!("quota strata-data/exports {}", bytes * 3 / 2)]);
    for offset in 1..6 {
        let whole = fixture
            .client
            .get(export(offset))
            .send()
            .await
            .expect("failed to get a response")
            .bytes()
            .await
            .expect("failed to read the body");
        assert!(whole.starts_with(b"PAR1") && whole.ends_with(b"PAR1"), "{offset}");
        // The export is in the cache.
        let part = fixture
            .client
            .get(export(offset))
            .header("range", "bytes=0-3")
            .send()
            .await
            .expect("failed to get a response");
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{offset}");
        assert_eq!(part.bytes().await.expect("a part"), whole[..4], "{offset}");
    }
    assert!(!fixture.faults.fired().is_empty());
    assert_eq!(fixture.try_out(ServiceOperation::Push).await, OperationOutcome::Done);
    fixture.faults.set(&[]);
    fixture.stop().await;
}
