//! The datasets that everybody may find: public and listed ones.

use std::sync::Arc;

use crate::catalog::{Catalog, Listing};
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::service::admission::catalog::CatalogGates;
use crate::service::{Client, ManageError};

pub struct Listings {
    pub(crate) catalog: Catalog,
    pub(crate) gates: Arc<CatalogGates>,
}

impl Listings {
    pub fn check(&self, query: Option<&str>) -> Result<(), ManageError> {
        const MOST: usize = limits::LISTINGS_QUERY_CHARACTERS;
        let invalid = |problem| Err(ManageError::Invalid { field: "q", problem });
        match query {
            Some(query) if query.chars().nth(MOST).is_some() => invalid(format!("it is longer than {MOST} characters")),
            // No name has one, and PostgreSQL takes none.
            Some(query) if query.contains('\0') => invalid("it must not hold the character U+0000".to_owned()),
            _ => Ok(()),
        }
    }

    /// The listed datasets with ids greater than `after`, by id, at most `limit`; with `query` those whose name or
    /// description holds it, case-insensitively. One statement, in the client's turn.
    pub async fn find(
        &self,
        client: Client,
        query: Option<&str>,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<Listing>, ManageError> {
        self.check(query)?;
        let _permit = self.gates.look_up(client).await?;
        Ok(self.catalog.listings(query, after, limit).await?)
    }
}
