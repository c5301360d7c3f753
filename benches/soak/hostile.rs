//! Latency of one honest user next to one hostile user, for each resource that both share.
//!
//! Each user has a separate account and a separate address on the loopback interface. In each round, the honest user
//! first makes its requests without the hostile user, and then while the hostile user is active. Rounds alternate
//! between the two, so that a machine that slows down slows both. A request without the expected response is an error.
//!
//! In reality, the hostile user has its own machine. Here, its threads have a lower priority than the threads of the
//! honest user and of the server, so that the benchmark measures the server and not the client.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strata_runtime::priority::ThreadPriority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::SoakArguments;
use crate::server::SoakServer;
use crate::support::binary::PASSWORD;
use crate::support::client::AsyncClient;
use crate::support::samples::Samples;

/// The number of rounds for each resource.
const ROUNDS: u32 = 3;

/// The time between a hostile phase and the next phase, so that one does not influence the other.
const SETTLE_TIME: Duration = Duration::from_millis(1_500);

/// The minimum baseline: a lower p99 without the hostile user counts as this value. Client and server share two cores,
/// which causes this much noise.
const MIN_BASELINE: Duration = Duration::from_millis(20);

/// The maximum ratio of the honest user's p99 with and without the hostile user.
const MAX_RATIO: f64 = 3.0;

/// Longer than any request of the honest user should take.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);

/// Returns an address of the hostile user. Connections come from several addresses, because the number per address is
/// limited.
fn hostile_address(number: u64) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number % 12 + 1).unwrap_or(1)).into()
}

type HonestFuture = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
type AttackFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A resource, and how the two users use it. Both functions get a number that is different for each call.
struct ContentionCase {
    resource: &'static str,
    hostile: &'static str,
    /// The number of tasks of the hostile user.
    attackers: u64,
    /// The time that the honest user waits between requests.
    pause: Duration,
    honest: fn(Arc<ContentionSetup>, u64) -> HonestFuture,
    attack: fn(Arc<ContentionSetup>, u64) -> AttackFuture,
}

/// The server and the datasets that all cases use.
struct ContentionSetup {
    address: SocketAddr,
    catalogue: String,
    measurements: String,
    wide: String,
    honest: UserAccount,
    hostile: UserAccount,
    /// The address of a source on the loopback interface that serves a small document.
    source: SocketAddr,
    /// Entities that the hostile user pushes, each with a comma before it. The text is built once, because building it
    /// is not the work of the service.
    large: String,
    numbers: AtomicU64,
}

struct UserAccount {
    email: &'static str,
    token: String,
    /// The IDs of a dataset that the user pushes to and of one that the server fetches.
    pushed: u64,
    fetched: u64,
}

impl ContentionSetup {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

fn cases() -> Vec<ContentionCase> {
    vec![
        ContentionCase {
            resource: "permits: heavy",
            hostile: "24 heavy queries at a time",
            attackers: 24,
            pause: Duration::from_millis(20),
            honest: |setup, number| Box::pin(async move { heavy_query(&setup, HONEST.into(), number).await }),
            attack: |setup, _| {
                Box::pin(async move {
                    loop {
                        let _ = heavy_query(&setup, hostile_address(0), setup.number()).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "threads",
            hostile: "large sorts of 4 networks, and dedups",
            attackers: 4,
            pause: Duration::from_millis(10),
            honest: |setup, number| {
                // A page that no cache contains.
                let target = format!("{}?offset={}&limit=5", setup.measurements, number * 37 % 50_000);
                Box::pin(async move { whole(&setup, HONEST.into(), &target).await })
            },
            attack: |setup, attacker| {
                Box::pin(async move {
                    loop {
                        let offset = 1_000 + setup.number() % 50_000;
                        let dedup = if attacker % 2 == 0 { "" } else { "&dedup=true&dedup_key=name" };
                        let target = format!("{}?sort=name&offset={offset}&limit=1{dedup}", setup.catalogue);
                        let _ = whole(&setup, hostile_address(attacker), &target).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "permits: streams",
            hostile: "96 exports that are not read",
            attackers: 96,
            pause: Duration::from_millis(20),
            honest: |setup, _| {
                let target = format!("{}?format=csv&limit=20000", setup.measurements);
                Box::pin(async move { whole(&setup, HONEST.into(), &target).await })
            },
            attack: |setup, _| {
                Box::pin(async move {
                    let target = format!("{}?format=jsonl", setup.catalogue);
                    hold_response(&setup, &target).await;
                })
            },
        },
        ContentionCase {
            resource: "permits: diffs",
            hostile: "8 diffs at a time",
            attackers: 8,
            pause: Duration::from_millis(20),
            honest: |setup, _| {
                let target = format!("/dataset/diff?dataset_id={}&v1=1&v2=2", setup.honest.pushed);
                Box::pin(async move { called(&setup, HONEST.into(), &setup.honest, "GET", &target, "").await })
            },
            attack: |setup, _| {
                Box::pin(async move {
                    loop {
                        let versions = setup.number() % 5 + 1;
                        let target =
                            format!("/dataset/diff?dataset_id={}&v1={versions}&v2=6&limit=1", setup.hostile.pushed);
                        let _ = called(&setup, hostile_address(0), &setup.hostile, "GET", &target, "").await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "connections",
            hostile: "6,000 from 12 addresses: idle, half heads, floods",
            attackers: 6_000,
            pause: Duration::from_millis(20),
            honest: |setup, _| {
                let target = format!("{}?limit=10", setup.catalogue);
                Box::pin(async move { whole(&setup, HONEST.into(), &target).await })
            },
            attack: |setup, number| Box::pin(async move { hold_connection(&setup, number).await }),
        },
        ContentionCase {
            resource: "memory",
            hostile: "12 unread Parquet samples, 4 large sorts",
            attackers: 16,
            pause: Duration::from_millis(20),
            honest: |setup, number| {
                let sorted = format!("{}?sort=value:desc&offset={number}&limit=20", setup.measurements);
                let export = format!("{}?format=parquet&sample=200", setup.measurements);
                Box::pin(async move {
                    whole(&setup, HONEST.into(), &sorted).await?;
                    whole(&setup, HONEST.into(), &export).await
                })
            },
            attack: |setup, number| {
                Box::pin(async move {
                    if number % 4 > 0 {
                        let target = format!("{}?format=parquet&sample=90000", setup.catalogue);
                        return hold_response(&setup, &target).await;
                    }
                    loop {
                        let number = setup.number();
                        let target =
                            format!("{}?sort=name:asc&dedup=true&dedup_key=id&offset={number}", setup.catalogue);
                        let _ = whole(&setup, hostile_address(0), &format!("{target}&limit=5")).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "disk: pushes",
            hostile: "4 pushes of 20 MB at a time",
            attackers: 4,
            pause: Duration::from_millis(50),
            honest: |setup, number| Box::pin(async move { push_and_export(&setup, number).await }),
            attack: |setup, _| {
                Box::pin(async move {
                    loop {
                        let _ = push_large(&setup).await;
                        // If requests are rejected at once, the pause prevents a flood of requests.
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "disk: exports",
            hostile: "4 new Parquet exports at a time",
            attackers: 4,
            pause: Duration::from_millis(50),
            honest: |setup, number| Box::pin(async move { push_and_export(&setup, number).await }),
            attack: |setup, _| {
                Box::pin(async move {
                    loop {
                        let target = format!("{}?format=parquet&offset={}", setup.catalogue, setup.number() % 1_000);
                        let _ = whole(&setup, hostile_address(0), &target).await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "responses: unread",
            hostile: "300 profiles and pages of a wide dataset that are not read",
            attackers: 300,
            pause: Duration::from_millis(20),
            honest: |setup, _| Box::pin(async move { health_and_page(&setup).await }),
            attack: |setup, number| {
                let target = wide_target(&setup.wide, number);
                Box::pin(async move { hold_response(&setup, &target).await })
            },
        },
        ContentionCase {
            resource: "responses: built",
            hostile: "40 clients that read profiles and pages of a wide dataset",
            attackers: 40,
            pause: Duration::from_millis(20),
            honest: |setup, _| Box::pin(async move { health_and_page(&setup).await }),
            attack: |setup, number| {
                let target = wide_target(&setup.wide, number);
                Box::pin(async move {
                    loop {
                        let _ = whole(&setup, hostile_address(0), &target).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "responses: exports",
            hostile: "40 clients that export a wide dataset in every format",
            attackers: 40,
            pause: Duration::from_millis(20),
            honest: |setup, _| Box::pin(async move { health_and_page(&setup).await }),
            attack: |setup, number| {
                let format = ["csv", "tsv", "parquet", "xml", "json", "jsonl"][(number % 6) as usize];
                let target = format!("{}?format={format}", setup.wide);
                Box::pin(async move {
                    loop {
                        let _ = whole(&setup, hostile_address(0), &target).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "log-ins",
            hostile: "8 guessing passwords of the honest user and of others",
            attackers: 8,
            pause: Duration::from_millis(500),
            honest: |setup, _| {
                // The service limits logins per client, so the honest user uses a new address each time.
                let number = setup.number();
                let from = Ipv4Addr::new(127, 2, (number / 200) as u8, (number % 200 + 1) as u8);
                Box::pin(async move { log_in(&setup, from.into(), setup.honest.email, PASSWORD).await })
            },
            attack: |setup, _| {
                Box::pin(async move {
                    loop {
                        let number = setup.number();
                        let other = format!("nobody{number}@example.org");
                        let email = if number % 2 == 0 { setup.honest.email } else { &other };
                        let _ = log_in(&setup, hostile_address(0), email, "a wrong password").await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        ContentionCase {
            resource: "DNS",
            hostile: "8 refreshes from names whose server does not answer",
            attackers: 8,
            pause: Duration::from_millis(50),
            honest: |setup, number| {
                Box::pin(async move {
                    let body = format!("{{\"dataset_id\":{}}}", setup.honest.fetched);
                    called(&setup, HONEST.into(), &setup.honest, "POST", "/dataset/refresh", &body).await?;
                    // A page that no cache contains.
                    let target = format!("{}?offset={}&limit=3", setup.catalogue, number * 37 % 90_000);
                    whole(&setup, HONEST.into(), &target).await
                })
            },
            attack: |setup, number| {
                Box::pin(async move {
                    loop {
                        let source = format!("http://n{}.silent.example/x.json", setup.number());
                        let body =
                            format!("{{\"dataset_id\":{},\"source\":\"{source}\"}}", setup.hostile.fetched + number);
                        let user = &setup.hostile;
                        let _ = called(&setup, hostile_address(0), user, "POST", "/dataset/update", &body).await;
                        let body = format!("{{\"dataset_id\":{}}}", setup.hostile.fetched + number);
                        let _ = called(&setup, hostile_address(0), user, "POST", "/dataset/refresh", &body).await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
    ]
}

// ---- requests of the two users ----

/// Makes a request on a new connection and reads the response to its end. Any status other than success is an error.
async fn make_request(
    setup: &ContentionSetup,
    from: IpAddr,
    method: &str,
    target: &str,
    fields: &str,
    body: &str,
) -> io::Result<()> {
    let exchange = async {
        let mut client = AsyncClient::connect_from(setup.address, from, None).await?;
        let head = client.send(method, target, fields, body).await?;
        client.body(&head).await?;
        if matches!(head.status, 200..300) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{method} {target}: status {}", head.status)))
        }
    };
    timeout(HANG_TIMEOUT, exchange).await.map_err(|_| io::Error::other(format!("{method} {target}: no answer")))?
}

async fn whole(setup: &ContentionSetup, from: IpAddr, target: &str) -> io::Result<()> {
    make_request(setup, from, "GET", target, "", "").await
}

async fn called(
    setup: &ContentionSetup,
    from: IpAddr,
    user: &UserAccount,
    method: &str,
    target: &str,
    body: &str,
) -> io::Result<()> {
    let fields = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", user.token);
    make_request(setup, from, method, target, &fields, body).await
}

/// Makes the requests of a health probe and of a client that reads one page.
async fn health_and_page(setup: &ContentionSetup) -> io::Result<()> {
    whole(setup, HONEST.into(), "/healthz").await?;
    whole(setup, HONEST.into(), &format!("{}?limit=10", setup.catalogue)).await
}

/// Returns the target of a response that takes long to build.
fn wide_target(path: &str, number: u64) -> String {
    let dataset = path.split('/').nth(2).expect("a path with an id");
    match number % 3 {
        0 => format!("/dataset/profile?dataset_id={dataset}"),
        1 => format!("/ui/{dataset}/wide/v1?view=json"),
        _ => format!("/ui/{dataset}/wide/v1/profile"),
    }
}

/// Makes a query that reads all documents and is not in any cache.
async fn heavy_query(setup: &ContentionSetup, from: IpAddr, number: u64) -> io::Result<()> {
    let target = format!("{}?filter=no.such.path:{number}&sort=name:asc&limit=5", setup.measurements);
    whole(setup, from, &target).await
}

async fn push(setup: &ContentionSetup, from: IpAddr, user: &UserAccount, number: u64, entities: u64) -> io::Result<()> {
    pushed(setup, from, user, number, &entities_to_push(number, entities)).await
}

/// Makes a small push and an export, which both need disk space.
async fn push_and_export(setup: &ContentionSetup, number: u64) -> io::Result<()> {
    push(setup, HONEST.into(), &setup.honest, number, 50).await?;
    whole(setup, HONEST.into(), &format!("{}?format=parquet&limit=2000", setup.measurements)).await
}

/// Pushes 20 MB of entities that differ from all earlier pushes.
async fn push_large(setup: &ContentionSetup) -> io::Result<()> {
    pushed(setup, hostile_address(0), &setup.hostile, setup.number(), &setup.large).await
}

async fn pushed(
    setup: &ContentionSetup,
    from: IpAddr,
    user: &UserAccount,
    number: u64,
    entities: &str,
) -> io::Result<()> {
    let body = format!("{{\"dataset_id\":{},\"entities\":[{{\"push\":{number}}}{entities}]}}", user.pushed);
    called(setup, from, user, "POST", "/dataset/refresh", &body).await
}

/// Returns `entities` entities, each with a comma before it.
fn entities_to_push(number: u64, entities: u64) -> String {
    let mut text = String::new();
    for entity in 0..entities {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            ",{{\"id\":{entity},\"push\":{number},\"text\":\"some words of an entity that is pushed, as many as make a hundred bytes\"}}"
        );
    }
    text
}

async fn log_in(setup: &ContentionSetup, from: IpAddr, email: &str, password: &str) -> io::Result<()> {
    let body = format!("{{\"email\":\"{email}\",\"password\":\"{password}\"}}");
    make_request(setup, from, "POST", "/session/login", "Content-Type: application/json\r\n", &body).await
}

/// Requests an export, reads the head of the response, and never reads the body. Repeats this if the response is
/// truncated or an error.
async fn hold_response(setup: &ContentionSetup, target: &str) {
    loop {
        if let Ok(mut client) = AsyncClient::connect_from(setup.address, hostile_address(0), Some(4 << 10)).await
            && client.send("GET", target, "", "").await.is_ok_and(|head| head.status == 200)
        {
            while client.some(64).await.is_ok_and(|read| read > 0) {
                sleep(Duration::from_millis(500)).await;
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Opens a connection that is idle or sends pings, and opens it again when the server closes it.
async fn hold_connection(setup: &ContentionSetup, number: u64) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0abcdefgh";
    let first: &[u8] = match number % 5 {
        0 => b"",
        1 => b"GET /healthz HTTP/1.1\r\nHo",
        2 => b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        3 => &PREFACE[..12],
        _ => PREFACE,
    };
    // If all connections opened at once, the benchmark would measure the client's machine.
    sleep(Duration::from_micros(number * 150)).await;
    loop {
        if let Ok(mut stream) = AsyncClient::stream_from(setup.address, hostile_address(number), Some(4 << 10)).await
            && stream.write_all(first).await.is_ok()
        {
            let mut some = [0; 4 << 10];
            // One connection in a hundred floods the server with pings.
            let floods = number % 100 == 4;
            loop {
                if floods && stream.write_all(&PING.repeat(100)).await.is_err() {
                    break;
                }
                let pause = if floods { Duration::from_millis(20) } else { Duration::from_secs(60) };
                match timeout(pause, stream.read(&mut some)).await {
                    Ok(Ok(1..)) | Err(_) => {}
                    _ => break,
                }
            }
        }
        sleep(Duration::from_millis(250)).await;
    }
}

// ---- measurement ----

/// The latencies and the errors of the honest user.
#[derive(Default)]
struct HonestResults {
    samples: Samples,
    errors: Vec<String>,
}

/// Makes the requests of the honest user for `duration`.
async fn measure(setup: &Arc<ContentionSetup>, case: &ContentionCase, duration: Duration, results: &mut HonestResults) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let started = Instant::now();
        match (case.honest)(setup.clone(), setup.number()).await {
            Ok(()) => results.samples.add(started.elapsed()),
            Err(error) => results.errors.push(error.to_string()),
        }
        sleep(case.pause).await;
    }
}

/// Returns a runtime with low priority for the tasks of the hostile user.
fn attackers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("hostile")
        .on_thread_start(|| ThreadPriority::Medium.apply_to_current_thread())
        .enable_all()
        .build()
        .expect("threads for the hostile user")
}

/// Measures all cases and prints a table. Returns the number of cases in which the honest user was slowed down or had
/// errors.
pub async fn run(server: &SoakServer, arguments: &SoakArguments) -> u64 {
    let setup = Arc::new(prepare(server).await);
    let duration = Duration::from_secs(arguments.seconds.div_ceil(ROUNDS.into()).max(1));
    println!(
        "ratio: to the p99 without the hostile user, at least {} ms; {ROUNDS} rounds of {} s each",
        MIN_BASELINE.as_millis(),
        duration.as_secs()
    );
    println!(
        "{:<20}{:<56}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}{:>8}",
        "resource",
        "the hostile user",
        "without",
        "with",
        "p50 ms",
        "p99 ms",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "ratio",
        "errors"
    );
    let attackers = attackers();
    let mut complaints = 0;
    for case in cases() {
        if arguments.only.as_ref().is_some_and(|only| !case.resource.contains(only.as_str())) {
            continue;
        }
        let mut baseline = HonestResults::default();
        let mut attacked = HonestResults::default();
        // The first requests fill the caches and are not measured.
        measure(&setup, &case, Duration::from_millis(500), &mut HonestResults::default()).await;
        for _ in 0..ROUNDS {
            measure(&setup, &case, duration, &mut baseline).await;
            let mut attack = JoinSet::new();
            for number in 0..case.attackers {
                attack.spawn_on((case.attack)(setup.clone(), number), attackers.handle());
            }
            sleep(SETTLE_TIME).await;
            measure(&setup, &case, duration, &mut attacked).await;
            attack.shutdown().await;
            sleep(SETTLE_TIME).await;
        }
        let ratio = attacked.samples.percentile(99).as_secs_f64()
            / baseline.samples.percentile(99).max(MIN_BASELINE).as_secs_f64();
        let errors = baseline.errors.len() + attacked.errors.len();
        let ms = |duration: Duration| format!("{:.1}", duration.as_secs_f64() * 1e3);
        println!(
            "{:<20}{:<56}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{ratio:>7.2}{errors:>8}",
            case.resource,
            case.hostile,
            baseline.samples.len(),
            attacked.samples.len(),
            ms(baseline.samples.percentile(50)),
            ms(baseline.samples.percentile(99)),
            ms(attacked.samples.percentile(50)),
            ms(attacked.samples.percentile(90)),
            ms(attacked.samples.percentile(99)),
        );
        for error in baseline.errors.iter().chain(&attacked.errors).take(3) {
            println!("  {error}");
        }
        complaints += u64::from(errors > 0 || ratio > MAX_RATIO);
    }
    attackers.shutdown_background();
    println!("resources with errors or a ratio over {MAX_RATIO}: {complaints}");
    complaints
}

/// Creates the datasets of both accounts: one to push to, versions to compare, and datasets with a source.
async fn prepare(server: &SoakServer) -> ContentionSetup {
    let source = serve_source().await;
    let mut setup = ContentionSetup {
        address: server.address,
        catalogue: server.catalogue.clone(),
        measurements: server.measurements.clone(),
        wide: server.wide.clone(),
        honest: UserAccount {
            email: "honest@example.org",
            token: server.add_user("honest@example.org"),
            pushed: 0,
            fetched: 0,
        },
        hostile: UserAccount {
            email: "hostile@example.org",
            token: server.add_user("hostile@example.org"),
            pushed: 0,
            fetched: 0,
        },
        source,
        large: entities_to_push(0, 200_000),
        numbers: AtomicU64::new(1),
    };
    let url = format!("http://{}/", setup.source);
    for hostile in [false, true] {
        let from = if hostile { hostile_address(0) } else { HONEST.into() };
        let token = if hostile { &setup.hostile.token } else { &setup.honest.token };
        let pushed = create(&setup, from, token, "Pushed", "push").await;
        let mut fetched = Vec::new();
        for number in 0..8 {
            fetched.push(create(&setup, from, token, &format!("Fetched {number}"), &url).await);
        }
        let user = if hostile { &mut setup.hostile } else { &mut setup.honest };
        user.pushed = pushed;
        user.fetched = fetched[0];
    }
    let few = if server.is_debug() { 50 } else { 500 };
    let many = if server.is_debug() { 500 } else { 20_000 };
    for version in 0..2 {
        push(&setup, HONEST.into(), &setup.honest, version, few).await.expect("the honest user pushes");
    }
    for version in 0..6 {
        push(&setup, hostile_address(0), &setup.hostile, version, many).await.expect("the hostile user pushes");
    }
    setup
}

/// Creates a dataset and returns its ID.
async fn create(setup: &ContentionSetup, from: IpAddr, token: &str, name: &str, source: &str) -> u64 {
    let mut client = AsyncClient::connect_from(setup.address, from, None).await.expect("failed to start the server");
    let fields = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let body = format!("{{\"name\":\"{name}\",\"source\":\"{source}\",\"format\":\"json\"}}");
    let body = if source == "push" { format!("{{\"name\":\"{name}\",\"source\":\"push\"}}") } else { body };
    let head = client.send("POST", "/dataset/create", &fields, &body).await.expect("failed to get a response");
    let answer = client.text(&head).await.expect("failed to read the response");
    let record: serde_json::Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no record: {answer}"));
    record["dataset"]["dataset_id"].as_u64().unwrap_or_else(|| panic!("no id: {answer}"))
}

/// Starts a source on the loopback interface and returns its address.
async fn serve_source() -> SocketAddr {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 23\r\nConnection: close\r\n\r\n[{\"name\":\"an entity\"}]\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("failed to bind a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4 << 10]).await;
                let _ = stream.write_all(ANSWER).await;
            });
        }
    });
    address
}

/// Starts a name server that never responds. The server works until the socket is dropped.
pub async fn silent_name_server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("failed to bind a port");
    let address = socket.local_addr().expect("its address");
    (socket, address)
}
