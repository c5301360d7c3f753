//! Users and their API tokens.

use argon2::{Argon2, PasswordHasher};

use super::App;
use crate::catalog::CatalogError;
use crate::model::secret::Secret;
use crate::model::user::Plan;

/// A user that was added.
#[derive(Debug)]
pub struct AddedUser {
    /// The token that was asked for. It is kept hashed and cannot be shown again.
    pub token: Option<Secret>,
}

/// A user cannot be added.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// Not an e-mail address.
    #[error("`{0}` is not an e-mail address, such as ada@example.org")]
    Email(String),
    /// The password is empty or too long.
    #[error("the password must have {} to {} bytes", PASSWORD_BYTES.start(), PASSWORD_BYTES.end())]
    Password,
    /// The token's name is empty or too long.
    #[error("a token's name must have 1 to {TOKEN_NAME_BYTES} bytes")]
    TokenName,
    /// There is a user of that address.
    #[error("there is already a user {0}")]
    EmailTaken(String),
    /// The password cannot be hashed.
    #[error("the password cannot be hashed: {0}")]
    Hash(String),
    /// The catalog failed.
    #[error("the catalog")]
    Catalog(#[source] CatalogError),
}

/// Lengths of passwords. The upper bound keeps hashing cheap to refuse.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 1..=1_024;
const TOKEN_NAME_BYTES: usize = 200;
const EMAIL_BYTES: usize = 254;

impl App {
    /// Adds a user, with an API token of that name if one is given. The password is kept as Argon2id.
    ///
    /// # Errors
    /// [`AccountError`]; nothing is added then.
    pub async fn add_user(
        &self,
        email: &str,
        password: &str,
        plan: Plan,
        token_name: Option<&str>,
    ) -> Result<AddedUser, AccountError> {
        let email = email.trim();
        if !is_email(email) {
            return Err(AccountError::Email(email.to_owned()));
        }
        if !PASSWORD_BYTES.contains(&password.len()) {
            return Err(AccountError::Password);
        }
        if token_name.is_some_and(|name| name.is_empty() || name.len() > TOKEN_NAME_BYTES) {
            return Err(AccountError::TokenName);
        }
        let hash = hash_password(password.to_owned()).await?;
        let user = self.catalog().add_user(email, &hash, plan).await.map_err(|error| match error {
            CatalogError::EmailTaken => AccountError::EmailTaken(email.to_owned()),
            other => AccountError::Catalog(other),
        })?;
        let Some(name) = token_name else { return Ok(AddedUser { token: None }) };
        let token = Secret::api_token(rand::random());
        self.catalog().add_token(user, name, &token.hash()).await.map_err(AccountError::Catalog)?;
        Ok(AddedUser { token: Some(token) })
    }
}

/// Something before one `@` and a name after it, without blanks: enough to catch slips of the hand.
fn is_email(text: &str) -> bool {
    let shape = |(local, host): (&str, &str)| !local.is_empty() && !host.is_empty() && !host.contains('@');
    text.len() <= EMAIL_BYTES
        && !text.chars().any(|character| character.is_whitespace() || character.is_control())
        && text.split_once('@').is_some_and(shape)
}

async fn hash_password(password: String) -> Result<String, AccountError> {
    let hash = move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string());
    match tokio::task::spawn_blocking(hash).await {
        Ok(Ok(hash)) => Ok(hash),
        Ok(Err(error)) => Err(AccountError::Hash(error.to_string())),
        Err(error) => Err(AccountError::Hash(error.to_string())),
    }
}
