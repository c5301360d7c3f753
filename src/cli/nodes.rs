//! `strata nodes`: lists the servers of the service.

use clap::Args;
use serde::Serialize;
use strata_cluster::nodes::NodeState;
use strata_service::Services;

use super::error::CliError;
use super::print_stdout;
use super::table::{ColumnAlign, TextTable, TextTableColumn, or_dash};

/// List the nodes of the cluster
///
/// Prints one line for each node in the metadata database: its name (`cluster.node`), its state (alive or lost), the
/// time since its last heartbeat, its version, its roles (`server.roles`), and its internal address. A server registers
/// as a node if it uses PostgreSQL, or if its configuration has a `[cluster]` section.
#[derive(Debug, Args)]
pub(super) struct NodesArguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct NodeLine {
    node: String,
    state: &'static str,
    seen_s_ago: u64,
    version: String,
    roles: Vec<String>,
    internal_address: Option<String>,
    started_at: String,
}

const NODE_COLUMNS: &[TextTableColumn<NodeLine>] = &[
    ("NODE", ColumnAlign::Left, |line| line.node.clone()),
    ("STATE", ColumnAlign::Left, |line| line.state.to_owned()),
    ("SEEN", ColumnAlign::Right, |line| format!("{} s ago", line.seen_s_ago)),
    ("VERSION", ColumnAlign::Left, |line| line.version.clone()),
    ("ROLES", ColumnAlign::Left, |line| line.roles.join(",")),
    ("ADDRESS", ColumnAlign::Left, |line| or_dash(line.internal_address.clone())),
];

pub(super) async fn run(services: &Services, NodesArguments { json }: NodesArguments) -> Result<(), CliError> {
    let lines: Vec<NodeLine> =
        services.nodes.list_nodes().await.map_err(CliError::Nodes)?.into_iter().map(node_line).collect();
    if lines.is_empty() && !json {
        let text = "no nodes: a server registers as a node only if it uses PostgreSQL or has a [cluster] section\n";
        return print_stdout(text);
    }
    TextTable::new(NODE_COLUMNS).print(&lines, json)
}

fn node_line(NodeState { node, since_heartbeat, is_offline }: NodeState) -> NodeLine {
    NodeLine {
        state: if is_offline { "lost" } else { "alive" },
        seen_s_ago: since_heartbeat.as_secs(),
        started_at: node.started_at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
        node: node.registration.id,
        version: node.registration.version,
        roles: node.registration.roles.split(',').map(str::to_owned).collect(),
        internal_address: node.registration.internal_address,
    }
}
