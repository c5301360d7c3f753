//! Something is used up or gone: a disk, descriptors, a directory, a lock. Each is taken from a running server, every
//! operation is tried, and it is given back.
//!
//! While it is gone an operation that does not need it works, byte for byte; one that needs it says in plain text what
//! is wrong, with 503, without names from inside. `/readyz` follows. When it is back everything works again without a
//! restart: nothing is half-written, and no descriptor, permit or file is left.

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

/// Longer than anything here takes; a hang is found by it.
const HANG: Duration = Duration::from_secs(120);

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    /// A page that no cache has.
    Read,
    /// A Parquet export that no cache has.
    Export,
    Push,
    Fetch,
    Alternate,
    Diff,
    /// Management that writes nothing.
    List,
    /// Management that writes.
    Create,
    Backup,
    Sweep,
}

const OPERATIONS: [Operation; 10] = [
    Operation::Read,
    Operation::Export,
    Operation::Push,
    Operation::Fetch,
    Operation::Alternate,
    Operation::Diff,
    Operation::List,
    Operation::Create,
    Operation::Backup,
    Operation::Sweep,
];

/// How an operation ends.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// As always.
    Done,
    /// Refused with 503, or by a command that failed, with the text.
    Refused(String),
    /// Anything else.
    Wrong(String),
}

/// How something is taken away.
#[derive(Clone, Copy)]
enum Means {
    /// Rules of the file system.
    Rules(&'static [&'static str]),
    /// Another process has the catalog's write lock.
    Lock,
    /// The S3 server is stopped.
    StoppedStore,
    /// The S3 server refuses requests of these methods.
    RefusingStore(&'static [&'static str]),
}

/// What is taken away, and what then fails.
struct Resource {
    name: &'static str,
    means: Means,
    /// What the texts say.
    says: &'static str,
    /// The operations that are refused; the others are done.
    refused: &'static [Operation],
    /// Those that may be either: what they need may be in a cache, or open already.
    either: &'static [Operation],
    /// Whether the service is ready all the same.
    ready: bool,
}

use Operation::{Alternate, Backup, Create, Diff, Export, Fetch, Push, Read, Sweep};

const RESOURCES: [Resource; 8] = [
    Resource {
        name: "the disk of the data directory is full",
        means: Means::Rules(&["quota strata-data 0", "quota copies 0"]),
        says: "full",
        refused: &[Push, Fetch, Alternate, Create],
        // The commands' own texts.
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the disk of the store is full",
        means: Means::Rules(&["quota strata-data/store 0"]),
        says: "a disk is full",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the disk of temporary files is full",
        means: Means::Rules(&["quota strata-data/tmp 0"]),
        says: "a disk is full",
        refused: &[Push, Fetch, Alternate],
        // Commands have a temporary directory of their own.
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "the directory of temporary files takes no files",
        means: Means::Rules(&["fail open,create strata-data/tmp/* 1 0 EACCES"]),
        says: "the directory for temporary files cannot be used: access to the disk is denied",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "the disk of exports is full",
        means: Means::Rules(&["quota strata-data/exports 0"]),
        says: "full",
        refused: &[],
        either: &[Backup, Sweep],
        ready: true,
    },
    Resource {
        name: "no file can be opened",
        means: Means::Rules(&[
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
        means: Means::Rules(&["fail open,create,list,stat,unlink strata-data/store* 1 0 EACCES"]),
        says: "access to the disk is denied",
        refused: &[Push, Fetch, Alternate],
        either: &[Read, Export, Diff, Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the catalog is locked by another process",
        means: Means::Lock,
        says: "locked",
        refused: &[Push, Fetch, Alternate, Create, Backup, Sweep],
        either: &[],
        ready: false,
    },
];

const STORE_RESOURCES: [Resource; 3] = [
    Resource {
        name: "the S3 server is stopped",
        means: Means::StoppedStore,
        says: "is not responding",
        refused: &[Read, Export, Push, Fetch, Alternate, Diff],
        // The commands' own texts.
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the S3 server gives no object",
        means: Means::RefusingStore(&["GET", "HEAD"]),
        says: "the S3 version file store denied access: the credentials lack the permission s3:GetObject",
        // A version is recorded after the store has shown whose it is.
        refused: &[Read, Export, Push, Fetch, Alternate, Diff],
        either: &[Backup, Sweep],
        ready: false,
    },
    Resource {
        name: "the S3 server takes no object",
        means: Means::RefusingStore(&["PUT", "POST"]),
        says: "the S3 version file store denied access: the credentials lack the permission s3:PutObject",
        refused: &[Push, Fetch, Alternate],
        either: &[Backup, Sweep],
        ready: false,
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_gone_is_named_and_all_works_again_when_it_is_back() {
    check(World::new(None).await, &RESOURCES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_stopped_is_named_and_all_works_again_when_it_is_started() {
    check(World::new(Some(S3Server::start().await)).await, &STORE_RESOURCES).await;
}

async fn check(mut world: World, resources: &[Resource]) {
    let mut wrong = String::new();
    for resource in resources {
        let before = world.all_work().await;
        let lock = world.take_away(resource.means).await;
        for operation in OPERATIONS {
            let outcome = world.try_out(operation).await;
            let expected = match &outcome {
                Outcome::Done => !resource.refused.contains(&operation),
                Outcome::Refused(_) if resource.either.contains(&operation) => true,
                Outcome::Refused(text) => text.contains(resource.says) && resource.refused.contains(&operation),
                Outcome::Wrong(_) => false,
            };
            println!("{}: {operation:?}: {outcome:?}", resource.name);
            if !expected {
                writeln!(wrong, "{}: {operation:?}: {outcome:?}", resource.name).expect("written");
            }
        }
        if world.becomes_ready(resource.ready).await != resource.ready {
            writeln!(wrong, "{}: /readyz does not follow", resource.name).expect("written");
        }
        world.give_back(lock).await;
        if !world.becomes_ready(true).await {
            writeln!(wrong, "{}: not ready when it is back", resource.name).expect("written");
        }
        let after = world.all_work().await;
        if after > before + 4 {
            writeln!(wrong, "{}: {before} descriptors before, {after} after", resource.name).expect("written");
        }
    }
    world.end().await;
    assert_eq!(wrong, "");
}

/// A server with a dataset that is pushed and one that is fetched.
struct World {
    machine: Machine,
    faults: FaultFs,
    server: Option<Server>,
    base_url: String,
    token: String,
    client: reqwest::Client,
    _source: LoopbackServer,
    store: Option<S3Server>,
    /// That of the server and the commands.
    environment: Vec<(&'static str, String)>,
    /// Versions of the pushed and of the fetched dataset that were acknowledged.
    versions: BTreeMap<u64, u64>,
    /// Counts what must be another one each time.
    number: u64,
}

const ENTITIES: u64 = 400;

fn entities(version: u64) -> Value {
    let entity = |n: u64| json!({"version": version, "n": n, "text": format!("text {n} {}", "x".repeat(200))});
    Value::Array((0..ENTITIES).map(entity).collect())
}

impl World {
    /// With a directory as its store, or an S3 server.
    async fn new(store: Option<S3Server>) -> World {
        let machine = Machine::new();
        let arguments = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci"];
        let token = succeeded(&machine.run_with_input(&arguments, "correct horse\n"));
        let token = token.lines().last().expect("a token").to_owned();
        std::fs::create_dir(machine.path("copies")).expect("made");
        let faults = FaultFs::below(&machine.path(""));
        let mut environment = vec![
            ("STRATA_NET__ALLOW", "127.0.0.0/8".to_owned()),
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0".to_owned()),
            // Every read reads.
            ("STRATA_CACHE__MEMORY_BYTES", "0".to_owned()),
            ("STRATA_CACHE__RESPONSE_BYTES", "0".to_owned()),
            ("STRATA_CACHE__DIFF_BYTES", "0".to_owned()),
            // A store that is gone is not waited for.
            ("STRATA_STORE__RETRY_S", "1".to_owned()),
        ];
        environment.extend(store.iter().flat_map(S3Server::environment));
        let names: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let server = faults.serve(&machine, &[], &names);
        // Other entities each time, for equal ones share a file.
        let number = AtomicU64::new(0);
        let source = LoopbackServer::start(move |_| {
            let number = number.fetch_add(1, Ordering::SeqCst);
            ok("Content-Type: application/json\r\n", format!("[{{\"fetched\":{number}}}]").as_bytes())
        });
        let (base_url, client) = (server.base_url.clone(), http_client());
        let client = client.timeout(HANG).build().expect("a client");
        let url = source.url("/");
        let mut world = World {
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
            let created = world.call(Method::POST, "/dataset/create", json!({"name": name, "source": source})).await;
            assert_eq!(created.0, StatusCode::OK, "{}", created.1);
        }
        for _ in 0..2 {
            assert_eq!(world.try_out(Operation::Push).await, Outcome::Done);
        }
        world
    }

    /// Takes something away; what is returned must be given back.
    async fn take_away(&mut self, means: Means) -> Option<SqlitePool> {
        match means {
            Means::Rules(rules) => self.faults.set(rules),
            Means::StoppedStore => self.store.as_mut().expect("an S3 server").stop().await,
            Means::RefusingStore(methods) => self.store.as_ref().expect("an S3 server").refuse(methods),
            Means::Lock => {
                let path = self.machine.path("strata-data/catalog.sqlite");
                let options = SqlitePoolOptions::new().max_connections(1);
                let catalog = options.connect(&format!("sqlite://{}", path.display())).await.expect("the catalog");
                sqlx::query("BEGIN IMMEDIATE").execute(&catalog).await.expect("locked");
                return Some(catalog);
            }
        }
        None
    }

    /// Ends all that was taken away.
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

    /// Every operation works; gives the descriptors that are open afterwards.
    async fn all_work(&mut self) -> usize {
        for operation in OPERATIONS {
            assert_eq!(self.try_out(operation).await, Outcome::Done, "{operation:?}");
        }
        // Connections of the driver and to sources end a moment later.
        let mut fewest = usize::MAX;
        for _ in 0..20 {
            fewest = fewest.min(self.descriptors());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fewest
    }

    fn descriptors(&self) -> usize {
        let id = self.server.as_ref().expect("a server").id();
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("the process runs").count()
    }

    /// Waits until `/readyz` says what is expected, or long enough for it to have noticed.
    async fn becomes_ready(&self, expected: bool) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let answer = self.client.get(format!("{}/readyz", self.base_url)).send().await.expect("an answer");
            let status = answer.status();
            let text = answer.text().await.expect("a body");
            assert!(status == StatusCode::OK || status == StatusCode::SERVICE_UNAVAILABLE, "{status} {text}");
            if status.is_success() == expected || Instant::now() > until {
                return status.is_success();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The status and body of a call by the owner.
    async fn call(&self, method: Method, path: &str, body: Value) -> (StatusCode, String) {
        let request = self.client.request(method, format!("{}{path}", self.base_url)).bearer_auth(&self.token);
        let request = match body {
            Value::Null => request,
            body => request.header("content-type", "application/json").body(body.to_string()),
        };
        let answer = request.send().await.expect("an answer, in time");
        let status = answer.status();
        if status.is_server_error() {
            assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8", "{path}");
            // Of reads only 429 has it.
            let expected = status.as_u16() == 503 && !path.starts_with("/api/");
            assert_eq!(answer.headers().contains_key("retry-after"), expected, "{path}");
        }
        let bytes = answer.bytes().await.expect("a whole body");
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Does it, and compares what it gives.
    async fn try_out(&mut self, operation: Operation) -> Outcome {
        self.number += 1;
        let number = self.number;
        let (status, text) = match operation {
            Operation::Read => {
                let offset = number % ENTITIES;
                let page = format!("/api/1/pushed/v1/?offset={offset}&limit=1&filter=n:{offset}&x{number}");
                let page = page.replace(&format!("offset={offset}&"), "");
                let (status, text) = self.call(Method::GET, &page, Value::Null).await;
                if status == StatusCode::OK {
                    let read: Value = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(read, json!([entities(1)[offset as usize]]), "{page}");
                }
                (status, text)
            }
            Operation::Export => {
                let path = format!("/api/1/pushed/v2/?format=parquet&offset={}", number % ENTITIES);
                let (status, text) = self.call(Method::GET, &path, Value::Null).await;
                assert!(status != StatusCode::OK || (text.starts_with("PAR1") && text.ends_with("PAR1")));
                (status, text)
            }
            Operation::Push => {
                let next = self.versions[&1] + 1;
                let body = json!({"dataset_id": 1, "entities": entities(next)});
                let made = self.call(Method::POST, "/dataset/refresh", body).await;
                self.made(1, made)
            }
            Operation::Fetch => {
                let made = self.call(Method::POST, "/dataset/refresh", json!({"dataset_id": 2})).await;
                self.made(2, made)
            }
            Operation::Alternate => {
                let body = json!({"dataset_id": 1, "version": 1, "entities": [{"alternate": number}]});
                let saved = self.call(Method::POST, "/dataset/alternate/save", body).await;
                if saved.0 == StatusCode::OK {
                    let (_, read) = self.call(Method::GET, "/api/1/pushed/v1/alt/?pretty=false", Value::Null).await;
                    assert_eq!(read, format!("[{{\"alternate\":{number}}}]"));
                }
                saved
            }
            Operation::Diff => {
                let path = format!("/dataset/diff?dataset_id=1&v1=1&v2=2&offset={number}&limit=1");
                let (status, text) = self.call(Method::GET, &path, Value::Null).await;
                if status == StatusCode::OK {
                    let diff: Value = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(diff["modified"], json!(ENTITIES), "{text}");
                }
                (status, text)
            }
            Operation::List => self.call(Method::GET, "/dataset/list", Value::Null).await,
            Operation::Create => {
                let body = json!({"name": format!("New {number}"), "source": "push"});
                self.call(Method::POST, "/dataset/create", body).await
            }
            Operation::Backup => return self.command(&["backup", &format!("copies/{number}"), "--copy"]),
            Operation::Sweep => return self.command(&["sweep", "--older-than", "2h"]),
        };
        match status {
            StatusCode::OK => Outcome::Done,
            StatusCode::SERVICE_UNAVAILABLE => {
                let directory = self.machine.path("");
                assert!(!text.contains(&*directory.to_string_lossy()) && !text.contains(&self.token), "{text}");
                Outcome::Refused(text)
            }
            other => Outcome::Wrong(format!("{other}: {text}")),
        }
    }

    /// Counts a version that was acknowledged, and looks that its number is the next one.
    fn made(&mut self, dataset: u64, answer: (StatusCode, String)) -> (StatusCode, String) {
        if answer.0 == StatusCode::OK {
            let made: Value = serde_json::from_str(&answer.1).expect("JSON");
            let versions = self.versions.get_mut(&dataset).expect("a dataset");
            *versions += 1;
            assert_eq!(made["version"]["version_number"], json!(*versions), "{}", answer.1);
        }
        answer
    }

    /// A command on the same data and the same disk.
    fn command(&self, arguments: &[&str]) -> Outcome {
        let mut command = self.machine.command(arguments);
        command.envs(self.faults.environment()).envs(self.environment.iter().cloned());
        let output = command.output().expect("the binary runs");
        match output.status.code() {
            Some(0) => Outcome::Done,
            Some(1) => Outcome::Refused(String::from_utf8_lossy(&output.stderr).into_owned()),
            other => panic!("{arguments:?} ended with {other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    /// Every version that was acknowledged is there, no other, and nothing is left over.
    async fn end(mut self) {
        for (dataset, slug) in [(1, "pushed"), (2, "fetched")] {
            let latest = self.versions[&dataset];
            let path = format!("/dataset/view?dataset_id={dataset}");
            let (_, view) = self.call(Method::GET, &path, Value::Null).await;
            let view: Value = serde_json::from_str(&view).expect("JSON");
            assert_eq!(view["dataset"]["versions"].as_array().map(Vec::len), Some(latest as usize), "{view}");
            for version in 1..=latest {
                let (status, text) =
                    self.call(Method::GET, &format!("/api/{dataset}/{slug}/v{version}/"), Value::Null).await;
                assert_eq!(status, StatusCode::OK, "{slug} {version}: {text}");
                if dataset == 1 {
                    let read: Value = serde_json::from_str(&text).expect("JSON");
                    assert_eq!(read, entities(version), "{version}");
                }
            }
        }
        let server = self.server.take().expect("a server");
        let (code, errors) = server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        assert_eq!(self.command(&["sweep", "--offline", "--older-than", "0s"]), Outcome::Done);
        let mut check = self.machine.command(&["check"]);
        let checked = succeeded(&check.envs(self.environment.iter().cloned()).output().expect("the binary runs"));
        assert!(checked.ends_with(" 0 damaged, 0 unnamed\n"), "{checked}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_exports_have_filled_keeps_the_last_ones_and_takes_others() {
    let mut world = World::new(None).await;
    // Of one export there is room, and of a second one in part.
    let export = |offset: u64| format!("{}/api/1/pushed/v2/?format=parquet&offset={offset}", world.base_url);
    let bytes = world.client.get(export(0)).send().await.expect("an answer").bytes().await.expect("a body").len();
    world.faults.set(&[&format!("quota strata-data/exports {}", bytes * 3 / 2)]);
    for offset in 1..6 {
        let whole = world.client.get(export(offset)).send().await.expect("an answer").bytes().await.expect("a body");
        assert!(whole.starts_with(b"PAR1") && whole.ends_with(b"PAR1"), "{offset}");
        // It is in the cache.
        let part = world.client.get(export(offset)).header("range", "bytes=0-3").send().await.expect("an answer");
        assert_eq!(part.status(), StatusCode::PARTIAL_CONTENT, "{offset}");
        assert_eq!(part.bytes().await.expect("a part"), whole[..4], "{offset}");
    }
    assert!(!world.faults.fired().is_empty());
    assert_eq!(world.try_out(Operation::Push).await, Outcome::Done);
    world.faults.set(&[]);
    world.end().await;
}
