//! Table `api_tokens`.

use super::convert::{from_time, now};
use super::engine::Value;
use super::{Catalog, CatalogError, UserId};

impl Catalog {
    /// Records an API token of a user by its hash, under a name that is unique among the user's tokens.
    ///
    /// # Errors
    ///
    /// [`CatalogError::TokenNameTaken`], [`CatalogError::NotFound`] if there is no such user.
    pub async fn add_token(&self, user: UserId, name: &str, token_hash: &str) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let added = transaction
            .execute(
                "INSERT INTO api_tokens (user_id, name, token_hash, created_at)
                 VALUES ($1, $2, $3, $4)
                 ON CONFLICT (user_id, name) DO NOTHING",
                &[user.into(), Value::Text(name), Value::Text(token_hash), from_time(now())],
            )
            .await
            .map_err(CatalogError::of_insert)?;
        if added == 0 {
            return Err(CatalogError::TokenNameTaken);
        }
        transaction.commit().await?;
        Ok(())
    }
}
