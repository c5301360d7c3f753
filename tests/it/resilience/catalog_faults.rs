//! Tests in which every write and every sync of the catalog's files fails once, for every operation of the real binary.
//! The caller gets an error, the catalog has the complete state before or after the operation, and the next call works
//! without a restart.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use strata_testing::catalog::integrity;
use strata_testing::faultfs::FaultFs;
use strata_testing::machine::{Machine, Server, succeeded};

/// The injected faults with the expected status. `drop` discards the data written since the last sync, as Linux does.
const FAULTS: [(&str, &str, u16); 4] = [
    ("fail write,truncate", "ENOSPC", 503),
    ("fail write,truncate", "EIO", 500),
    ("fail fsync", "EIO", 500),
    ("drop fsync", "EIO", 500),
];

/// More system calls than any operation makes.
const MAX_CALLS: usize = 60;

/// The number of datasets that are compared completely; no operation uses or creates more.
const COMPARED_DATASETS: usize = 4;

/// A server on a file system with fault injection, and its owner's token.
struct CatalogFaultFixture {
    machine: Machine,
    faults: FaultFs,
    server: Server,
    token: String,
    /// A counter for unique names.
    names: u32,
}

impl CatalogFaultFixture {
    fn start() -> CatalogFaultFixture {
        let machine = Machine::new();
        let add = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci"];
        let added = succeeded(&machine.run_with_input(&add, "correct horse\n"));
        let token = added.lines().last().expect("failed to find the token").to_owned();
        let faults = FaultFs::below(&machine.path("strata-data")).undoing();
        let environment = [
            ("STRATA_LIMITS__LOGINS_PER_MINUTE", "0"),
            ("STRATA_LIMITS__ACCOUNT_LOGINS_PER_HOUR", "0"),
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
        ];
        let server = faults.serve(&machine, &[], &environment);
        CatalogFaultFixture { machine, faults, server, token, names: 0 }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("name {}", self.names)
    }

    /// Makes a call as the owner. Returns the status and the body.
    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let host = self.server.base_url.strip_prefix("http://").expect("an http URL");
        let mut stream = TcpStream::connect(host).expect("failed to connect");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.token,
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("failed to send");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("failed to get a response");
        let (head, body) = answer.split_once("\r\n\r\n").expect("failed to parse the response");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("failed to parse the status");
        (status, body.to_owned())
    }

    fn done(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, text) = self.call(method, path, body);
        assert_eq!(status, 200, "{method} {path} {body}: {text}\n{}", self.server.errors());
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    fn create(&mut self) -> u64 {
        let name = self.name();
        let made = self.done("POST", "/dataset/create", &json!({"name": name, "source": "push"}));
        made["dataset"]["dataset_id"].as_u64().expect("failed to find the ID")
    }

    fn push(&self, id: u64) {
        self.done("POST", "/dataset/refresh", &json!({"dataset_id": id, "entities": [{"a": 1}]}));
    }

    /// Returns the owner's lists without the times of attempts, and the views of the newest datasets. Operations change
    /// nothing else.
    fn visible(&self) -> Value {
        let mut all = self.done("GET", "/dataset/list", &Value::Null);
        let mut ids: Vec<u64> =
            all["datasets"].as_array().expect("datasets").iter().filter_map(|d| d["dataset_id"].as_u64()).collect();
        ids.sort_unstable();
        let views = ids.iter().rev().take(COMPARED_DATASETS).map(|id| {
            let view = self.done("GET", &format!("/dataset/view?dataset_id={id}"), &Value::Null)["dataset"].clone();
            let (status, webhook) = self.call("GET", &format!("/webhook/view?dataset_id={id}"), &Value::Null);
            json!([view, status, webhook])
        });
        let views: Vec<Value> = views.collect();
        all["newest"] = json!(views);
        all["tokens"] = self.done("GET", "/token/list", &Value::Null)["tokens"].clone();
        remove_times(&mut all);
        all
    }
}

/// Removes the times of attempts and of last uses.
fn remove_times(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.remove("last_attempts");
            object.remove("last_used_at");
            object.values_mut().for_each(remove_times);
        }
        Value::Array(array) => array.iter_mut().for_each(remove_times),
        _ => {}
    }
}

/// An operation that the test can repeat, each time with new objects.
struct RepeatableOperation {
    name: &'static str,
    /// Creates the objects that the operation needs, and returns its body.
    prepare: fn(&mut CatalogFaultFixture) -> Value,
    method: &'static str,
    path: &'static str,
}

fn webhook_on(fixture: &mut CatalogFaultFixture) -> Value {
    let id = fixture.create();
    json!({"dataset_id": id, "url": "https://1.1.1.1/"})
}

const OPERATIONS: [RepeatableOperation; 12] = [
    RepeatableOperation {
        name: "create",
        prepare: |fixture| json!({"name": fixture.name(), "source": "push"}),
        method: "POST",
        path: "/dataset/create",
    },
    RepeatableOperation {
        name: "update",
        prepare: |fixture| json!({"dataset_id": fixture.create(), "name": fixture.name()}),
        method: "POST",
        path: "/dataset/update",
    },
    RepeatableOperation {
        name: "publish",
        prepare: |fixture| json!({"dataset_id": fixture.create(), "entities": [{"a": 1}]}),
        method: "POST",
        path: "/dataset/refresh",
    },
    RepeatableOperation {
        name: "rollback",
        prepare: |fixture| {
            let id = fixture.create();
            fixture.push(id);
            json!({"dataset_id": id, "version_number": 1, "freeze": true})
        },
        method: "POST",
        path: "/dataset/rollback",
    },
    RepeatableOperation {
        name: "unpin",
        prepare: |fixture| {
            let id = fixture.create();
            fixture.push(id);
            fixture.done("POST", "/dataset/rollback", &json!({"dataset_id": id, "version_number": 1}));
            json!({"dataset_id": id})
        },
        method: "POST",
        path: "/dataset/unpin",
    },
    RepeatableOperation {
        name: "save an alternate",
        prepare: |fixture| {
            let id = fixture.create();
            fixture.push(id);
            json!({"dataset_id": id, "version": 1, "entities": [{"b": 2}]})
        },
        method: "POST",
        path: "/dataset/alternate/save",
    },
    RepeatableOperation {
        name: "delete an alternate",
        prepare: |fixture| {
            let id = fixture.create();
            fixture.push(id);
            fixture.done("POST", "/dataset/alternate/save", &json!({"dataset_id": id, "version": 1, "entities": []}));
            json!({"dataset_id": id, "version": 1})
        },
        method: "DELETE",
        path: "/dataset/alternate/delete",
    },
    RepeatableOperation {
        name: "clone",
        prepare: |fixture| {
            let id = fixture.create();
            fixture.push(id);
            json!({"dataset_id": id, "name": fixture.name()})
        },
        method: "POST",
        path: "/dataset/clone",
    },
    RepeatableOperation {
        name: "create a token",
        prepare: |fixture| json!({"name": fixture.name()}),
        method: "POST",
        path: "/token/create",
    },
    RepeatableOperation {
        name: "delete a token",
        prepare: |fixture| {
            let name = fixture.name();
            fixture.done("POST", "/token/create", &json!({"name": name}));
            json!({"name": name})
        },
        method: "DELETE",
        path: "/token/delete",
    },
    RepeatableOperation { name: "register a webhook", prepare: webhook_on, method: "POST", path: "/webhook/register" },
    RepeatableOperation {
        name: "log in",
        prepare: |_| json!({"email": "ada@example.test", "password": "correct horse"}),
        method: "POST",
        path: "/session/login",
    },
];

/// Lets each system call of the operations fail once. Returns the number of calls that failed.
async fn check(operations: &[RepeatableOperation], faults: &[(&str, &str, u16)]) -> usize {
    let mut failed = 0;
    for operation in operations {
        // Each operation gets a new server, so that the compared lists remain short.
        let mut fixture = CatalogFaultFixture::start();
        for (rule, errno, status) in faults {
            for call in 1..=MAX_CALLS {
                let body = (operation.prepare)(&mut fixture);
                let before = fixture.visible();
                fixture.faults.forget_fired();
                fixture.faults.set(&[&format!("{rule} catalog.sqlite* {call} 1 {errno}")]);
                let (answered, text) = fixture.call(operation.method, operation.path, &body);
                fixture.faults.set(&[]);
                let fired = fixture.faults.fired();
                let context = format!("{}, {rule} {errno}, call {call} ({fired:?}): {answered} {text}", operation.name);
                let after = fixture.visible();
                if answered == 200 {
                    // The failed call was not needed for the response: it was a checkpoint of the log.
                    assert!(operation.name == "log in" || after != before, "status 200 without an effect: {context}");
                } else {
                    assert_eq!(answered, *status, "{context}");
                    assert!(*status != 503 || text.contains("its disk is full"), "{context}");
                    assert!(!fired.is_empty(), "{context}\n{}", fixture.server.errors());
                    // After a commit with a failed sync, the state is that before or after the operation, but nothing
                    // in between.
                    if after != before {
                        fixture.assert_done(operation, &body, &context);
                    }
                    failed += 1;
                }
                // The next call works, regardless of the result of the previous one.
                let body = (operation.prepare)(&mut fixture);
                fixture.done(operation.method, operation.path, &body);
                if fired.is_empty() {
                    break;
                }
                assert!(call < MAX_CALLS, "MAX_CALLS is too small: {context}");
            }
        }
        fixture.assert_intact(operation.name).await;
    }
    failed
}

impl CatalogFaultFixture {
    /// Asserts that an operation took effect although its response was an error: repeating it reports that, or has the
    /// same effect.
    fn assert_done(&self, operation: &RepeatableOperation, body: &Value, context: &str) {
        let (status, text) = self.call(operation.method, operation.path, body);
        assert!(matches!(status, 200 | 404 | 409), "{context}, again: {status} {text}");
    }

    /// Asserts that the catalog and all files are intact, with the service's own check while the server runs.
    async fn assert_intact(&self, name: &str) {
        let catalog = self.machine.path("strata-data/catalog.sqlite");
        let found = integrity(&format!("sqlite://{}", catalog.display())).await;
        assert_eq!(found, Vec::<String>::new(), "{name}");
        let sum = succeeded(&self.machine.run(&["check", "--quick"]));
        assert!(sum.contains(" 0 damaged"), "{name}: {sum}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_returns_503_and_changes_nothing() {
    let failed = check(&OPERATIONS, &FAULTS[..1]).await;
    assert!(failed >= OPERATIONS.len(), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_write_returns_500_and_changes_nothing() {
    let failed = check(&OPERATIONS, &FAULTS[1..2]).await;
    assert!(failed >= OPERATIONS.len(), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_sync_returns_500_and_is_atomic() {
    let failed = check(&OPERATIONS, &FAULTS[2..]).await;
    assert!(failed >= OPERATIONS.len(), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_reported_and_recovers() {
    let mut fixture = CatalogFaultFixture::start();
    let id = fixture.create();
    fixture.push(id);
    let read = format!("/api/{id}/name-1/latest/");
    let before = fixture.visible();
    fixture.faults.set(&["fail write,truncate catalog.sqlite* 1 0 ENOSPC"]);
    for _ in 0..5 {
        for operation in &OPERATIONS[8..9] {
            let body = json!({"name": "full"});
            let (status, text) = fixture.call(operation.method, operation.path, &body);
            assert_eq!(status, 503, "{text}");
            assert!(text.contains("its disk is full"), "{text}");
        }
        let (status, text) = fixture.call("POST", "/dataset/refresh", &json!({"dataset_id": id, "entities": []}));
        assert_eq!(status, 503, "{text}");
        let expected_text = "No version was created. The metadata database is unavailable: its disk is full";
        assert!(text.contains(expected_text), "{text}");
    }
    // Reads continue, and `/readyz` reports the full disk.
    assert_eq!(fixture.visible(), before);
    fixture.done("GET", &read, &Value::Null);
    let ready = |expected: u16| {
        let begun = std::time::Instant::now();
        loop {
            let (status, text) = fixture.call("GET", "/readyz", &Value::Null);
            if status == expected {
                return text;
            }
            assert!(begun.elapsed().as_secs() < 60, "{status} {text}");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    };
    assert!(ready(503).contains("cannot write to the metadata database: its disk is full"));
    fixture.faults.set(&[]);
    assert_eq!(ready(200), "ok");
    fixture.push(id);
    fixture.assert_intact("full").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_without_marks_removes_no_used_file() {
    let mut fixture = CatalogFaultFixture::start();
    for (rule, errno, _) in FAULTS {
        for call in 1..=MAX_CALLS {
            let id = fixture.create();
            fixture.push(id);
            let save = json!({"dataset_id": id, "version": 1, "entities": [{"b": call}]});
            fixture.done("POST", "/dataset/alternate/save", &save);
            fixture.done("DELETE", "/dataset/alternate/delete", &json!({"dataset_id": id, "version": 1}));
            fixture.faults.forget_fired();
            fixture.faults.set(&[&format!("{rule} catalog.sqlite* {call} 1 {errno}")]);
            let swept = fixture.faults.run(&fixture.machine, &["sweep", "--older-than", "0s", "--offline"]);
            fixture.faults.set(&[]);
            let errors = String::from_utf8_lossy(&swept.stderr).into_owned();
            assert!(matches!(swept.status.code(), Some(0 | 1)), "{rule} {call}: {errors}");
            let fired = !fixture.faults.fired().is_empty();
            assert!(fired || swept.status.success(), "{rule} {call}: {errors}");
            succeeded(&fixture.machine.run(&["sweep", "--older-than", "0s", "--offline"]));
            fixture.done("GET", &format!("/dataset/view?dataset_id={id}"), &Value::Null);
            if !fired {
                break;
            }
        }
    }
    fixture.assert_intact("sweep").await;
}
