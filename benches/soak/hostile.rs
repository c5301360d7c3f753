//! One honest user beside one hostile user, for each resource that they share.
//!
//! Both have addresses of their own on the loopback interface, and accounts of their own. In each round the honest user
//! makes its requests alone, then beside the hostile one; rounds take turns, so that a machine that slows down slows
//! both. A request that is not answered as it should be is an error.
//!
//! The hostile user would have a machine of its own. Here its work (making bodies, sending, receiving) has threads of
//! lower priority than those of the honest user and of the server. So the server is measured, not the client.

use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use strata_runtime::priority::Priority;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Arguments;
use crate::server::Server;
use crate::support::binary::PASSWORD;
use crate::support::client::Client;
use crate::support::samples::Samples;

/// Rounds of each resource.
const ROUNDS: u32 = 3;

/// Between a hostile phase and the next one, so that each begins on its own.
const SETTLE: Duration = Duration::from_millis(1_500);

/// A p99 alone below this counts as this: the noise of two cores that client and server share.
const FLOOR: Duration = Duration::from_millis(20);

/// How many times its p99 alone the honest user's p99 may be.
const RATIO: f64 = 3.0;

/// Longer than any request of the honest user should take.
const HANG: Duration = Duration::from_secs(60);

const HONEST: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);

/// The addresses of the hostile user: one, but for connections, of which one address cannot have all.
fn hostile_address(number: u64) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, u8::try_from(number % 12 + 1).unwrap_or(1)).into()
}

type Answering = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
type Attacking = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A resource, and what the two do to it. Both functions are given a number that is never the same.
struct Case {
    resource: &'static str,
    hostile: &'static str,
    /// Tasks of the hostile user.
    attackers: u64,
    /// The honest user pauses so long between requests.
    pause: Duration,
    honest: fn(Arc<World>, u64) -> Answering,
    attack: fn(Arc<World>, u64) -> Attacking,
}

/// What the cases need.
struct World {
    address: SocketAddr,
    catalogue: String,
    measurements: String,
    wide: String,
    honest: User,
    hostile: User,
    /// A server on the loopback interface with a small document.
    source: SocketAddr,
    /// Entities that the hostile user pushes, each with a comma before it: written once, since its work is not the
    /// service's.
    large: String,
    numbers: AtomicU64,
}

struct User {
    email: &'static str,
    token: String,
    /// A dataset to which it pushes, and one that it fetches.
    pushed: u64,
    fetched: u64,
}

impl World {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
}

fn cases() -> Vec<Case> {
    vec![
        Case {
            resource: "permits: heavy",
            hostile: "24 heavy queries at a time",
            attackers: 24,
            pause: Duration::from_millis(20),
            honest: |world, number| Box::pin(async move { heavy(&world, HONEST.into(), number).await }),
            attack: |world, _| {
                Box::pin(async move {
                    loop {
                        let _ = heavy(&world, hostile_address(0), world.number()).await;
                    }
                })
            },
        },
        Case {
            resource: "threads",
            hostile: "large sorts of 4 networks, and dedups",
            attackers: 4,
            pause: Duration::from_millis(10),
            honest: |world, number| {
                // A page that no cache holds.
                let target = format!("{}?offset={}&limit=5", world.measurements, number * 37 % 50_000);
                Box::pin(async move { whole(&world, HONEST.into(), &target).await })
            },
            attack: |world, attacker| {
                Box::pin(async move {
                    loop {
                        let offset = 1_000 + world.number() % 50_000;
                        let dedup = if attacker % 2 == 0 { "" } else { "&dedup=true&dedup_key=name" };
                        let target = format!("{}?sort=name&offset={offset}&limit=1{dedup}", world.catalogue);
                        let _ = whole(&world, hostile_address(attacker), &target).await;
                    }
                })
            },
        },
        Case {
            resource: "permits: streams",
            hostile: "96 exports that are not read",
            attackers: 96,
            pause: Duration::from_millis(20),
            honest: |world, _| {
                let target = format!("{}?format=csv&limit=20000", world.measurements);
                Box::pin(async move { whole(&world, HONEST.into(), &target).await })
            },
            attack: |world, _| {
                Box::pin(async move {
                    let target = format!("{}?format=jsonl", world.catalogue);
                    dawdle(&world, &target).await;
                })
            },
        },
        Case {
            resource: "permits: diffs",
            hostile: "8 diffs at a time",
            attackers: 8,
            pause: Duration::from_millis(20),
            honest: |world, _| {
                let target = format!("/dataset/diff?dataset_id={}&v1=1&v2=2", world.honest.pushed);
                Box::pin(async move { called(&world, HONEST.into(), &world.honest, "GET", &target, "").await })
            },
            attack: |world, _| {
                Box::pin(async move {
                    loop {
                        let versions = world.number() % 5 + 1;
                        let target =
                            format!("/dataset/diff?dataset_id={}&v1={versions}&v2=6&limit=1", world.hostile.pushed);
                        let _ = called(&world, hostile_address(0), &world.hostile, "GET", &target, "").await;
                    }
                })
            },
        },
        Case {
            resource: "connections",
            hostile: "6,000 from 12 addresses: idle, half heads, floods",
            attackers: 6_000,
            pause: Duration::from_millis(20),
            honest: |world, _| {
                let target = format!("{}?limit=10", world.catalogue);
                Box::pin(async move { whole(&world, HONEST.into(), &target).await })
            },
            attack: |world, number| Box::pin(async move { hold_connection(&world, number).await }),
        },
        Case {
            resource: "memory",
            hostile: "12 unread Parquet samples, 4 large sorts",
            attackers: 16,
            pause: Duration::from_millis(20),
            honest: |world, number| {
                let sorted = format!("{}?sort=value:desc&offset={number}&limit=20", world.measurements);
                let export = format!("{}?format=parquet&sample=200", world.measurements);
                Box::pin(async move {
                    whole(&world, HONEST.into(), &sorted).await?;
                    whole(&world, HONEST.into(), &export).await
                })
            },
            attack: |world, number| {
                Box::pin(async move {
                    if number % 4 > 0 {
                        let target = format!("{}?format=parquet&sample=90000", world.catalogue);
                        return dawdle(&world, &target).await;
                    }
                    loop {
                        let number = world.number();
                        let target =
                            format!("{}?sort=name:asc&dedup=true&dedup_key=id&offset={number}", world.catalogue);
                        let _ = whole(&world, hostile_address(0), &format!("{target}&limit=5")).await;
                    }
                })
            },
        },
        Case {
            resource: "disk: pushes",
            hostile: "4 pushes of 20 MB at a time",
            attackers: 4,
            pause: Duration::from_millis(50),
            honest: |world, number| Box::pin(async move { push_and_export(&world, number).await }),
            attack: |world, _| {
                Box::pin(async move {
                    loop {
                        let _ = push_large(&world).await;
                        // Refused at once, it must not become a flood of requests.
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        Case {
            resource: "disk: exports",
            hostile: "4 new Parquet exports at a time",
            attackers: 4,
            pause: Duration::from_millis(50),
            honest: |world, number| Box::pin(async move { push_and_export(&world, number).await }),
            attack: |world, _| {
                Box::pin(async move {
                    loop {
                        let target = format!("{}?format=parquet&offset={}", world.catalogue, world.number() % 1_000);
                        let _ = whole(&world, hostile_address(0), &target).await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        Case {
            resource: "responses: unread",
            hostile: "300 profiles and pages of a wide dataset that are not read",
            attackers: 300,
            pause: Duration::from_millis(20),
            honest: |world, _| Box::pin(async move { health_and_page(&world).await }),
            attack: |world, number| {
                let target = wide_target(&world.wide, number);
                Box::pin(async move { dawdle(&world, &target).await })
            },
        },
        Case {
            resource: "responses: built",
            hostile: "40 clients that read profiles and pages of a wide dataset",
            attackers: 40,
            pause: Duration::from_millis(20),
            honest: |world, _| Box::pin(async move { health_and_page(&world).await }),
            attack: |world, number| {
                let target = wide_target(&world.wide, number);
                Box::pin(async move {
                    loop {
                        let _ = whole(&world, hostile_address(0), &target).await;
                    }
                })
            },
        },
        Case {
            resource: "responses: exports",
            hostile: "40 clients that export a wide dataset in every format",
            attackers: 40,
            pause: Duration::from_millis(20),
            honest: |world, _| Box::pin(async move { health_and_page(&world).await }),
            attack: |world, number| {
                let format = ["csv", "tsv", "parquet", "xml", "json", "jsonl"][(number % 6) as usize];
                let target = format!("{}?format={format}", world.wide);
                Box::pin(async move {
                    loop {
                        let _ = whole(&world, hostile_address(0), &target).await;
                    }
                })
            },
        },
        Case {
            resource: "log-ins",
            hostile: "8 guessing passwords of the honest user and of others",
            attackers: 8,
            pause: Duration::from_millis(500),
            honest: |world, _| {
                // The limit of log-ins counts each client, so the honest user comes from a new address each time.
                let number = world.number();
                let from = Ipv4Addr::new(127, 2, (number / 200) as u8, (number % 200 + 1) as u8);
                Box::pin(async move { log_in(&world, from.into(), world.honest.email, PASSWORD).await })
            },
            attack: |world, _| {
                Box::pin(async move {
                    loop {
                        let number = world.number();
                        let other = format!("nobody{number}@example.org");
                        let email = if number % 2 == 0 { world.honest.email } else { &other };
                        let _ = log_in(&world, hostile_address(0), email, "a wrong password").await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
        Case {
            resource: "DNS",
            hostile: "8 refreshes from names whose server does not answer",
            attackers: 8,
            pause: Duration::from_millis(50),
            honest: |world, number| {
                Box::pin(async move {
                    let body = format!("{{\"dataset_id\":{}}}", world.honest.fetched);
                    called(&world, HONEST.into(), &world.honest, "POST", "/dataset/refresh", &body).await?;
                    // A page that no cache holds.
                    let target = format!("{}?offset={}&limit=3", world.catalogue, number * 37 % 90_000);
                    whole(&world, HONEST.into(), &target).await
                })
            },
            attack: |world, number| {
                Box::pin(async move {
                    loop {
                        let source = format!("http://n{}.silent.example/x.json", world.number());
                        let body =
                            format!("{{\"dataset_id\":{},\"source\":\"{source}\"}}", world.hostile.fetched + number);
                        let user = &world.hostile;
                        let _ = called(&world, hostile_address(0), user, "POST", "/dataset/update", &body).await;
                        let body = format!("{{\"dataset_id\":{}}}", world.hostile.fetched + number);
                        let _ = called(&world, hostile_address(0), user, "POST", "/dataset/refresh", &body).await;
                        sleep(Duration::from_millis(20)).await;
                    }
                })
            },
        },
    ]
}

// ---- what the two do ----

/// A request on a connection of its own, to the end of its answer, which must be one of success.
async fn made(world: &World, from: IpAddr, method: &str, target: &str, fields: &str, body: &str) -> io::Result<()> {
    let answering = async {
        let mut client = Client::connect_from(world.address, from, None).await?;
        let head = client.send(method, target, fields, body).await?;
        client.body(&head).await?;
        if matches!(head.status, 200..300) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{method} {target}: status {}", head.status)))
        }
    };
    timeout(HANG, answering).await.map_err(|_| io::Error::other(format!("{method} {target}: no answer")))?
}

async fn whole(world: &World, from: IpAddr, target: &str) -> io::Result<()> {
    made(world, from, "GET", target, "", "").await
}

async fn called(world: &World, from: IpAddr, user: &User, method: &str, target: &str, body: &str) -> io::Result<()> {
    let fields = format!("Authorization: Bearer {}\r\nContent-Type: application/json\r\n", user.token);
    made(world, from, method, target, &fields, body).await
}

/// What an operator's probe and a light reader request.
async fn health_and_page(world: &World) -> io::Result<()> {
    whole(world, HONEST.into(), "/healthz").await?;
    whole(world, HONEST.into(), &format!("{}?limit=10", world.catalogue)).await
}

/// A response that takes long to build.
fn wide_target(path: &str, number: u64) -> String {
    let dataset = path.split('/').nth(2).expect("a path with an id");
    match number % 3 {
        0 => format!("/dataset/profile?dataset_id={dataset}"),
        1 => format!("/ui/{dataset}/wide/v1?view=json"),
        _ => format!("/ui/{dataset}/wide/v1/profile"),
    }
}

/// A query that reads all documents, and that no cache answers.
async fn heavy(world: &World, from: IpAddr, number: u64) -> io::Result<()> {
    let target = format!("{}?filter=no.such.path:{number}&sort=name:asc&limit=5", world.measurements);
    whole(world, from, &target).await
}

async fn push(world: &World, from: IpAddr, user: &User, number: u64, entities: u64) -> io::Result<()> {
    pushed(world, from, user, number, &entities_to_push(number, entities)).await
}

/// What needs the disk: a small push, and an export.
async fn push_and_export(world: &World, number: u64) -> io::Result<()> {
    push(world, HONEST.into(), &world.honest, number, 50).await?;
    whole(world, HONEST.into(), &format!("{}?format=parquet&limit=2000", world.measurements)).await
}

/// Twenty megabytes that differ from any pushed before.
async fn push_large(world: &World) -> io::Result<()> {
    pushed(world, hostile_address(0), &world.hostile, world.number(), &world.large).await
}

async fn pushed(world: &World, from: IpAddr, user: &User, number: u64, entities: &str) -> io::Result<()> {
    let body = format!("{{\"dataset_id\":{},\"entities\":[{{\"push\":{number}}}{entities}]}}", user.pushed);
    called(world, from, user, "POST", "/dataset/refresh", &body).await
}

/// So many entities, each with a comma before it.
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

async fn log_in(world: &World, from: IpAddr, email: &str, password: &str) -> io::Result<()> {
    let body = format!("{{\"email\":\"{email}\",\"password\":\"{password}\"}}");
    made(world, from, "POST", "/session/login", "Content-Type: application/json\r\n", &body).await
}

/// Asks for an export, reads its head, and takes nothing more of it; again when it is cut or refused.
async fn dawdle(world: &World, target: &str) {
    loop {
        if let Ok(mut client) = Client::connect_from(world.address, hostile_address(0), Some(4 << 10)).await
            && client.send("GET", target, "", "").await.is_ok_and(|head| head.status == 200)
        {
            while client.some(64).await.is_ok_and(|read| read > 0) {
                sleep(Duration::from_millis(500)).await;
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// A connection that does nothing good, and again when it is closed.
async fn hold_connection(world: &World, number: u64) {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0abcdefgh";
    let first: &[u8] = match number % 5 {
        0 => b"",
        1 => b"GET /healthz HTTP/1.1\r\nHo",
        2 => b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
        3 => &PREFACE[..12],
        _ => PREFACE,
    };
    // So many connects at once would time the client's machine.
    sleep(Duration::from_micros(number * 150)).await;
    loop {
        if let Ok(mut stream) = Client::stream_from(world.address, hostile_address(number), Some(4 << 10)).await
            && stream.write_all(first).await.is_ok()
        {
            let mut some = [0; 4 << 10];
            // One in a hundred floods.
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

// ---- measuring ----

/// Latencies of the honest user, and what went wrong.
#[derive(Default)]
struct Measured {
    samples: Samples,
    errors: Vec<String>,
}

/// The honest user for a while.
async fn measure(world: &Arc<World>, case: &Case, duration: Duration, measured: &mut Measured) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        let started = Instant::now();
        match (case.honest)(world.clone(), world.number()).await {
            Ok(()) => measured.samples.add(started.elapsed()),
            Err(error) => measured.errors.push(error.to_string()),
        }
        sleep(case.pause).await;
    }
}

/// The threads of the hostile user.
fn attackers() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("hostile")
        .on_thread_start(|| Priority::Medium.take())
        .enable_all()
        .build()
        .expect("threads for the hostile user")
}

/// All cases; how many of them the honest user had reason to complain of.
pub async fn run(server: &Server, arguments: &Arguments) -> u64 {
    let world = Arc::new(prepare(server).await);
    let duration = Duration::from_secs(arguments.seconds.div_ceil(ROUNDS.into()).max(1));
    println!(
        "p99 alone below {} ms counts as that; {ROUNDS} rounds of {} s each",
        FLOOR.as_millis(),
        duration.as_secs()
    );
    println!(
        "{:<20}{:<56}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{:>7}{:>8}",
        "resource",
        "the hostile user",
        "alone",
        "beside",
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
        let (mut alone, mut beside) = (Measured::default(), Measured::default());
        // Once, so that caches hold what they will hold.
        measure(&world, &case, Duration::from_millis(500), &mut Measured::default()).await;
        for _ in 0..ROUNDS {
            measure(&world, &case, duration, &mut alone).await;
            let mut attack = JoinSet::new();
            for number in 0..case.attackers {
                attack.spawn_on((case.attack)(world.clone(), number), attackers.handle());
            }
            sleep(SETTLE).await;
            measure(&world, &case, duration, &mut beside).await;
            attack.shutdown().await;
            sleep(SETTLE).await;
        }
        let ratio = beside.samples.percentile(99).as_secs_f64() / alone.samples.percentile(99).max(FLOOR).as_secs_f64();
        let errors = alone.errors.len() + beside.errors.len();
        let ms = |duration: Duration| format!("{:.1}", duration.as_secs_f64() * 1e3);
        println!(
            "{:<20}{:<56}{:>8}{:>8}{:>9}{:>9}{:>9}{:>9}{:>9}{ratio:>7.2}{errors:>8}",
            case.resource,
            case.hostile,
            alone.samples.len(),
            beside.samples.len(),
            ms(alone.samples.percentile(50)),
            ms(alone.samples.percentile(99)),
            ms(beside.samples.percentile(50)),
            ms(beside.samples.percentile(90)),
            ms(beside.samples.percentile(99)),
        );
        for error in alone.errors.iter().chain(&beside.errors).take(3) {
            println!("  {error}");
        }
        complaints += u64::from(errors > 0 || ratio > RATIO);
    }
    attackers.shutdown_background();
    println!("resources with errors or a ratio over {RATIO}: {complaints}");
    complaints
}

/// The accounts' datasets: one to push to, with versions to compare, and some to fetch.
async fn prepare(server: &Server) -> World {
    let source = serve_source().await;
    let mut world = World {
        address: server.address,
        catalogue: server.catalogue.clone(),
        measurements: server.measurements.clone(),
        wide: server.wide.clone(),
        honest: User {
            email: "honest@example.org",
            token: server.add_user("honest@example.org"),
            pushed: 0,
            fetched: 0,
        },
        hostile: User {
            email: "hostile@example.org",
            token: server.add_user("hostile@example.org"),
            pushed: 0,
            fetched: 0,
        },
        source,
        large: entities_to_push(0, 200_000),
        numbers: AtomicU64::new(1),
    };
    let url = format!("http://{}/", world.source);
    for hostile in [false, true] {
        let from = if hostile { hostile_address(0) } else { HONEST.into() };
        let token = if hostile { &world.hostile.token } else { &world.honest.token };
        let pushed = create(&world, from, token, "Pushed", "push").await;
        let mut fetched = Vec::new();
        for number in 0..8 {
            fetched.push(create(&world, from, token, &format!("Fetched {number}"), &url).await);
        }
        let user = if hostile { &mut world.hostile } else { &mut world.honest };
        (user.pushed, user.fetched) = (pushed, fetched[0]);
    }
    let (few, many) = (if server.is_debug() { 50 } else { 500 }, if server.is_debug() { 500 } else { 20_000 });
    for version in 0..2 {
        push(&world, HONEST.into(), &world.honest, version, few).await.expect("the honest user pushes");
    }
    for version in 0..6 {
        push(&world, hostile_address(0), &world.hostile, version, many).await.expect("the hostile user pushes");
    }
    world
}

/// Creates a dataset; its id.
async fn create(world: &World, from: IpAddr, token: &str, name: &str, source: &str) -> u64 {
    let mut client = Client::connect_from(world.address, from, None).await.expect("the server listens");
    let fields = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let body = format!("{{\"name\":\"{name}\",\"source\":\"{source}\",\"format\":\"json\"}}");
    let body = if source == "push" { format!("{{\"name\":\"{name}\",\"source\":\"push\"}}") } else { body };
    let head = client.send("POST", "/dataset/create", &fields, &body).await.expect("an answer");
    let answer = client.text(&head).await.expect("a whole answer");
    let record: serde_json::Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("no record: {answer}"));
    record["dataset"]["dataset_id"].as_u64().unwrap_or_else(|| panic!("no id: {answer}"))
}

/// A source on the loopback interface.
async fn serve_source() -> SocketAddr {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 23\r\nConnection: close\r\n\r\n[{\"name\":\"an entity\"}]\n";
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
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

/// A name server that never answers: its address, for as long as the socket is kept.
pub async fn silent_name_server() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let address = socket.local_addr().expect("its address");
    (socket, address)
}
