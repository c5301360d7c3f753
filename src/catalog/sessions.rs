//! Table `sessions`: who is logged in. The caller knows the content of a session; here it is a text.

use chrono::{DateTime, Utc};

use super::checksums::RecordChecksum;
use super::convert::{from_optional, from_time, text, to_time, to_unsigned};
use super::engine::Value;
use super::locks::lock_owner;
use super::{Catalog, CatalogError, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// SHA-256 of the session id, hexadecimal.
    pub id_hash: String,
    /// Its user; `None` while nobody has logged in.
    pub user: Option<UserId>,
    /// Its content, without U+0000.
    pub data: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// When it was last used, to the minute.
    pub last_used_at: DateTime<Utc>,
}

/// User, data, beginning, end, last use, checksum.
type SessionRow = (Option<i64>, String, i64, i64, i64, Option<String>);

fn session((id_hash, row): (String, SessionRow)) -> Result<SessionRecord, CatalogError> {
    let (user, data, created_at, expires_at, last_used_at, stored) = row;
    session_checksum(&id_hash, user, &data, expires_at).check(stored.as_deref(), record_name)?;
    Ok(SessionRecord {
        id_hash,
        user: user.map(|id| to_unsigned(id, "sessions.user_id").map(UserId::new)).transpose()?,
        data,
        created_at: to_time(created_at, "sessions.created_at")?,
        expires_at: to_time(expires_at, "sessions.expires_at")?,
        last_used_at: to_time(last_used_at, "sessions.last_used_at")?,
    })
}

impl SessionRecord {
    fn checksum(&self) -> RecordChecksum {
        // What the database holds fits.
        let user = self.user.map(|user| i64::try_from(user.get()).unwrap_or(i64::MAX));
        session_checksum(&self.id_hash, user, &self.data, self.expires_at.timestamp_micros())
    }
}

pub(super) fn session_checksum(id_hash: &str, user: Option<i64>, data: &str, expires_at: i64) -> RecordChecksum {
    RecordChecksum::of("sessions").text(id_hash).optional_number(user).text(data).number(expires_at)
}

/// The name of a session's record in errors. Its hash must not be in logs.
fn record_name() -> String {
    "a session".to_owned()
}

impl Catalog {
    /// Records a new session. Returns `false` if there is one with that id already; nothing is written then. Of the
    /// user's sessions the `most` that were used last stay, this one among them; the others end.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`] if there is no such user; [`CatalogError::Conflict`] if the user has another
    /// password than that with the hash `password`.
    pub async fn create_session(
        &self,
        session: &SessionRecord,
        password: Option<&str>,
        most: usize,
    ) -> Result<bool, CatalogError> {
        let checksum = session.checksum().finish();
        let mut transaction = self.engine.begin().await?;
        if let Some(user) = session.user {
            // A change of the password ends the sessions before it, and comes before or after all of this.
            lock_owner(&mut transaction, user).await?;
            let sql = "SELECT password_hash FROM users WHERE user_id = $1";
            let (current,): (String,) = transaction.fetch_one(sql, &[user.into()]).await?;
            if password.is_some_and(|password| password != current) {
                return Err(CatalogError::Conflict);
            }
        }
        let created = transaction
            .execute(
                "INSERT INTO sessions
                     (session_hash, user_id, data, created_at, expires_at, last_used_at, record_checksum)
                 VALUES ($1, $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (session_hash) DO NOTHING",
                &[
                    Value::Text(&session.id_hash),
                    from_optional(session.user),
                    text(&session.data, "data")?,
                    from_time(session.created_at),
                    from_time(session.expires_at),
                    from_time(session.last_used_at),
                    Value::Text(&checksum),
                ],
            )
            .await
            .map_err(CatalogError::of_insert)?;
        if let Some(user) = session.user.filter(|_| created > 0) {
            let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2 AND session_hash IN (
                           SELECT session_hash FROM sessions WHERE user_id = $1 AND session_hash <> $2
                           ORDER BY last_used_at DESC, session_hash LIMIT $3 OFFSET $4)";
            let others = i64::try_from(most).unwrap_or(i64::MAX).saturating_sub(1);
            let hash = Value::Text(&session.id_hash);
            let values = &[user.into(), hash, Value::Integer(i64::MAX), Value::Integer(others)];
            transaction.execute(sql, values).await?;
        }
        transaction.commit().await?;
        Ok(created > 0)
    }

    /// The session with this id, unless it has expired. One look-up by primary key.
    ///
    /// # Errors
    /// [`CatalogError::Unverified`] if its record is not what was written. The session may then be another user's, or
    /// have ended.
    pub async fn session(&self, id_hash: &str) -> Result<Option<SessionRecord>, CatalogError> {
        let sql = "SELECT user_id, data, created_at, expires_at, last_used_at, record_checksum FROM sessions
                   WHERE session_hash = $1 AND expires_at > $2";
        let values = &[Value::Text(id_hash), from_time(self.now())];
        let row: Option<SessionRow> = self.engine.fetch_optional(sql, values).await?;
        row.map(|row| session((id_hash.to_owned(), row))).transpose()
    }

    /// The sessions of a user that have not expired, the newest first. One indexed look-up.
    pub async fn sessions_of(&self, user: UserId) -> Result<Vec<SessionRecord>, CatalogError> {
        type Row = (String, Option<i64>, String, i64, i64, i64, Option<String>);
        let sql = "SELECT session_hash, user_id, data, created_at, expires_at, last_used_at, record_checksum
                   FROM sessions WHERE user_id = $1 AND expires_at > $2 ORDER BY created_at DESC, session_hash";
        let rows: Vec<Row> = self.engine.fetch_all(sql, &[user.into(), from_time(self.now())]).await?;
        let parts =
            |(hash, user, data, created, expires, used, stored)| (hash, (user, data, created, expires, used, stored));
        rows.into_iter().map(|row| session(parts(row))).collect()
    }

    /// Moves the end of a session, which is used now.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`], also if it has expired.
    pub async fn extend_session(&self, id_hash: &str, expires_at: DateTime<Utc>) -> Result<(), CatalogError> {
        let mut transaction = self.engine.begin().await?;
        let sql = "UPDATE sessions SET expires_at = expires_at WHERE session_hash = $1 AND expires_at > $2
                   RETURNING user_id, data, created_at, expires_at, last_used_at, record_checksum";
        let now = from_time(self.now());
        let row: Option<SessionRow> = transaction.fetch_optional(sql, &[Value::Text(id_hash), now]).await?;
        let (user, data, _, ends, _, stored) = row.ok_or(CatalogError::NotFound)?;
        session_checksum(id_hash, user, &data, ends).check(stored.as_deref(), record_name)?;
        let checksum = session_checksum(id_hash, user, &data, expires_at.timestamp_micros()).finish();
        let sql =
            "UPDATE sessions SET expires_at = $2, record_checksum = $3, last_used_at = $4 WHERE session_hash = $1";
        let values = &[Value::Text(id_hash), from_time(expires_at), Value::Text(&checksum), now];
        transaction.execute(sql, values).await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(super) async fn check_session(&self, id_hash: &str) -> Result<(), CatalogError> {
        let sql = "SELECT user_id, data, created_at, expires_at, last_used_at, record_checksum FROM sessions
                   WHERE session_hash = $1";
        let row: Option<SessionRow> = self.engine.fetch_optional(sql, &[Value::Text(id_hash)]).await?;
        row.map_or(Ok(()), |row| session((id_hash.to_owned(), row)).map(drop))
    }

    /// Moves the end of an existing session, which is used now, if the catalog can be written at the moment.
    pub async fn try_extend_session(&self, id_hash: &str, expires_at: DateTime<Utc>) {
        let hash = id_hash.to_owned();
        self.try_write("that a session goes on", |catalog| async move {
            match catalog.extend_session(&hash, expires_at).await {
                // A log-out was faster.
                Err(CatalogError::NotFound) => Ok(()),
                extended => extended,
            }
        })
        .await;
    }

    pub async fn delete_session(&self, id_hash: &str) -> Result<(), CatalogError> {
        self.engine.write("DELETE FROM sessions WHERE session_hash = $1", &[Value::Text(id_hash)]).await?;
        Ok(())
    }

    /// Deletes a session of a user and tells whether there was one that had not expired.
    pub async fn delete_session_of(&self, user: UserId, id_hash: &str) -> Result<bool, CatalogError> {
        let sql = "DELETE FROM sessions WHERE session_hash = $1 AND user_id = $2 AND expires_at > $3";
        Ok(self.engine.write(sql, &[Value::Text(id_hash), user.into(), from_time(self.now())]).await? > 0)
    }

    /// Deletes all sessions of a user and tells how many there were. One indexed look-up.
    pub async fn delete_sessions_of(&self, user: UserId) -> Result<u64, CatalogError> {
        Ok(self.engine.write("DELETE FROM sessions WHERE user_id = $1", &[user.into()]).await?)
    }

    /// Deletes the sessions that have expired and tells how many there were. Costs what it deletes.
    pub async fn delete_expired_sessions(&self) -> Result<u64, CatalogError> {
        let sql = "DELETE FROM sessions WHERE expires_at <= $1";
        Ok(self.engine.write(sql, &[from_time(self.now())]).await?)
    }
}
