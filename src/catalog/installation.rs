//! Table `installation`: the identity of this metadata database, and whether a store has been marked with it.

use super::database_engine::SqlValue;
use super::{Catalog, CatalogError, Result};

const IDENTITY_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallationRecord {
    /// A random ID of 32 hexadecimal digits. Copies of the database have the same ID.
    pub identity: String,
    pub store_marked: bool,
}

impl Catalog {
    /// Returns the identity of this metadata database, which the first call creates.
    pub async fn ensure_installation(&self) -> Result<InstallationRecord> {
        if let Some(installation) = self.find_installation().await? {
            return Ok(installation);
        }
        let identity = hex::encode(rand::random::<[u8; IDENTITY_BYTES]>());
        let sql = "INSERT INTO installation (installation_id, identity, store_marked) VALUES (0, $1, $2)
                   ON CONFLICT (installation_id) DO NOTHING";
        self.engine.write(sql, &[SqlValue::Text(Some(&identity)), SqlValue::Boolean(Some(false))]).await?;
        let installation = self.find_installation().await?;
        installation.ok_or_else(|| CatalogError::invalid_value("installation.identity", "nothing"))
    }

    async fn find_installation(&self) -> Result<Option<InstallationRecord>> {
        let sql = "SELECT identity, store_marked FROM installation WHERE installation_id = 0";
        let Some((identity, store_marked)) = self.engine.find::<(String, bool)>(sql, &[]).await? else {
            return Ok(None);
        };
        check_identity(&identity)?;
        Ok(Some(InstallationRecord { identity, store_marked }))
    }

    pub async fn set_store_marked(&self) -> Result<()> {
        let sql = "UPDATE installation SET store_marked = $1 WHERE installation_id = 0";
        self.engine.write(sql, &[SqlValue::Boolean(Some(true))]).await.map(drop)
    }
}

pub(super) fn check_identity(identity: &str) -> Result<()> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_valid = identity.len() == 2 * IDENTITY_BYTES && identity.bytes().all(is_digit);
    if is_valid { Ok(()) } else { Err(CatalogError::invalid_value("installation.identity", identity)) }
}
