//! Attacks on the nodes and shared services of a cluster.

use std::time::Duration;

use serde_json::json;
use tokio::task::block_in_place;

use super::clients::ChaosRun;
use crate::cluster::harness::{NODES, TestCluster, until};
use crate::cluster::history::DisturbedPart;
use crate::cluster::seeded_random::SeededRandom;

#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// Kills a node with SIGKILL, and starts it again.
    Kill(usize),
    /// Stops a node for a while with SIGSTOP.
    Pause(usize),
    CrashCatalog,
    PauseCatalog,
    KillObjects,
    KillRedis,
    PauseRedis,
}

/// Datasets to check that a node works: one dataset for each node, so that the checks do not block each other.
pub struct Probes(Vec<u64>);

impl Probes {
    pub async fn new(cluster: &TestCluster) -> Probes {
        let mut datasets = Vec::new();
        for node in 0..NODES {
            datasets.push(cluster.dataset(&format!("Probe {node}"), json!({})).await.0);
        }
        Probes(datasets)
    }

    /// Waits until each node can create and read a version, and the load balancer is ready.
    async fn wait_until_healthy(&self, cluster: &TestCluster) {
        for (node, dataset) in self.0.iter().enumerate() {
            let client = cluster.client_of(node);
            let path = format!("/api/{dataset}/probe-{node}/latest/");
            let body = json!({"dataset_id": dataset, "entities": [{"n": node}]});
            until("a node is healthy", async || {
                let ready = client.get("/readyz").await.is_some_and(|reply| reply.is_ok());
                let is_created =
                    ready && client.post("/dataset/refresh", &body).await.is_some_and(|reply| reply.is_ok());
                is_created && client.get(&path).await.is_some_and(|reply| reply.is_ok())
            })
            .await;
        }
        until("the load balancer is healthy", async || {
            cluster.client.get("/readyz").await.is_some_and(|reply| reply.is_ok())
        })
        .await;
    }
}

impl Attack {
    /// Returns each kind of attack, with a kill of each node.
    pub fn all() -> Vec<Attack> {
        let kills = (0..NODES).map(Attack::Kill);
        let others = [
            Attack::Pause(0),
            Attack::Pause(1),
            Attack::CrashCatalog,
            Attack::PauseCatalog,
            Attack::KillObjects,
            Attack::KillRedis,
            Attack::PauseRedis,
        ];
        kills.chain(others).collect()
    }

    /// Returns the part whose failure clients may notice.
    fn part(self) -> Option<DisturbedPart> {
        match self {
            Attack::Kill(_) | Attack::Pause(_) => Some(DisturbedPart::Node),
            Attack::CrashCatalog | Attack::PauseCatalog | Attack::KillObjects => Some(DisturbedPart::Shared),
            Attack::KillRedis | Attack::PauseRedis => None,
        }
    }

    /// Runs the attack, and waits until everything works again.
    pub async fn perform(self, cluster: &mut TestCluster, run: &ChaosRun, probes: &Probes, random: &mut SeededRandom) {
        let start = run.now();
        let delay = tokio::time::sleep(Duration::from_millis(300 + random.below(1_200)));
        match self {
            Attack::Kill(node) => {
                cluster.nodes[node].kill();
                delay.await;
                block_in_place(|| cluster.start_node(node, &[]));
            }
            Attack::Pause(node) => {
                cluster.nodes[node].pause();
                delay.await;
                cluster.nodes[node].resume();
            }
            Attack::CrashCatalog => {
                block_in_place(|| cluster.postgres.crash());
                delay.await;
                block_in_place(|| cluster.postgres.restart());
            }
            Attack::PauseCatalog => {
                cluster.postgres.freeze();
                delay.await;
                cluster.postgres.thaw();
            }
            Attack::KillObjects => {
                cluster.objects.kill();
                delay.await;
                block_in_place(|| cluster.objects.restart());
            }
            Attack::KillRedis => {
                cluster.redis.kill();
                delay.await;
                block_in_place(|| cluster.redis.restart());
            }
            Attack::PauseRedis => {
                cluster.redis.freeze();
                delay.await;
                cluster.redis.thaw();
            }
        }
        probes.wait_until_healthy(cluster).await;
        if let Some(part) = self.part() {
            run.record_disturbance(start, part);
        }
    }
}
