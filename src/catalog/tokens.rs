//! Table `api_tokens`: the API tokens of users, identified by hashes.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::token_scope::TokenScope;
use strata_types::user::User;

use super::clock::saturating_sub;
use super::convert::{from_optional_time, from_text, from_time, to_unsigned};
use super::database_engine::{FromSqlRow, SqlRow, SqlValue, columns};
use super::record_checksum::RecordChecksum;
use super::users::lock_owner;
use super::{Catalog, CatalogError, Result, UserId};

/// The precision of a token's last use. Recording it costs a commit, which would be too expensive for each request.
const LAST_USE_PRECISION: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    pub name: String,
    pub created_at: DateTime<Utc>,
    /// The time of the last use, with a precision of one minute; `None` if the token was never used.
    pub last_used_at: Option<DateTime<Utc>>,
    pub grant: TokenGrant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenGrant {
    pub scope: TokenScope,
    /// The time from which the token is invalid; `None` if it does not expire.
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIdentity {
    pub user: User,
    pub scope: TokenScope,
}

fn verify_token_checksum(row: &SqlRow) -> Result<()> {
    let hash: &str = row.get("token_hash")?;
    // The error must not contain the hash of the token, because errors are logged.
    token_checksum(hash, row.get("user_id")?, row.get("scope")?, row.get("expires_at")?)
        .verify(row.get("record_checksum")?, || "an API token".to_owned())
}

struct TokenRow {
    identity: TokenIdentity,
    last_used_at: Option<i64>,
    expires_at: Option<i64>,
}

impl FromSqlRow for TokenRow {
    fn from_row(row: &SqlRow) -> Result<TokenRow> {
        verify_token_checksum(row)?;
        Ok(TokenRow {
            identity: TokenIdentity { user: User::from_row(row)?, scope: row.get_parsed("api_tokens.scope")? },
            last_used_at: row.get("last_used_at")?,
            expires_at: row.get("expires_at")?,
        })
    }
}

impl FromSqlRow for ApiToken {
    fn from_row(row: &SqlRow) -> Result<ApiToken> {
        Ok(ApiToken {
            name: row.get("name")?,
            created_at: row.get_time("api_tokens.created_at")?,
            last_used_at: row.get_optional_time("api_tokens.last_used_at")?,
            grant: TokenGrant {
                scope: row.get_parsed("api_tokens.scope")?,
                expires_at: row.get_optional_time("api_tokens.expires_at")?,
            },
        })
    }
}

pub(super) fn check_token(row: &SqlRow) -> Result<()> {
    verify_token_checksum(row)?;
    ApiToken::from_row(row).map(drop)
}

pub(super) fn token_checksum(hash: &str, user: i64, scope: &str, expires_at: Option<i64>) -> RecordChecksum {
    RecordChecksum::for_table("api_tokens")
        .with_text(hash)
        .with_number(user)
        .with_text(scope)
        .with_optional_number(expires_at)
}

impl Catalog {
    /// Like [`Catalog::add_token_with_grant`], with full access and without an expiry.
    pub async fn add_token(&self, user: UserId, name: &str, token_hash: &str, max_tokens: usize) -> Result<()> {
        self.add_token_with_grant(user, name, token_hash, TokenGrant::default(), max_tokens).await
    }

    /// Adds an API token with a unique name, unless the user has `max_tokens`. Deletes the user's expired tokens first.
    pub async fn add_token_with_grant(
        &self,
        user: UserId,
        name: &str,
        token_hash: &str,
        TokenGrant { scope, expires_at }: TokenGrant,
        max_tokens: usize,
    ) -> Result<()> {
        let id = i64::try_from(user.get()).unwrap_or(-1);
        let expires = expires_at.map(|time| time.timestamp_micros());
        let checksum = token_checksum(token_hash, id, scope.name(), expires).into_stored();
        let mut transaction = self.engine.begin().await?;
        // The lock on the user serializes concurrent calls, so that the number of tokens is exact.
        lock_owner(&mut transaction, user).await?;
        let sql = "DELETE FROM api_tokens WHERE user_id = $1 AND expires_at <= $2";
        transaction.execute(sql, &[user.into(), from_time(self.now())]).await?;
        let sql = "SELECT COUNT(*) FROM api_tokens WHERE user_id = $1";
        let (count,): (i64,) = transaction.fetch_one(sql, &[user.into()]).await?;
        if to_unsigned(count, "api_tokens count")? >= max_tokens as u64 {
            return Err(CatalogError::TooManyTokens { limit: max_tokens });
        }
        let sql = "INSERT INTO api_tokens (user_id, name, token_hash, created_at, scope, expires_at, record_checksum)
                   VALUES ($1, $2, $3, $4, $5, $6, $7)
                   ON CONFLICT (user_id, name) DO NOTHING";
        let values = &[
            user.into(),
            from_text(name, "name")?,
            SqlValue::Text(Some(token_hash)),
            from_time(self.now()),
            SqlValue::Text(Some(scope.name())),
            from_optional_time(expires_at),
            SqlValue::Text(Some(&checksum)),
        ];
        transaction.execute_or_error(sql, values, CatalogError::TokenNameTaken).await?;
        transaction.commit().await
    }

    /// Returns the user of an unexpired token. Records the use at most once a minute, if the database is writable.
    pub async fn user_by_token(&self, token_hash: &str) -> Result<Option<TokenIdentity>> {
        let sql = concat!(
            "SELECT ",
            columns!(users),
            ", api_tokens.token_hash, api_tokens.last_used_at, api_tokens.scope, api_tokens.expires_at,
               api_tokens.record_checksum
             FROM api_tokens JOIN users ON users.user_id = api_tokens.user_id
             WHERE api_tokens.token_hash = $1"
        );
        let Some(token) = self.engine.find::<TokenRow>(sql, &[SqlValue::Text(Some(token_hash))]).await? else {
            return Ok(None);
        };
        let now = self.now();
        if token.expires_at.is_some_and(|expires| expires <= now.timestamp_micros()) {
            return Ok(None);
        }
        let stale = saturating_sub(now, LAST_USE_PRECISION);
        if token.last_used_at.is_none_or(|used| used <= stale.timestamp_micros()) {
            let hash = token_hash.to_owned();
            self.write_best_effort("token last use", |catalog| async move {
                // Of several concurrent requests with the same token, only one updates the row.
                let sql = "UPDATE api_tokens SET last_used_at = $2
                           WHERE token_hash = $1 AND (last_used_at IS NULL OR last_used_at <= $3)";
                let values = &[SqlValue::Text(Some(&hash)), from_time(now), from_time(stale)];
                catalog.engine.write(sql, values).await.map(drop)
            })
            .await;
        }
        Ok(Some(token.identity))
    }

    pub async fn tokens_by_user(&self, user: UserId) -> Result<Vec<ApiToken>> {
        let sql = "SELECT name, created_at, last_used_at, scope, expires_at FROM api_tokens
                   WHERE user_id = $1 ORDER BY name";
        self.engine.list(sql, &[user.into()]).await
    }

    pub async fn delete_token(&self, user: UserId, name: &str) -> Result<()> {
        if name.contains('\0') {
            return Err(CatalogError::NotFound);
        }
        let sql = "DELETE FROM api_tokens WHERE user_id = $1 AND name = $2";
        self.engine.write_or_error(sql, &[user.into(), SqlValue::Text(Some(name))], CatalogError::NotFound).await
    }
}
