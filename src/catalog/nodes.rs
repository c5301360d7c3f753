//! Table `nodes`: the servers that share the catalog, and the last heartbeat of each.
//!
//! A name belongs to the process that registered last. A replaced process notices at its next heartbeat.

use chrono::{DateTime, Utc};

use super::convert::{from_time, optional_text, text};
use super::engine::{Record, Row, Value, select};
use super::{Catalog, Result};

const LISTED: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    pub id: String,
    /// Which process has the name: a random text, another one at each start.
    pub process: String,
    pub version: String,
    pub roles: String,
    pub internal_address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub registration: NewNode,
    pub started_at: DateTime<Utc>,
    pub seen_at: DateTime<Utc>,
}

impl Record for Node {
    fn from_row(row: &Row) -> Result<Node> {
        Ok(Node {
            registration: NewNode {
                id: row.get("node_id")?,
                process: row.get("process")?,
                version: row.get("version")?,
                roles: row.get("roles")?,
                internal_address: row.get("internal_address")?,
            },
            started_at: row.time("nodes.started_at")?,
            seen_at: row.time("nodes.seen_at")?,
        })
    }
}

impl Catalog {
    /// Registers a server under its name, and replaces the process that had the name.
    pub async fn register_node(&self, node: &NewNode) -> Result<()> {
        let sql = "INSERT INTO nodes (node_id, process, version, roles, internal_address, started_at, seen_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $6)
                   ON CONFLICT (node_id) DO UPDATE
                   SET process = EXCLUDED.process, version = EXCLUDED.version, roles = EXCLUDED.roles,
                       internal_address = EXCLUDED.internal_address, started_at = EXCLUDED.started_at, seen_at = EXCLUDED.seen_at";
        let values = &[
            text(&node.id, "node_id")?,
            text(&node.process, "process")?,
            text(&node.version, "version")?,
            text(&node.roles, "roles")?,
            optional_text(node.internal_address.as_deref(), "internal_address")?,
            from_time(self.now()),
        ];
        self.engine.write(sql, values).await.map(drop)
    }

    /// Records a heartbeat; false if the name belongs to another process by now, or to none.
    pub async fn node_lives(&self, node: &NewNode) -> Result<bool> {
        let sql = "UPDATE nodes SET seen_at = $3 WHERE node_id = $1 AND process = $2";
        let values = &[Value::Text(Some(&node.id)), Value::Text(Some(&node.process)), from_time(self.now())];
        Ok(self.engine.write(sql, values).await? > 0)
    }

    /// Removes a server that ends, unless the name is another process's by now.
    pub async fn remove_node(&self, node: &NewNode) -> Result<()> {
        let sql = "DELETE FROM nodes WHERE node_id = $1 AND process = $2";
        self.engine.write(sql, &[Value::Text(Some(&node.id)), Value::Text(Some(&node.process))]).await.map(drop)
    }

    /// Removes servers whose last heartbeat is older, and returns their number.
    pub async fn forget_nodes(&self, seen_before: DateTime<Utc>) -> Result<u64> {
        self.engine.write("DELETE FROM nodes WHERE seen_at < $1", &[from_time(seen_before)]).await
    }

    pub async fn node(&self, id: &str) -> Result<Option<Node>> {
        self.engine.find(select!(nodes, "WHERE node_id = $1"), &[text(id, "node_id")?]).await
    }

    pub async fn nodes(&self) -> Result<Vec<Node>> {
        self.engine.list(select!(nodes, "ORDER BY node_id LIMIT $1"), &[LISTED.into()]).await
    }
}
