//! Table `sessions`: who is logged in. The caller knows the content of a session; here it is a text.

use chrono::{DateTime, Utc};

use super::checksums::RecordChecksum;
use super::convert::{from_optional, from_time, saturated, text};
use super::engine::{Record, Row, Value, columns, select};
use super::users::lock_owner;
use super::{Catalog, CatalogError, Result, UserId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// SHA-256 of the session id, hexadecimal.
    pub id_hash: String,
    pub user: Option<UserId>,
    /// The content, which must not contain U+0000.
    pub data: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// When it was last used, to the minute.
    pub last_used_at: DateTime<Utc>,
}

impl Record for SessionRecord {
    fn from_row(row: &Row) -> Result<SessionRecord> {
        let session = SessionRecord {
            id_hash: row.get("session_hash")?,
            user: row.optional_unsigned("sessions.user_id")?.map(UserId::new),
            data: row.get("data")?,
            created_at: row.time("sessions.created_at")?,
            expires_at: row.time("sessions.expires_at")?,
            last_used_at: row.time("sessions.last_used_at")?,
        };
        // Its hash must not be in logs.
        session.checksum().check(row.get("record_checksum")?, || "a session".to_owned())?;
        Ok(session)
    }
}

impl SessionRecord {
    pub(super) fn checksum(&self) -> RecordChecksum {
        RecordChecksum::of("sessions")
            .text(&self.id_hash)
            .optional_number(self.user.map(|user| saturated(user.get())))
            .text(&self.data)
            .number(self.expires_at.timestamp_micros())
    }
}

impl Catalog {
    /// Records a new session. Returns `false` if there is one with that id already; nothing is written then. Of the
    /// user's sessions the `most` that were used last stay, this one among them; the others end.
    /// [`CatalogError::Conflict`] if the user has another password than that with the hash `password`.
    pub async fn create_session(&self, session: &SessionRecord, password: Option<&str>, most: usize) -> Result<bool> {
        let checksum = session.checksum().finish();
        let mut transaction = self.engine.begin().await?;
        if let Some(user) = session.user {
            // A change of the password ends the sessions before it, and comes before or after all of this.
            lock_owner(&mut transaction, user).await?;
            let sql = "SELECT password_hash FROM users WHERE user_id = $1";
            let (current,): (String,) = transaction.one(sql, &[user.into()]).await?;
            if password.is_some_and(|password| password != current) {
                return Err(CatalogError::Conflict);
            }
        }
        let sql = "INSERT INTO sessions
                       (session_hash, user_id, data, created_at, expires_at, last_used_at, record_checksum)
                   VALUES ($1, $2, $3, $4, $5, $6, $7)
                   ON CONFLICT (session_hash) DO NOTHING";
        let values = &[
            Value::Text(Some(&session.id_hash)),
            from_optional(session.user),
            text(&session.data, "data")?,
            from_time(session.created_at),
            from_time(session.expires_at),
            from_time(session.last_used_at),
            Value::Text(Some(&checksum)),
        ];
        let created = transaction.execute(sql, values).await?;
        if let Some(user) = session.user.filter(|_| created > 0) {
            let sql = "DELETE FROM sessions WHERE user_id = $1 AND session_hash <> $2 AND session_hash IN (
                           SELECT session_hash FROM sessions WHERE user_id = $1 AND session_hash <> $2
                           ORDER BY last_used_at DESC, session_hash LIMIT $3 OFFSET $4)";
            let others = Value::Integer(Some(saturated(most as u64).saturating_sub(1)));
            let values = &[user.into(), Value::Text(Some(&session.id_hash)), Value::Integer(Some(i64::MAX)), others];
            transaction.execute(sql, values).await?;
        }
        transaction.commit().await?;
        Ok(created > 0)
    }

    /// The session with this id, unless it has expired. One look-up by primary key.
    pub async fn session(&self, id_hash: &str) -> Result<Option<SessionRecord>> {
        let sql = select!(sessions, "WHERE session_hash = $1 AND expires_at > $2");
        self.engine.find(sql, &[Value::Text(Some(id_hash)), from_time(self.now())]).await
    }

    /// The sessions of a user that have not expired, the newest first. One indexed look-up.
    pub async fn sessions_of(&self, user: UserId) -> Result<Vec<SessionRecord>> {
        let sql = select!(sessions, "WHERE user_id = $1 AND expires_at > $2 ORDER BY created_at DESC, session_hash");
        self.engine.list(sql, &[user.into(), from_time(self.now())]).await
    }

    /// Moves the end of a session, which is used now; [`CatalogError::NotFound`] also if it has expired.
    pub async fn extend_session(&self, id_hash: &str, expires_at: DateTime<Utc>) -> Result<()> {
        let mut transaction = self.engine.begin().await?;
        let sql = concat!(
            "UPDATE sessions SET expires_at = expires_at WHERE session_hash = $1 AND expires_at > $2 RETURNING ",
            columns!(sessions)
        );
        let now = from_time(self.now());
        let session: Option<SessionRecord> = transaction.find(sql, &[Value::Text(Some(id_hash)), now]).await?;
        let session = session.ok_or(CatalogError::NotFound)?;
        let checksum = SessionRecord { expires_at, ..session }.checksum().finish();
        let sql =
            "UPDATE sessions SET expires_at = $2, record_checksum = $3, last_used_at = $4 WHERE session_hash = $1";
        transaction
            .execute(sql, &[Value::Text(Some(id_hash)), from_time(expires_at), Value::Text(Some(&checksum)), now])
            .await?;
        transaction.commit().await
    }

    /// Moves the end of an existing session, which is used now, if the catalog can be written at the moment.
    pub async fn try_extend_session(&self, id_hash: &str, expires_at: DateTime<Utc>) {
        let hash = id_hash.to_owned();
        self.try_write("session expiry", |catalog| async move {
            match catalog.extend_session(&hash, expires_at).await {
                Err(CatalogError::NotFound) => Ok(()),
                extended => extended,
            }
        })
        .await;
    }

    pub async fn delete_session(&self, id_hash: &str) -> Result<()> {
        self.engine.write("DELETE FROM sessions WHERE session_hash = $1", &[Value::Text(Some(id_hash))]).await.map(drop)
    }

    /// Deletes a session of a user and tells whether there was one that had not expired.
    pub async fn delete_session_of(&self, user: UserId, id_hash: &str) -> Result<bool> {
        let sql = "DELETE FROM sessions WHERE session_hash = $1 AND user_id = $2 AND expires_at > $3";
        Ok(self.engine.write(sql, &[Value::Text(Some(id_hash)), user.into(), from_time(self.now())]).await? > 0)
    }

    /// Deletes the sessions that have expired and tells how many there were. Costs what it deletes.
    pub async fn delete_expired_sessions(&self) -> Result<u64> {
        self.engine.write("DELETE FROM sessions WHERE expires_at <= $1", &[from_time(self.now())]).await
    }
}
