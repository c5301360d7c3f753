//! Table `api_tokens`.

use std::time::Duration;

use chrono::{DateTime, Utc};
use strata_types::scope::Scope;
use strata_types::user::User;

use super::checksums::RecordChecksum;
use super::clock::before;
use super::convert::{from_optional_time, from_time, text, to_unsigned};
use super::engine::{Record, Row, Value, columns};
use super::users::lock_owner;
use super::{Catalog, CatalogError, Result, UserId};

/// Precision of the last use of a token. Every write costs a commit, which not every request should pay.
const TOUCH_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiToken {
    pub name: String,
    pub created_at: DateTime<Utc>,
    /// When it was last used, to the minute; `None` if never.
    pub last_used_at: Option<DateTime<Utc>>,
    pub grant: Grant,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    pub scope: Scope,
    /// From when on it opens nothing; `None`: it does not expire.
    pub expires_at: Option<DateTime<Utc>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenUser {
    pub user: User,
    pub scope: Scope,
}

fn verify(row: &Row) -> Result<()> {
    let hash: &str = row.get("token_hash")?;
    // Its hash must not be in logs.
    token_checksum(hash, row.get("user_id")?, row.get("scope")?, row.get("expires_at")?)
        .check(row.get("record_checksum")?, || "an API token".to_owned())
}

struct FoundToken {
    user: TokenUser,
    last_used_at: Option<i64>,
    expires_at: Option<i64>,
}

impl Record for FoundToken {
    fn from_row(row: &Row) -> Result<FoundToken> {
        verify(row)?;
        Ok(FoundToken {
            user: TokenUser { user: User::from_row(row)?, scope: row.named("api_tokens.scope")? },
            last_used_at: row.get("last_used_at")?,
            expires_at: row.get("expires_at")?,
        })
    }
}

impl Record for ApiToken {
    fn from_row(row: &Row) -> Result<ApiToken> {
        Ok(ApiToken {
            name: row.get("name")?,
            created_at: row.time("api_tokens.created_at")?,
            last_used_at: row.optional_time("api_tokens.last_used_at")?,
            grant: Grant {
                scope: row.named("api_tokens.scope")?,
                expires_at: row.optional_time("api_tokens.expires_at")?,
            },
        })
    }
}

pub(super) fn check_token(row: &Row) -> Result<()> {
    verify(row)?;
    ApiToken::from_row(row).map(drop)
}

pub(super) fn token_checksum(hash: &str, user: i64, scope: &str, expires_at: Option<i64>) -> RecordChecksum {
    RecordChecksum::of("api_tokens").text(hash).number(user).text(scope).optional_number(expires_at)
}

impl Catalog {
    /// As [`Catalog::add_granted_token`], for everything and for ever.
    pub async fn add_token(&self, user: UserId, name: &str, token_hash: &str, most: usize) -> Result<()> {
        self.add_granted_token(user, name, token_hash, Grant::default(), most).await
    }

    /// Records an API token of a user by its hash, under a name that is unique among the user's tokens, unless the user
    /// has `most` tokens already. The user's tokens that have expired go: their names and their room are free.
    pub async fn add_granted_token(
        &self,
        user: UserId,
        name: &str,
        token_hash: &str,
        Grant { scope, expires_at }: Grant,
        most: usize,
    ) -> Result<()> {
        let id = i64::try_from(user.get()).unwrap_or(-1);
        let expires = expires_at.map(|time| time.timestamp_micros());
        let checksum = token_checksum(token_hash, id, scope.name(), expires).finish();
        let mut transaction = self.engine.begin().await?;
        // If several run at the same time, each counts those before it.
        lock_owner(&mut transaction, user).await?;
        let sql = "DELETE FROM api_tokens WHERE user_id = $1 AND expires_at <= $2";
        transaction.execute(sql, &[user.into(), from_time(self.now())]).await?;
        let sql = "SELECT COUNT(*) FROM api_tokens WHERE user_id = $1";
        let (count,): (i64,) = transaction.one(sql, &[user.into()]).await?;
        if to_unsigned(count, "api_tokens count")? >= most as u64 {
            return Err(CatalogError::TooManyTokens { limit: most });
        }
        let sql = "INSERT INTO api_tokens (user_id, name, token_hash, created_at, scope, expires_at, record_checksum)
                   VALUES ($1, $2, $3, $4, $5, $6, $7)
                   ON CONFLICT (user_id, name) DO NOTHING";
        let values = &[
            user.into(),
            text(name, "name")?,
            Value::Text(Some(token_hash)),
            from_time(self.now()),
            Value::Text(Some(scope.name())),
            from_optional_time(expires_at),
            Value::Text(Some(&checksum)),
        ];
        transaction.execute_or(sql, values, CatalogError::TokenNameTaken).await?;
        transaction.commit().await
    }

    /// The user whose token has this hash, unless it has expired. One indexed look-up. At most once a minute per token
    /// it also records the use, if the catalog can be written at the moment. That costs a commit.
    pub async fn user_by_token(&self, token_hash: &str) -> Result<Option<TokenUser>> {
        let sql = concat!(
            "SELECT ",
            columns!(users),
            ", api_tokens.token_hash, api_tokens.last_used_at, api_tokens.scope, api_tokens.expires_at,
               api_tokens.record_checksum
             FROM api_tokens JOIN users ON users.user_id = api_tokens.user_id
             WHERE api_tokens.token_hash = $1"
        );
        let Some(token) = self.engine.find::<FoundToken>(sql, &[Value::Text(Some(token_hash))]).await? else {
            return Ok(None);
        };
        let now = self.now();
        if token.expires_at.is_some_and(|expires| expires <= now.timestamp_micros()) {
            return Ok(None);
        }
        let stale = before(now, TOUCH_INTERVAL);
        if token.last_used_at.is_none_or(|used| used <= stale.timestamp_micros()) {
            let hash = token_hash.to_owned();
            self.try_write("token last use", |catalog| async move {
                // Of several requests at the same time, one still finds it stale.
                let sql = "UPDATE api_tokens SET last_used_at = $2
                           WHERE token_hash = $1 AND (last_used_at IS NULL OR last_used_at <= $3)";
                catalog.engine.write(sql, &[Value::Text(Some(&hash)), from_time(now), from_time(stale)]).await.map(drop)
            })
            .await;
        }
        Ok(Some(token.user))
    }

    /// The user's tokens by name, also those that have expired.
    pub async fn tokens(&self, user: UserId) -> Result<Vec<ApiToken>> {
        let sql = "SELECT name, created_at, last_used_at, scope, expires_at FROM api_tokens
                   WHERE user_id = $1 ORDER BY name";
        self.engine.list(sql, &[user.into()]).await
    }

    /// Removes the user's token of that name, which opens nothing from then on.
    pub async fn delete_token(&self, user: UserId, name: &str) -> Result<()> {
        if name.contains('\0') {
            return Err(CatalogError::NotFound);
        }
        let sql = "DELETE FROM api_tokens WHERE user_id = $1 AND name = $2";
        self.engine.write_or(sql, &[user.into(), Value::Text(Some(name))], CatalogError::NotFound).await
    }
}
