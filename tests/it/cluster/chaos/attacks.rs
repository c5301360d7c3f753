//! What is done to a service.

use std::time::Duration;

use serde_json::json;
use tokio::task::block_in_place;

use super::clients::Run;
use crate::cluster::dice::Dice;
use crate::cluster::harness::{Cluster, NODES, until};
use crate::cluster::history::Part;

/// Something that happens to services.
#[derive(Clone, Copy, Debug)]
pub enum Attack {
    /// SIGKILL of a server, which is started again.
    Kill(usize),
    /// A server does nothing for a while, and goes on.
    Pause(usize),
    CrashCatalog,
    PauseCatalog,
    KillObjects,
    KillRedis,
    PauseRedis,
}

/// Datasets to find out whether a server can do all it should: one of each, so that none waits for another.
pub struct Probes(Vec<u64>);

impl Probes {
    pub async fn new(cluster: &Cluster) -> Probes {
        let mut datasets = Vec::new();
        for node in 0..NODES {
            datasets.push(cluster.dataset(&format!("Probe {node}"), json!({})).await.0);
        }
        Probes(datasets)
    }

    /// Waits until every server can make a version and read it, and the balancer knows.
    async fn until_well(&self, cluster: &Cluster) {
        for (node, dataset) in self.0.iter().enumerate() {
            let door = cluster.door_of(node);
            let path = format!("/api/{dataset}/probe-{node}/latest/");
            let body = json!({"dataset_id": dataset, "entities": [{"n": node}]});
            until("a server is well", async || {
                let ready = door.get("/readyz").await.is_some_and(|reply| reply.is_ok());
                let made = ready && door.post("/dataset/refresh", &body).await.is_some_and(|reply| reply.is_ok());
                made && door.get(&path).await.is_some_and(|reply| reply.is_ok())
            })
            .await;
        }
        until("the balancer is well", async || cluster.door.get("/readyz").await.is_some_and(|reply| reply.is_ok()))
            .await;
    }
}

impl Attack {
    /// One of each kind, and all servers killed.
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

    /// What it disturbs, if clients may notice.
    fn part(self) -> Option<Part> {
        match self {
            Attack::Kill(_) | Attack::Pause(_) => Some(Part::Node),
            Attack::CrashCatalog | Attack::PauseCatalog | Attack::KillObjects => Some(Part::Shared),
            Attack::KillRedis | Attack::PauseRedis => None,
        }
    }

    /// Does it, and waits until everything works again.
    pub async fn perform(self, cluster: &mut Cluster, run: &Run, probes: &Probes, dice: &mut Dice) {
        let began = run.now();
        let while_it_lasts = tokio::time::sleep(Duration::from_millis(300 + dice.below(1_200)));
        match self {
            Attack::Kill(node) => {
                cluster.nodes[node].kill();
                while_it_lasts.await;
                block_in_place(|| cluster.start_node(node, &[]));
            }
            Attack::Pause(node) => {
                cluster.nodes[node].pause();
                while_it_lasts.await;
                cluster.nodes[node].go_on();
            }
            Attack::CrashCatalog => {
                block_in_place(|| cluster.postgres.crash());
                while_it_lasts.await;
                block_in_place(|| cluster.postgres.restart());
            }
            Attack::PauseCatalog => {
                cluster.postgres.freeze();
                while_it_lasts.await;
                cluster.postgres.thaw();
            }
            Attack::KillObjects => {
                cluster.objects.kill();
                while_it_lasts.await;
                block_in_place(|| cluster.objects.restart());
            }
            Attack::KillRedis => {
                cluster.redis.kill();
                while_it_lasts.await;
                block_in_place(|| cluster.redis.restart());
            }
            Attack::PauseRedis => {
                cluster.redis.freeze();
                while_it_lasts.await;
                cluster.redis.thaw();
            }
        }
        probes.until_well(cluster).await;
        if let Some(part) = self.part() {
            run.disturbed(began, part);
        }
    }
}
