//! What is computed from the columns of a version file, kept in the cache.

use futures::future::BoxFuture;

use super::VersionReader;
use crate::storage::derived::{Derivation, Derived};
use crate::storage::parts::{Part, PartKey};
use crate::storage::{Result, StorageError};

/// What is derived takes at most one of so many bytes of the cache.
const CACHE_SHARE: u64 = 4;

impl VersionReader {
    /// Whether something with so many bytes for each entity may be kept: it leaves most of the cache to other parts,
    /// and positions fit 32 bits.
    pub fn keeps(&self, entity_bytes: u64) -> bool {
        let entities = self.entity_count();
        entities < u64::from(u32::MAX)
            && entities.saturating_mul(entity_bytes) <= self.own.file.cache.capacity_bytes() / CACHE_SHARE
    }

    pub async fn derived(&self, what: &Derivation) -> Option<Derived> {
        let key = PartKey::Derived { file: self.own.footer.id, what: what.clone() };
        match self.own.file.cache.get(&key).await? {
            Part::Derived(derived) => Some(derived),
            _ => None,
        }
    }

    /// The same, computed where the cache does not hold it. Who asks for the same at the same time waits for one.
    ///
    /// # Errors
    /// What `derive` failed with; nothing is kept then.
    pub async fn derive(&self, what: Derivation, derive: BoxFuture<'_, Result<Derived>>) -> Result<Derived> {
        let key = PartKey::Derived { file: self.own.footer.id, what };
        let loaded = self.own.file.cache.get_or_load(key, || async { derive.await.map(Part::Derived) }).await?;
        let Part::Derived(derived) = loaded else { return Err(StorageError::wrong_part()) };
        Ok(derived)
    }
}
