//! The datasets that everybody may find: public and listed ones.

use crate::catalog::Listing;
use crate::model::ids::DatasetId;
use crate::model::limits;
use crate::service::dataset::Datasets;
use crate::service::{Client, ManageError};

impl Datasets {
    pub fn check_listing_query(query: Option<&str>) -> Result<(), ManageError> {
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
    pub async fn listed(
        &self,
        client: Client,
        query: Option<&str>,
        after: Option<DatasetId>,
        limit: u32,
    ) -> Result<Vec<Listing>, ManageError> {
        Datasets::check_listing_query(query)?;
        let _permit = self.writes.gates.look_up(client).await?;
        Ok(self.catalog.listings(query, after, limit).await?)
    }
}
