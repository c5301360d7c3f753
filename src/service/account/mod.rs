//! Users and their API tokens.

pub(crate) mod login_limits;
pub(crate) mod logins;
mod redis_login_limits;
pub(crate) mod session_origin;
pub(crate) mod sessions;

use std::io;
use std::sync::Arc;

use argon2::{Argon2, PasswordHasher};
use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{ApiToken, Catalog, CatalogError, TokenGrant};
use strata_runtime::blocking::run_blocking;
use strata_types::ids::UserId;
use strata_types::limits::{self, MAX_EMAIL_BYTES, MAX_TOKEN_NAME_BYTES};
use strata_types::secret::Secret;
use strata_types::token_scope::TokenScope;
use strata_types::user::{User, UserPlan};

use crate::management::{ManageError, OwnerWriter};

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error("`{0}` is not an email address; valid: an address such as ada@example.org")]
    InvalidEmail(String),
    #[error("the password must be {} to {} bytes long", PASSWORD_LENGTH_BYTES.start(), PASSWORD_LENGTH_BYTES.end())]
    InvalidPasswordLength,
    #[error("the token name must be 1 to {MAX_TOKEN_NAME_BYTES} bytes long")]
    InvalidTokenName,
    #[error("there is no user {0}; run `strata user list` to list the users, or `strata user add` to add one")]
    UserNotFound(String),
    #[error("the user {0} already exists")]
    EmailTaken(String),
    #[error(
        "cannot remove the user {email}, who has {count} dataset{}; only datasets without versions can be deleted \
         (DELETE /dataset/delete)",
        if *count == 1 { "" } else { "s" }
    )]
    HasDatasets { email: String, count: u64 },
    #[error("failed to hash the password: {0}")]
    HashPassword(String),
    #[error("failed to hash the password: the system cannot start another thread")]
    SpawnThread(#[source] io::Error),
    #[error("{0}")]
    Catalog(#[from] CatalogError),
}

/// The allowed password lengths. The maximum limits the cost of hashing.
const PASSWORD_LENGTH_BYTES: std::ops::RangeInclusive<usize> = 1..=limits::MAX_PASSWORD_BYTES;

pub struct AccountService {
    pub(crate) catalog: Catalog,
    pub(crate) owner_writer: Arc<OwnerWriter>,
}

impl AccountService {
    /// Adds a user, and an API token if `token_name` is set. The returned token cannot be shown again.
    pub async fn add_user(
        &self,
        email: &str,
        password: &str,
        plan: UserPlan,
        token_name: Option<&str>,
    ) -> Result<Option<Secret>, AccountError> {
        let email = email.trim();
        if !is_email(email) {
            return Err(AccountError::InvalidEmail(email.to_owned()));
        }
        check_password(password)?;
        if token_name.is_some_and(|name| name.is_empty() || name.len() > MAX_TOKEN_NAME_BYTES) {
            return Err(AccountError::InvalidTokenName);
        }
        let hash = hash_password(password.to_owned()).await?;
        let user = self.catalog.add_user(email, &hash, plan).await.map_err(|error| match error {
            CatalogError::EmailTaken => AccountError::EmailTaken(email.to_owned()),
            other => AccountError::Catalog(other),
        })?;
        let Some(name) = token_name else { return Ok(None) };
        let token = Secret::new_api_token(rand::random());
        self.catalog.add_token(user, name, &token.sha256_hex(), limits::MAX_USER_TOKENS).await?;
        Ok(Some(token))
    }

    /// Replaces a user's password and ends all sessions of the user. API tokens remain valid.
    pub async fn set_password(&self, email: &str, password: &str) -> Result<(), AccountError> {
        check_password(password)?;
        let user = self.user_by_email(email).await?;
        let hash = hash_password(password.to_owned()).await?;
        Ok(self.catalog.set_password(user.id, &hash).await?)
    }

    /// Removes a user without datasets, including tokens and sessions.
    pub async fn remove_user(&self, email: &str) -> Result<(), AccountError> {
        let user = self.user_by_email(email).await?;
        self.catalog.remove_user(user.id).await.map_err(|error| match error {
            CatalogError::HasDatasets { count } => AccountError::HasDatasets { email: user.email, count },
            CatalogError::NotFound => AccountError::UserNotFound(user.email),
            other => AccountError::Catalog(other),
        })
    }

    /// Changes a user's plan. Existing datasets remain, even if they exceed the limits of the new plan.
    pub async fn set_plan(&self, email: &str, plan: UserPlan) -> Result<(), AccountError> {
        let user = self.user_by_email(email).await?;
        Ok(self.catalog.set_plan(user.id, plan).await?)
    }

    /// Lists at most `limit` users with ids greater than `after`, ordered by id.
    pub async fn users(&self, after: Option<UserId>, limit: u32) -> Result<Vec<User>, AccountError> {
        Ok(self.catalog.users(after, limit).await?)
    }

    pub async fn user(&self, id: UserId) -> Result<Option<User>, AccountError> {
        Ok(self.catalog.user(id).await?)
    }

    pub async fn user_by_email(&self, email: &str) -> Result<User, AccountError> {
        self.catalog.user_by_email(email).await?.ok_or_else(|| AccountError::UserNotFound(email.to_owned()))
    }

    /// Creates an API token, which cannot be shown again. If `expires_in_s` is `None`, the token does not expire.
    pub async fn create_token(
        &self,
        user: &User,
        name: &str,
        scope: TokenScope,
        expires_in_s: Option<u64>,
    ) -> Result<(Secret, TokenGrant), ManageError> {
        if name.is_empty() || name.len() > MAX_TOKEN_NAME_BYTES {
            let problem = format!("it must be 1 to {MAX_TOKEN_NAME_BYTES} bytes long");
            return Err(ManageError::InvalidField { field: "name", problem });
        }
        let expires_at = expires_in_s.map(|seconds| self.expiry_after(seconds)).transpose()?;
        let grant = TokenGrant { scope, expires_at };
        let token = Secret::new_api_token(rand::random());
        let hash = token.sha256_hex();
        let add = self.catalog.add_token_with_grant(user.id, name, &hash, grant, limits::MAX_USER_TOKENS);
        self.owner_writer.run_write(user.id, add).await?;
        Ok((token, grant))
    }

    fn expiry_after(&self, seconds: u64) -> Result<DateTime<Utc>, ManageError> {
        let max = limits::MAX_TOKEN_LIFETIME_S as u64;
        let valid = i64::try_from(seconds).ok().filter(|_| (1..=max).contains(&seconds));
        let time = valid.and_then(TimeDelta::try_seconds).and_then(|span| self.catalog.now().checked_add_signed(span));
        time.ok_or_else(|| {
            // The parser replaces a number above u64 by the maximum, so the error message shows no large numbers.
            let shown = if seconds > max { "it is too large".to_owned() } else { format!("{seconds} is not valid") };
            ManageError::InvalidField { field: "expires_in_s", problem: format!("{shown}; valid: 1 to {max} seconds") }
        })
    }

    pub async fn delete_token(&self, user: &User, name: &str) -> Result<(), ManageError> {
        self.owner_writer.run_write(user.id, self.catalog.delete_token(user.id, name)).await.map_err(
            |error| match error {
                ManageError::DatasetNotFound => ManageError::TokenNotFound,
                other => other,
            },
        )
    }

    pub async fn tokens(&self, user: &User) -> Result<Vec<ApiToken>, ManageError> {
        Ok(self.catalog.tokens_by_user(user.id).await?)
    }
}

/// Returns true if an email address has exactly one `@`, not at an end, and no whitespace: enough to catch typos.
fn is_email(text: &str) -> bool {
    let has_both_parts = |(local, host): (&str, &str)| !local.is_empty() && !host.is_empty() && !host.contains('@');
    text.len() <= MAX_EMAIL_BYTES
        && !text.chars().any(|character| character.is_whitespace() || character.is_control())
        && text.split_once('@').is_some_and(has_both_parts)
}

fn check_password(password: &str) -> Result<(), AccountError> {
    if PASSWORD_LENGTH_BYTES.contains(&password.len()) { Ok(()) } else { Err(AccountError::InvalidPasswordLength) }
}

pub(crate) async fn hash_password(password: String) -> Result<String, AccountError> {
    let hash = move || Argon2::default().hash_password(password.as_bytes()).map(|hash| hash.to_string());
    match run_blocking(hash).await {
        Ok(Ok(hash)) => Ok(hash),
        Ok(Err(error)) => Err(AccountError::HashPassword(error.to_string())),
        Err(error) => Err(AccountError::SpawnThread(error)),
    }
}
