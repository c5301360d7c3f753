//! `strata nodes`: lists the servers of the service.

use clap::Args;
use serde::Serialize;

use super::error::CliError;
use super::table::{Align, Table};
use super::{closing, print};
use crate::cluster::nodes::NodeState;
use crate::config::Config;
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

pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_records(&config).await?;
    closing(&app, list(&app, &arguments)).await
}

async fn list(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let lines: Vec<Line> = app.nodes().all().await.map_err(CliError::Nodes)?.into_iter().map(line).collect();
    if lines.is_empty() && !arguments.json {
        return print("no server has registered: servers do with PostgreSQL, or with a section [cluster]\n");
    }
    let mut table = Table::new([
        ("NODE", Align::Left),
        ("STATE", Align::Left),
        ("SEEN", Align::Right),
        ("VERSION", Align::Left),
        ("ROLES", Align::Left),
        ("ADDRESS", Align::Left),
    ]);
    table.print(lines, arguments.json, cells)
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

fn cells(line: Line) -> [String; 6] {
    [
        line.node,
        line.state.to_owned(),
        format!("{} s ago", line.seen_s_ago),
        line.version,
        line.roles.join(","),
        line.internal_address.unwrap_or_else(|| "-".to_owned()),
    ]
}
