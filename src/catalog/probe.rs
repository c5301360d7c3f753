//! Tests with one small write whether the catalog can be written.

use super::convert::from_time;
use super::{Catalog, CatalogError};

impl Catalog {
    /// Writes to the database and waits until it is on the disk: one update by primary key and a commit.
    pub async fn probe(&self) -> Result<(), CatalogError> {
        let sql = "INSERT INTO write_probes (probe_id, written_at) VALUES (0, $1)
                   ON CONFLICT (probe_id) DO UPDATE SET written_at = EXCLUDED.written_at";
        self.engine.write(sql, &[from_time(self.now())]).await?;
        Ok(())
    }
}
