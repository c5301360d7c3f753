//! Table `installation`: the identity of this catalog, and whether a store has it.

use super::engine::Value;
use super::{Catalog, CatalogError, Result};

const IDENTITY_BYTES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Random, 32 hexadecimal digits; copies of the catalog have the same.
    pub identity: String,
    pub store_marked: bool,
}

impl Catalog {
    /// The identity of this catalog. The first call settles it for ever. One look-up by primary key.
    pub async fn installation(&self) -> Result<Installation> {
        if let Some(found) = self.recorded_installation().await? {
            return Ok(found);
        }
        let identity = hex::encode(rand::random::<[u8; IDENTITY_BYTES]>());
        let sql = "INSERT INTO installation (installation_id, identity, store_marked) VALUES (0, $1, $2)
                   ON CONFLICT (installation_id) DO NOTHING";
        self.engine.write(sql, &[Value::Text(Some(&identity)), Value::Boolean(Some(false))]).await?;
        let found = self.recorded_installation().await?;
        found.ok_or(CatalogError::Corrupt { column: "installation.identity", value: "nothing".to_owned() })
    }

    async fn recorded_installation(&self) -> Result<Option<Installation>> {
        let sql = "SELECT identity, store_marked FROM installation WHERE installation_id = 0";
        let Some((identity, store_marked)) = self.engine.find::<(String, bool)>(sql, &[]).await? else {
            return Ok(None);
        };
        check_identity(&identity)?;
        Ok(Some(Installation { identity, store_marked }))
    }

    pub async fn note_store_marked(&self) -> Result<()> {
        let sql = "UPDATE installation SET store_marked = $1 WHERE installation_id = 0";
        self.engine.write(sql, &[Value::Boolean(Some(true))]).await.map(drop)
    }
}

pub(super) fn check_identity(identity: &str) -> Result<()> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match identity.len() == 2 * IDENTITY_BYTES && identity.bytes().all(is_digit) {
        true => Ok(()),
        false => Err(CatalogError::Corrupt { column: "installation.identity", value: identity.to_owned() }),
    }
}
