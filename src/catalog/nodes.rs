//! Table `nodes`: the servers that share the metadata database, with the last heartbeat of each. A node name belongs to
//! the process that registered last. A replaced process notices this at its next heartbeat.

use chrono::{DateTime, Utc};

use super::convert::{from_optional_text, from_text, from_time};
use super::database_engine::{FromSqlRow, SqlRow, SqlValue, select};
use super::{Catalog, Result};

const MAX_LISTED_NODES: u32 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRegistration {
    pub id: String,
    /// A random ID of the process, which changes at each start.
    pub process_id: String,
    pub version: String,
    pub roles: String,
    pub internal_address: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    pub registration: NodeRegistration,
    pub started_at: DateTime<Utc>,
    pub last_heartbeat_at: DateTime<Utc>,
}

impl FromSqlRow for NodeRecord {
    fn from_row(row: &SqlRow) -> Result<NodeRecord> {
        Ok(NodeRecord {
            registration: NodeRegistration {
                id: row.get("node_id")?,
                process_id: row.get("process")?,
                version: row.get("version")?,
                roles: row.get("roles")?,
                internal_address: row.get("internal_address")?,
            },
            started_at: row.get_time("nodes.started_at")?,
            last_heartbeat_at: row.get_time("nodes.seen_at")?,
        })
    }
}

impl Catalog {
    /// Registers a node, replacing the process that had the same name.
    pub async fn register_node(&self, node: &NodeRegistration) -> Result<()> {
        let sql = "INSERT INTO nodes (node_id, process, version, roles, internal_address, started_at, seen_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $6)
                   ON CONFLICT (node_id) DO UPDATE
                   SET process = EXCLUDED.process, version = EXCLUDED.version, roles = EXCLUDED.roles,
                       internal_address = EXCLUDED.internal_address, started_at = EXCLUDED.started_at,
                       seen_at = EXCLUDED.seen_at";
        let values = &[
            from_text(&node.id, "node_id")?,
            from_text(&node.process_id, "process")?,
            from_text(&node.version, "version")?,
            from_text(&node.roles, "roles")?,
            from_optional_text(node.internal_address.as_deref(), "internal_address")?,
            from_time(self.now()),
        ];
        self.engine.write(sql, values).await.map(drop)
    }

    /// Records a heartbeat. Returns `false` if the process no longer owns the name.
    pub async fn try_record_heartbeat(&self, node: &NodeRegistration) -> Result<bool> {
        let sql = "UPDATE nodes SET seen_at = $3 WHERE node_id = $1 AND process = $2";
        let values = &[SqlValue::Text(Some(&node.id)), SqlValue::Text(Some(&node.process_id)), from_time(self.now())];
        Ok(self.engine.write(sql, values).await? > 0)
    }

    /// Deletes a node that is shutting down, unless another process owns the name.
    pub async fn remove_node(&self, node: &NodeRegistration) -> Result<()> {
        let sql = "DELETE FROM nodes WHERE node_id = $1 AND process = $2";
        let values = &[SqlValue::Text(Some(&node.id)), SqlValue::Text(Some(&node.process_id))];
        self.engine.write(sql, values).await.map(drop)
    }

    pub async fn remove_offline_nodes(&self, seen_before: DateTime<Utc>) -> Result<u64> {
        self.engine.write("DELETE FROM nodes WHERE seen_at < $1", &[from_time(seen_before)]).await
    }

    pub async fn node(&self, id: &str) -> Result<Option<NodeRecord>> {
        self.engine.find(select!(nodes, "WHERE node_id = $1"), &[from_text(id, "node_id")?]).await
    }

    pub async fn nodes(&self) -> Result<Vec<NodeRecord>> {
        self.engine.list(select!(nodes, "ORDER BY node_id LIMIT $1"), &[MAX_LISTED_NODES.into()]).await
    }
}
