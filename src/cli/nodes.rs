//! `strata nodes`: lists the servers of the service.

use clap::Args;
use serde::Serialize;
use strata_cluster::nodes::NodeState;
use strata_service::Services;

use super::error::CliError;
use super::print;
use super::table::{Align, Column, Table, or_dash};

/// List the nodes of the cluster
///
/// Prints one line for each node in the metadata database: its name (`cluster.node`), its state (alive or lost), the
/// time since its last heartbeat, its version, its roles (`server.roles`), and its internal address. A server registers
/// as a node if it uses PostgreSQL, or if its configuration has a `[cluster]` section.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    node: String,
    state: &'static str,
    seen_s_ago: u64,
    version: String,
    roles: Vec<String>,
    internal_address: Option<String>,
    started_at: String,
}

const COLUMNS: &[Column<Line>] = &[
    ("NODE", Align::Left, |line| line.node.clone()),
    ("STATE", Align::Left, |line| line.state.to_owned()),
    ("SEEN", Align::Right, |line| format!("{} s ago", line.seen_s_ago)),
    ("VERSION", Align::Left, |line| line.version.clone()),
    ("ROLES", Align::Left, |line| line.roles.join(",")),
    ("ADDRESS", Align::Left, |line| or_dash(line.internal_address.clone())),
];

pub(super) async fn run(services: &Services, Arguments { json }: Arguments) -> Result<(), CliError> {
    let lines: Vec<Line> = services.nodes.all().await.map_err(CliError::Nodes)?.into_iter().map(line).collect();
    if lines.is_empty() && !json {
        return print("no nodes: a server registers as a node only if it uses PostgreSQL or has a [cluster] section\n");
    }
    Table::new(COLUMNS).print(&lines, json)
}

fn line(NodeState { node, silent, is_lost }: NodeState) -> Line {
    Line {
        state: if is_lost { "lost" } else { "alive" },
        seen_s_ago: silent.as_secs(),
        started_at: node.started_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        node: node.registration.id,
        version: node.registration.version,
        roles: node.registration.roles.split(',').map(str::to_owned).collect(),
        internal_address: node.registration.internal_address,
    }
}
