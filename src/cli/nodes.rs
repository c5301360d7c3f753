//! `strata nodes`: lists the servers of the service.

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::print;
use super::table::{Align, Column, Table, or_dash};
use crate::cluster::nodes::NodeState;
use crate::service::App;

/// List the servers of the service
///
/// Prints a line for each server that has registered in the catalog: its name (`cluster.node`), whether it is alive or
/// lost, how many seconds ago it gave its last sign of life, its version, its roles (`server.roles`), and its internal
/// address. Servers register with PostgreSQL, or if the configuration has a section `[cluster]`.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print lines of JSON
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

pub(super) async fn run(app: &App, Arguments { json }: Arguments) -> Result<(), CliError> {
    let lines: Vec<Line> = app.nodes().all().await.map_err(CliError::Nodes)?.into_iter().map(line).collect();
    if lines.is_empty() && !json {
        return print("no server has registered: servers do with PostgreSQL, or with a section [cluster]\n");
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
