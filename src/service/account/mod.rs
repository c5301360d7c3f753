//! Users and their API tokens.

pub(crate) mod login_limits;
pub(crate) mod logins;
pub(crate) mod session_origin;
pub(crate) mod sessions;
mod shared_logins;

use std::io;
use std::sync::Arc;

use argon2::{Argon2, PasswordHasher};
use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{ApiToken, Catalog, CatalogError, Grant};
use strata_runtime::blocking::blocking;
use strata_types::ids::UserId;
use strata_types::limits::{self, EMAIL_BYTES, TOKEN_NAME_BYTES};
use strata_types::scope::Scope;
use strata_types::secret::Secret;
use strata_types::user::{Plan, User};

use crate::manage::{ManageError, OwnerWrites};

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("`{0}` is not an email address; valid: an address such as ada@example.org")]
    Email(String),
    #[error("the password must be {} to {} bytes long", PASSWORD_BYTES.start(), PASSWORD_BYTES.end())]
    Password,
    #[error("the token name must be 1 to {TOKEN_NAME_BYTES} bytes long")]
    TokenName,
    #[error("there is no user {0}; run `strata user list` to list the users, or `strata user add` to add one")]
    NoUser(String),
    #[error("the user {0} already exists")]
    EmailTaken(String),
    #[error(
        "cannot remove the user {email}, who has {count} dataset{}; only datasets without versions can be deleted \
         (DELETE /dataset/delete)",
        if *count == 1 { "" } else { "s" }
    )]
    HasDatasets { email: String, count: u64 },
    #[error("failed to hash the password: {0}")]
    Hash(String),
    #[error("failed to hash the password: the system cannot start another thread")]
    Threads(#[source] io::Error),
    #[error("{0}")]
    Catalog(#[from] CatalogError),
}

/// Lengths of passwords. The upper bound keeps hashing cheap to refuse.
const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 1..=limits::PASSWORD_BYTES;

pub struct Accounts {
    pub(crate) catalog: Catalog,
    pub(crate) writes: Arc<OwnerWrites>,
}

impl Accounts {
    /// Adds a user, and an API token if it has a name. The catalog contains the Argon2id hash of the password.
    /// Returns the token, which is stored as a hash and cannot be shown again. On an error nothing is added.
    pub async fn add_user(
        &self,
        email: &str,
        password: &str,
        plan: Plan,
        token_name: Option<&str>,
    ) -> Result<Option<Secret>, AccountError> {
        let email = email.trim();
        if !is_email(email) {
            return Err(AccountError::Email(email.to_owned()));
        }
        check_password(password)?;
        if token_name.is_some_and(|name| name.is_empty() || name.len() > TOKEN_NAME_BYTES) {
            return Err(AccountError::TokenName);
        }
        let hash = hash_password(password.to_owned()).await?;
        let user = self.catalog.add_user(email, &hash, plan).await.map_err(|error| match error {
            CatalogError::EmailTaken => AccountError::EmailTaken(email.to_owned()),
            other => AccountError::Catalog(other),
        })?;
        let Some(name) = token_name else { return Ok(None) };
        let token = Secret::api_token(rand::random());
        self.catalog.add_token(user, name, &token.hash(), limits::TOKENS).await?;
        Ok(Some(token))
    }

    /// Replaces a user's password and ends all of the user's sessions; API tokens stay.
    pub async fn set_password(&self, email: &str, password: &str) -> Result<(), AccountError> {
        check_password(password)?;
        let user = self.user_by_email(email).await?;
        let hash = hash_password(password.to_owned()).await?;
        Ok(self.catalog.set_password(user.id, &hash).await?)
    }

    /// Removes a user without datasets, with the user's tokens and sessions.
    pub async fn remove_user(&self, email: &str) -> Result<(), AccountError> {
        let user = self.user_by_email(email).await?;
        self.catalog.remove_user(user.id).await.map_err(|error| match error {
            CatalogError::HasDatasets { count } => AccountError::HasDatasets { email: user.email, count },
            CatalogError::NotFound => AccountError::NoUser(user.email),
            other => AccountError::Catalog(other),
        })
    }

    /// Changes a user's plan. Datasets beyond the limits of the new plan stay.
    pub async fn set_plan(&self, email: &str, plan: Plan) -> Result<(), AccountError> {
        let user = self.user_by_email(email).await?;
        Ok(self.catalog.set_plan(user.id, plan).await?)
    }

    /// The users with ids greater than `after`, by id, at most `limit`.
    pub async fn users(&self, after: Option<UserId>, limit: u32) -> Result<Vec<User>, AccountError> {
        Ok(self.catalog.users(after, limit).await?)
    }

    pub async fn user(&self, id: UserId) -> Result<Option<User>, AccountError> {
        Ok(self.catalog.user(id).await?)
    }

    pub async fn user_by_email(&self, email: &str) -> Result<User, AccountError> {
        self.catalog.user_by_email(email).await?.ok_or_else(|| AccountError::NoUser(email.to_owned()))
    }

    /// Creates an API token, which cannot be shown again. It expires after `expires_in_s`, if that is set.
    pub async fn create_token(
        &self,
        user: &User,
        name: &str,
        scope: Scope,
        expires_in_s: Option<u64>,
    ) -> Result<(Secret, Grant), ManageError> {
        if name.is_empty() || name.len() > TOKEN_NAME_BYTES {
            let problem = format!("it must be 1 to {TOKEN_NAME_BYTES} bytes long");
            return Err(ManageError::Invalid { field: "name", problem });
        }
        let expires_at = expires_in_s.map(|seconds| self.expiry(seconds)).transpose()?;
        let grant = Grant { scope, expires_at };
        let token = Secret::api_token(rand::random());
        let hash = token.hash();
        let add = self.catalog.add_granted_token(user.id, name, &hash, grant, limits::TOKENS);
        self.writes.run(user.id, add).await?;
        Ok((token, grant))
    }

    /// The time in this number of seconds, at least 1.
    fn expiry(&self, seconds: u64) -> Result<DateTime<Utc>, ManageError> {
        let max = limits::TOKEN_LIFETIME_S as u64;
        let within = i64::try_from(seconds).ok().filter(|_| (1..=max).contains(&seconds));
        let time = within.and_then(TimeDelta::try_seconds).and_then(|span| self.catalog.now().checked_add_signed(span));
        time.ok_or_else(|| {
            // A number that the type cannot contain has become its maximum, so the text does not show it.
            let shown = if seconds > max { "it is too large".to_owned() } else { format!("{seconds} is not valid") };
            ManageError::Invalid { field: "expires_in_s", problem: format!("{shown}; valid: 1 to {max} seconds") }
        })
    }

    /// Deletes an API token, which stops working immediately.
    pub async fn delete_token(&self, user: &User, name: &str) -> Result<(), ManageError> {
        self.writes.run(user.id, self.catalog.delete_token(user.id, name)).await.map_err(|error| match error {
            ManageError::DatasetNotFound => ManageError::TokenNotFound,
            other => other,
        })
    }

    pub async fn tokens(&self, user: &User) -> Result<Vec<ApiToken>, ManageError> {
        Ok(self.catalog.tokens(user.id).await?)
    }
}

/// Whether the text has something before and after one `@`, and no whitespace: enough to catch typing errors.
fn is_email(text: &str) -> bool {
    let shape = |(local, host): (&str, &str)| !local.is_empty() && !host.is_empty() && !host.contains('@');
    text.len() <= EMAIL_BYTES
        && !text.chars().any(|character| character.is_whitespace() || character.is_control())
        && text.split_once('@').is_some_and(shape)
}

fn check_password(password: &str) -> Result<(), AccountError> {
    if PASSWORD_BYTES.contains(&password.len()) { Ok(()) } else { Err(AccountError::Password) }
}

pub(crate) async fn hash_password(password: String) -> Result<String, AccountError> {
    let hash = move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string());
    match blocking(hash).await {
        Ok(Ok(hash)) => Ok(hash),
        Ok(Err(error)) => Err(AccountError::Hash(error.to_string())),
        Err(error) => Err(AccountError::Threads(error)),
    }
}
