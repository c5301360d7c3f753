//! A whole service on loopback, of the parts that users have: three processes of the binary behind HAProxy, on
//! PostgreSQL, Redis and SeaweedFS. The very blocks of the page about clusters configure it; only addresses differ.
//!
//! Each service has a network of its own within 127.0.0.0/8. So every node has the port that the page names, and comes
//! back to it when it is started again.

mod balancer;
mod client;
mod node;
mod objects;
mod page;

use std::net::{IpAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use strata_testing::machine::{Machine, succeeded};
use strata_testing::postgres::Postgres;
use strata_testing::redis::RedisServer;

use balancer::Balancer;
pub use client::{Door, Reply};
pub use node::Node;
use objects::ObjectServer;
pub use page::Page;

/// How many servers there are.
pub const NODES: usize = 3;

/// A running service. It ends, part by part, when it is dropped.
pub struct Cluster {
    /// What clients reach.
    pub door: Door,
    pub nodes: Vec<Node>,
    pub postgres: Postgres,
    pub redis: RedisServer,
    pub objects: ObjectServer,
    /// The URL of the catalog.
    pub catalog: String,
    _balancer: Balancer,
    network: String,
    environment: Vec<(&'static str, String)>,
    /// More of it, for each node.
    own: [Vec<(String, String)>; NODES],
}

impl Cluster {
    /// The service of all tests that run at the moment and leave it as it is. Clients with a key may make
    /// [`PRIVATE_PER_MINUTE`] requests.
    pub async fn shared() -> Arc<Cluster> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        tokio::task::spawn_blocking(|| {
            // A test that failed to start one must not keep others from trying.
            let mut shared = SHARED.lock().unwrap_or_else(|poison| poison.into_inner());
            shared.upgrade().unwrap_or_else(|| {
                let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                let limit = PRIVATE_PER_MINUTE.to_string();
                let cluster = runtime.block_on(Cluster::start(&[("STRATA_LIMITS__PRIVATE_PER_MINUTE", &limit)]));
                let cluster = Arc::new(cluster);
                *shared = Arc::downgrade(&cluster);
                cluster
            })
        })
        .await
        .expect("a service")
    }

    /// A service of one test's own, with more variables for its servers.
    pub async fn start(more: &[(&'static str, &str)]) -> Cluster {
        Cluster::start_each(more, |_| Default::default()).await
    }

    /// The same, with variables for each server that are made for the addresses of the service.
    pub async fn start_each(
        more: &[(&'static str, &str)],
        own: impl FnOnce(&Page) -> [Vec<(String, String)>; NODES],
    ) -> Cluster {
        let (number, network) = free_network();
        let (postgres, redis) = (Postgres::own(), RedisServer::start());
        let objects = ObjectServer::start(&format!("{network}30"), number);
        let page = page::Page {
            network: network.clone(),
            catalog: postgres.create_database().await,
            redis: redis.url().expose().to_owned(),
        };
        let mut environment: Vec<(&'static str, String)> = objects.environment().to_vec();
        environment.extend([
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0".to_owned()),
            // Machines can be slow; more is not allowed.
            ("STRATA_LIMITS__REDIS_TIMEOUT_MS", "1000".to_owned()),
            // Soon enough for a test.
            ("STRATA_CLUSTER__LOST_AFTER_S", "5".to_owned()),
            ("STRATA_NET__ALLOW", "127.0.0.0/8".to_owned()),
            ("STRATA_SOURCES__SCHEDULE_SPREAD_S", "0".to_owned()),
            // Three of them share a small machine.
            ("STRATA_QUERY__THREADS", "2".to_owned()),
            ("STRATA_QUERY__MEMORY_BYTES", (512_u64 << 20).to_string()),
            ("STRATA_CACHE__MEMORY_BYTES", (256_u64 << 20).to_string()),
        ]);
        environment.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let token = add_owner(&page, &environment);
        let mut nodes: Vec<Node> = (0..NODES).map(|number| Node::new(&page, number)).collect();
        let own = own(&page);
        for (node, own) in nodes.iter_mut().zip(&own) {
            node.start(&environment, own, &[]);
        }
        let balancer = Balancer::start(&page);
        let door = Door::new(&balancer.base_url(), &token);
        let catalog = page.catalog;
        let cluster =
            Cluster { door, nodes, postgres, redis, objects, catalog, _balancer: balancer, network, environment, own };
        cluster.until_ready().await;
        cluster
    }

    /// The door of one server, past the balancer.
    pub fn door_of(&self, node: usize) -> Door {
        self.door.at(&self.nodes[node].base_url())
    }

    /// Where a server takes tasks of the others.
    pub fn tasks_of(&self, node: usize) -> String {
        format!("{}1{}:8081", self.network, node + 1)
    }

    /// An address of this machine at which no part of the service is, from 100 to 250.
    pub fn address(&self, number: usize) -> IpAddr {
        assert!((100..=250).contains(&number));
        format!("{}{number}", self.network).parse().expect("an address")
    }

    /// Starts a server that has ended, with more variables, and waits until it answers.
    pub fn start_node(&mut self, node: usize, more: &[(&str, &str)]) {
        self.nodes[node].start(&self.environment, &self.own[node], more);
    }

    /// Waits until every server and the balancer answer.
    pub async fn until_ready(&self) {
        let doors = (0..NODES).map(|node| self.door_of(node)).chain([self.door.clone()]);
        for door in doors {
            until(&format!("{} answers", door.base_url), async || {
                door.get("/readyz").await.is_some_and(|reply| reply.is_ok())
            })
            .await;
        }
    }

    /// A dataset of the owner's, without a version; its id and what the answer tells of it.
    pub async fn dataset(&self, name: &str, settings: Value) -> (u64, Value) {
        let mut body = settings;
        body["name"] = json!(name);
        let created = self.door.post("/dataset/create", &body).await.expect("an answer").json();
        (created["dataset"]["dataset_id"].as_u64().expect("an id"), created["dataset"].clone())
    }

    /// Makes the next version of a dataset; its number.
    pub async fn push(&self, dataset: u64, entities: &Value) -> u64 {
        self.push_text(dataset, &entities.to_string()).await
    }

    /// The same of a list in JSON, to the letter.
    pub async fn push_text(&self, dataset: u64, entities: &str) -> u64 {
        let body = format!(r#"{{"dataset_id":{dataset},"entities":{entities}}}"#);
        let pushed = self.door.post_text("/dataset/refresh", body).await.expect("an answer").json();
        pushed["version"]["version_number"].as_u64().expect("a number")
    }

    /// What the servers have written to their logs.
    pub fn logs(&self) -> String {
        let logs = self.nodes.iter().enumerate().map(|(number, node)| format!("node {}:\n{}", number + 1, node.log()));
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// What clients with a key may do in [`Cluster::shared`].
pub const PRIVATE_PER_MINUTE: u64 = 40;

/// Waits until a condition holds: long, since machines can be slow.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Adds the owner by the command; the API token.
fn add_owner(page: &page::Page, environment: &[(&'static str, String)]) -> String {
    let machine = Machine::new();
    machine.write("strata.toml", &page.strata(0, &machine.path("data")));
    let words = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci", "--config", "strata.toml"];
    let mut command = machine.command(&words);
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, b"correct horse\n").expect("written");
    drop(input);
    let printed = succeeded(&child.wait_with_output().expect("it ends"));
    printed.lines().last().expect("a token").to_owned()
}

/// A network of 256 addresses that nobody uses, as `127.70.3.`, and its number.
fn free_network() -> (u32, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..64 {
        // Other runs of the tests have other process ids.
        let number = std::process::id().wrapping_mul(16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let network = format!("127.{}.{}.", 64 + (number >> 8) % 128, number % 256);
        if TcpListener::bind(format!("{network}11:8080")).is_ok() {
            return (number, network);
        }
    }
    panic!("no network is free");
}

/// Sends a signal to a process.
pub fn signal(process: u32, signal: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} is sent");
}
