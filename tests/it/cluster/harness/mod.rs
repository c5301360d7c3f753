//! A cluster on loopback like in production: three processes behind HAProxy, with PostgreSQL, Redis and SeaweedFS. The
//! configuration blocks in docs/guides/cluster.md configure it; only addresses differ.
//!
//! Each cluster has its own network within 127.0.0.0/8, so that each node has the documented port, even after a
//! restart.

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
pub use client::{ClusterResponse, ServiceClient};
pub use node::Node;
use objects::ObjectServer;
pub use page::GuideConfig;

pub const NODES: usize = 3;

/// A running cluster, whose processes end when the value is dropped.
pub struct TestCluster {
    /// The client for the load balancer.
    pub client: ServiceClient,
    pub nodes: Vec<Node>,
    pub postgres: Postgres,
    pub redis: RedisServer,
    pub objects: ObjectServer,
    /// URL of the metadata database.
    pub catalog: String,
    _balancer: Balancer,
    network: String,
    environment: Vec<(&'static str, String)>,
    /// Additional variables of each node.
    node_environments: [Vec<(String, String)>; NODES],
}

impl TestCluster {
    /// Returns the cluster that concurrent tests share, which they must not attack. Clients with a private key can send
    /// [`PRIVATE_PER_MINUTE`] requests.
    pub async fn shared() -> Arc<TestCluster> {
        static SHARED: Mutex<Weak<TestCluster>> = Mutex::new(Weak::new());
        tokio::task::spawn_blocking(|| {
            // After a failed start, other tests try again.
            let mut shared = SHARED.lock().unwrap_or_else(|poison| poison.into_inner());
            shared.upgrade().unwrap_or_else(|| {
                let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                let limit = PRIVATE_PER_MINUTE.to_string();
                let cluster = runtime.block_on(TestCluster::start(&[("STRATA_LIMITS__PRIVATE_PER_MINUTE", &limit)]));
                let cluster = Arc::new(cluster);
                *shared = Arc::downgrade(&cluster);
                cluster
            })
        })
        .await
        .expect("a cluster")
    }

    /// Starts a separate cluster, with additional environment variables for its nodes.
    pub async fn start(more: &[(&'static str, &str)]) -> TestCluster {
        TestCluster::start_each(more, |_| Default::default()).await
    }

    /// Like [`TestCluster::start`], with additional variables for each node that depend on the network.
    pub async fn start_each(
        more: &[(&'static str, &str)],
        node_environments: impl FnOnce(&GuideConfig) -> [Vec<(String, String)>; NODES],
    ) -> TestCluster {
        let (number, network) = free_network();
        let postgres = Postgres::own();
        let redis = RedisServer::start();
        let objects = ObjectServer::start(&format!("{network}30"), number);
        let page = page::GuideConfig {
            network: network.clone(),
            catalog: postgres.create_database().await,
            redis: redis.url().expose().to_owned(),
        };
        let mut environment: Vec<(&'static str, String)> = objects.environment().to_vec();
        environment.extend([
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0".to_owned()),
            // The maximum, because test machines can be slow.
            ("STRATA_LIMITS__REDIS_TIMEOUT_MS", "1000".to_owned()),
            // Short, so that tests do not wait long.
            ("STRATA_CLUSTER__LOST_AFTER_S", "5".to_owned()),
            ("STRATA_NET__ALLOW", "127.0.0.0/8".to_owned()),
            ("STRATA_SOURCES__SCHEDULE_SPREAD_S", "0".to_owned()),
            // Three nodes share a small machine.
            ("STRATA_QUERY__THREADS", "2".to_owned()),
            ("STRATA_QUERY__MEMORY_BYTES", (512_u64 << 20).to_string()),
            ("STRATA_CACHE__MEMORY_BYTES", (256_u64 << 20).to_string()),
        ]);
        environment.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let token = add_owner(&page, &environment);
        let mut nodes: Vec<Node> = (0..NODES).map(|number| Node::new(&page, number)).collect();
        let node_environments = node_environments(&page);
        for (node, node_environment) in nodes.iter_mut().zip(&node_environments) {
            node.start(&environment, node_environment, &[]);
        }
        let balancer = Balancer::start(&page);
        let client = ServiceClient::new(&balancer.base_url(), &token);
        let catalog = page.catalog;
        let cluster = TestCluster {
            client,
            nodes,
            postgres,
            redis,
            objects,
            catalog,
            _balancer: balancer,
            network,
            environment,
            node_environments,
        };
        cluster.until_ready().await;
        cluster
    }

    /// Returns a client for one node, without the load balancer.
    pub fn client_of(&self, node: usize) -> ServiceClient {
        self.client.with_base_url(&self.nodes[node].base_url())
    }

    /// Returns the address where a node accepts tasks of other nodes.
    pub fn task_address(&self, node: usize) -> String {
        format!("{}1{}:8081", self.network, node + 1)
    }

    /// Returns an unused address in the network of the cluster. `number` must be from 100 to 250.
    pub fn address(&self, number: usize) -> IpAddr {
        assert!((100..=250).contains(&number));
        format!("{}{number}", self.network).parse().expect("an address")
    }

    /// Starts a stopped node with additional variables.
    pub fn start_node(&mut self, node: usize, more: &[(&str, &str)]) {
        self.nodes[node].start(&self.environment, &self.node_environments[node], more);
    }

    /// Waits until all nodes and the load balancer are ready.
    pub async fn until_ready(&self) {
        let clients = (0..NODES).map(|node| self.client_of(node)).chain([self.client.clone()]);
        for client in clients {
            until(&format!("{} is ready", client.base_url), async || {
                client.get("/readyz").await.is_some_and(|reply| reply.is_ok())
            })
            .await;
        }
    }

    /// Creates a dataset without versions. Returns its ID and its JSON record.
    pub async fn dataset(&self, name: &str, settings: Value) -> (u64, Value) {
        let mut body = settings;
        body["name"] = json!(name);
        let created = self.client.post("/dataset/create", &body).await.expect("a response").json();
        (created["dataset"]["dataset_id"].as_u64().expect("an id"), created["dataset"].clone())
    }

    /// Creates the next version of a dataset, and returns its number.
    pub async fn push(&self, dataset: u64, entities: &Value) -> u64 {
        self.push_text(dataset, &entities.to_string()).await
    }

    /// Like [`TestCluster::push`], with an encoded JSON array.
    pub async fn push_text(&self, dataset: u64, entities: &str) -> u64 {
        let body = format!(r#"{{"dataset_id":{dataset},"entities":{entities}}}"#);
        let pushed = self.client.post_text("/dataset/refresh", body).await.expect("a response").json();
        pushed["version"]["version_number"].as_u64().expect("a number")
    }

    /// Returns the logs of all nodes.
    pub fn logs(&self) -> String {
        let logs = self.nodes.iter().enumerate().map(|(number, node)| format!("node {}:\n{}", number + 1, node.log()));
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// Rate limit for private datasets in [`TestCluster::shared`].
pub const PRIVATE_PER_MINUTE: u64 = 40;

/// Waits until a condition is true, for at most two minutes.
pub async fn until(name: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition().await {
        assert!(Instant::now() < deadline, "{name}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Adds the owner with the command line, and returns the API token.
fn add_owner(page: &page::GuideConfig, environment: &[(&'static str, String)]) -> String {
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
    let printed = succeeded(&child.wait_with_output().expect("command ends"));
    printed.lines().last().expect("a token").to_owned()
}

/// Returns an unused network of 256 addresses, such as `127.70.3.`, and its number.
fn free_network() -> (u32, String) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..64 {
        // Concurrent test runs have different process IDs.
        let number = std::process::id().wrapping_mul(16).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let network = format!("127.{}.{}.", 64 + (number >> 8) % 128, number % 256);
        if TcpListener::bind(format!("{network}11:8080")).is_ok() {
            return (number, network);
        }
    }
    panic!("no network is free");
}

pub fn signal(process: u32, signal: &str) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal} is sent");
}
