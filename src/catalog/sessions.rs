//! Table `sessions`: the login sessions. Their content is opaque to this crate.

use chrono::{DateTime, Utc};

use super::convert::{from_optional_id, from_text, from_time, to_saturating_i64};
use super::database_engine::{FromSqlRow, SqlRow, SqlValue, columns, select};
use super::record_checksum::RecordChecksum;
use super::users::lock_owner;
use super::{Catalog, CatalogError, Result, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// The SHA-256 hash of the session ID, in hexadecimal.
    pub id_hash: String,
    pub user: Option<UserId>,
    /// The content of the session, which must not contain U+0000.
    pub data: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// The time of the session's last use, with a precision of one minute.
    pub last_used_at: DateTime<Utc>,
}

impl FromSqlRow for StoredSession {
    fn from_row(row: &SqlRow) -> Result<StoredSession> {
        let session = StoredSession {
            id_hash: row.get("session_hash")?,
            user: row.get_optional_unsigned("sessions.user_id")?.map(UserId::new),
            data: row.get("data")?,
            created_at: row.get_time("sessions.created_at")?,
            expires_at: row.get_time("sessions.expires_at")?,
            last_used_at: row.get_time("sessions.last_used_at")?,
        };
        // The error must not contain the hash of the session ID, because errors are logged.
        session.checksum().verify(row.get("record_checksum")?, || "a session".to_owned())?;
        Ok(session)
    }
}

impl StoredSession {
    pub(super) fn checksum(&self) -> RecordChecksum {
        RecordChecksum::for_table("sessions")
            .with_text(&self.id_hash)
            .with_optional_number(self.user.map(|user| to_saturating_i64(user.get())))
            .with_text(&self.data)
            .with_number(self.expires_at.timestamp_micros())
    }
}

impl Catalog {
    /// Creates a session, and deletes the least recently used ones beyond `limit`. Returns `false` if the ID exists,
    /// and [`CatalogError::Conflict`] if the user's password hash is not `password_hash`.
    pub async fn try_create_session(
        &self,
        session: &StoredSession,
        password_hash: Option<&str>,
        limit: usize,
    ) -> Result<bool> {
        let checksum = session.checksum().into_stored();
        let mut transaction = self.engine.begin().await?;
        if let Some(user) = session.user {
            // The lock on the user prevents a concurrent password change, which deletes all earlier sessions.
            lock_owner(&mut transaction, user).await?;
            let sql = "SELECT password_hash FROM users WHERE user_id = $1";
            let (current,): (String,) = transaction.fetch_one(sql, &[user.into()]).await?;
            if password_hash.is_some_and(|hash| hash != current) {
                return Err(CatalogError::Conflict);
            }
        }
        let sql = "INSERT INTO sessions
                       (session_hash, user_id, data, created_at, expires_at, last_used_at, record_checksum)
                   VALUES ($1, $2, $3, $4, $5, $6, $7)
                   ON CONFLICT (session_hash) DO NOTHING";
        let values = &[
            SqlValue::Text(Some(&session.id_hash)),
            from_optional_id(session.user),
            from_text(&session.data, "data")?,
            from_time(session.created_at),
            from_time(session.expires_at),
            from_time(session.last_used_at),
            SqlValue::Text(Some(&checksum)),
        ];
        let created = transaction.execute(sql, values).await?;
        if let Some(user) = session.user.filter(|_| created > 0) {
            let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2 AND session_hash IN (
                           SELECT session_hash FROM sessions WHERE user_id = $1 AND session_hash <> $2
                           ORDER BY last_used_at DESC, session_hash LIMIT $3 OFFSET $4)";
            let others = SqlValue::Integer(Some(to_saturating_i64(limit as u64).saturating_sub(1)));
            let values =
                &[user.into(), SqlValue::Text(Some(&session.id_hash)), SqlValue::Integer(Some(i64::MAX)), others];
            transaction.execute(sql, values).await?;
        }
        transaction.commit().await?;
        Ok(created > 0)
    }

    pub async fn session(&self, id_hash: &str) -> Result<Option<StoredSession>> {
        let sql = select!(sessions, "WHERE session_hash = $1 AND expires_at > $2");
        self.engine.find(sql, &[SqlValue::Text(Some(id_hash)), from_time(self.now())]).await
    }

    pub async fn sessions_by_user(&self, user: UserId) -> Result<Vec<StoredSession>> {
        let sql = select!(sessions, "WHERE user_id = $1 AND expires_at > $2 ORDER BY created_at DESC, session_hash");
        self.engine.list(sql, &[user.into(), from_time(self.now())]).await
    }

    /// Sets the expiry and the last use of a session. Returns [`CatalogError::NotFound`] if the session has expired.
    pub async fn extend_session(&self, id_hash: &str, expires_at: DateTime<Utc>) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = concat!(
            "UPDATE sessions SET expires_at = expires_at WHERE session_hash = $1 AND expires_at > $2 RETURNING ",
            columns!(sessions)
        );
        let now = from_time(self.now());
        let session: Option<StoredSession> = transaction.find(sql, &[SqlValue::Text(Some(id_hash)), now]).await?;
        let session = session.ok_or(CatalogError::NotFound)?;
        let checksum = StoredSession { expires_at, ..session }.checksum().into_stored();
        let sql =
            "UPDATE sessions SET expires_at = $2, record_checksum = $3, last_used_at = $4 WHERE session_hash = $1";
        let values = &[SqlValue::Text(Some(id_hash)), from_time(expires_at), SqlValue::Text(Some(&checksum)), now];
        transaction.execute(sql, values).await?;
        transaction.commit().await
    }

    /// Like [`Catalog::extend_session`], but gives up if the database is not writable, and ignores missing sessions.
    pub async fn extend_session_best_effort(&self, id_hash: &str, expires_at: DateTime<Utc>) {
        let hash = id_hash.to_owned();
        self.write_best_effort("session expiry", |catalog| async move {
            match catalog.extend_session(&hash, expires_at).await {
                Err(CatalogError::NotFound) => Ok(()),
                extended => extended,
            }
        })
        .await;
    }

    pub async fn delete_session(&self, id_hash: &str) -> Result<()> {
        let sql = "DELETE FROM sessions WHERE session_hash = $1";
        self.engine.write(sql, &[SqlValue::Text(Some(id_hash))]).await.map(drop)
    }

    /// Deletes a session of a user. Returns whether an unexpired session existed.
    pub async fn delete_session_by_user(&self, user: UserId, id_hash: &str) -> Result<bool> {
        let sql = "DELETE FROM sessions WHERE session_hash = $1 AND user_id = $2 AND expires_at > $3";
        Ok(self.engine.write(sql, &[SqlValue::Text(Some(id_hash)), user.into(), from_time(self.now())]).await? > 0)
    }

    pub async fn delete_expired_sessions(&self) -> Result<u64> {
        self.engine.write("DELETE FROM sessions WHERE expires_at <= $1", &[from_time(self.now())]).await
    }
}
