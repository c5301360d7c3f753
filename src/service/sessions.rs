//! Who a request is from: sessions, which a log-in begins, and API tokens.
//!
//! A session is a random id that the client keeps in a cookie; the catalog knows its hash, whose it is and when it
//! ends. Each use moves its end, at most once in [`RENEWAL_INTERVAL`] or a tenth of its length: a request should not
//! pay for a commit each time.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use chrono::DateTime;
use tower_sessions::cookie::time::OffsetDateTime;
use tower_sessions::session::{Id, Record};
use tower_sessions::session_store::{Error as StoreError, Result as StoreResult};
use tower_sessions::{ExpiredDeletion, SessionStore};

use super::App;
use super::manage::ManageError;
use crate::catalog::{Catalog, CatalogError, SessionRecord};
use crate::model::ids::UserId;
use crate::model::secret::Secret;
use crate::model::user::User;

/// How exactly the end of a session is known.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3_600);

/// What a session's data is kept under: the user's id.
const USER: &str = "user";

/// Sessions kept in the catalog, each under the hash of its id: who reads the database can use none of them.
#[derive(Clone, Debug)]
pub(super) struct CatalogSessions(pub Catalog);

impl CatalogSessions {
    fn hash(id: &Id) -> String {
        Secret::from_stored(id.to_string()).hash()
    }

    fn record(record: &Record) -> StoreResult<SessionRecord> {
        let user = record.data.get(USER).and_then(serde_json::Value::as_u64).map(UserId::new);
        let data = serde_json::to_string(&record.data).map_err(|error| StoreError::Encode(error.to_string()))?;
        let expires_at = DateTime::from_timestamp(record.expiry_date.unix_timestamp(), 0)
            .ok_or_else(|| StoreError::Encode("the session's end is out of range".to_owned()))?;
        Ok(SessionRecord { id_hash: CatalogSessions::hash(&record.id), user, data, expires_at })
    }
}

fn backend(error: CatalogError) -> StoreError {
    use std::error::Error;
    let cause = error.source().map_or(String::new(), |source| format!(": {source}"));
    StoreError::Backend(format!("{error}{cause}"))
}

#[async_trait]
impl SessionStore for CatalogSessions {
    async fn create(&self, record: &mut Record) -> StoreResult<()> {
        while !self.0.create_session(&CatalogSessions::record(record)?).await.map_err(backend)? {
            record.id = Id::default();
        }
        Ok(())
    }

    /// One that was deleted meanwhile stays deleted.
    async fn save(&self, record: &Record) -> StoreResult<()> {
        match self.0.update_session(&CatalogSessions::record(record)?).await {
            Ok(()) | Err(CatalogError::NotFound) => Ok(()),
            Err(error) => Err(backend(error)),
        }
    }

    async fn load(&self, id: &Id) -> StoreResult<Option<Record>> {
        let Some(found) = self.0.session(&CatalogSessions::hash(id)).await.map_err(backend)? else { return Ok(None) };
        let data = serde_json::from_str(&found.data).map_err(|error| StoreError::Decode(error.to_string()))?;
        let expiry_date = OffsetDateTime::from_unix_timestamp(found.expires_at.timestamp())
            .map_err(|error| StoreError::Decode(error.to_string()))?;
        Ok(Some(Record { id: *id, data, expiry_date }))
    }

    async fn delete(&self, id: &Id) -> StoreResult<()> {
        self.0.delete_session(&CatalogSessions::hash(id)).await.map_err(backend)
    }
}

#[async_trait]
impl ExpiredDeletion for CatalogSessions {
    async fn delete_expired(&self) -> StoreResult<()> {
        self.0.delete_expired_sessions().await.map(drop).map_err(backend)
    }
}

impl From<StoreError> for ManageError {
    fn from(error: StoreError) -> ManageError {
        ManageError::Failed(format!("sessions: {error}"))
    }
}

impl App {
    fn sessions(&self) -> CatalogSessions {
        CatalogSessions(self.catalog().clone())
    }

    /// Whose API token this is. One look-up.
    ///
    /// # Errors
    /// [`ManageError::Catalog`].
    pub async fn user_of_token(&self, token: &str) -> Result<Option<User>, ManageError> {
        if !token.starts_with(Secret::API_TOKEN_PREFIX) {
            return Ok(None);
        }
        let hash = Secret::from_stored(token.to_owned()).hash();
        self.catalog().user_by_token(&hash).await.map_err(ManageError::Catalog)
    }

    /// Whose session has this id; `None` when it is none or has ended. Two look-ups; moves the session's end.
    ///
    /// # Errors
    /// [`ManageError::Catalog`], [`ManageError::Failed`].
    pub async fn user_of_session(&self, id: &str) -> Result<Option<User>, ManageError> {
        let Ok(id) = id.parse::<Id>() else { return Ok(None) };
        let sessions = self.sessions();
        let Some(mut record) = sessions.load(&id).await? else { return Ok(None) };
        let Some(user) = record.data.get(USER).and_then(serde_json::Value::as_u64) else { return Ok(None) };
        let user = self.catalog().user(UserId::new(user)).await.map_err(ManageError::Catalog)?;
        let end = self.session_end()?;
        let length = Duration::from_secs(self.config().sessions.idle_s);
        if user.is_some() && record.expiry_date + RENEWAL_INTERVAL.min(length / 10) <= end {
            record.expiry_date = end;
            sessions.save(&record).await?;
        }
        Ok(user)
    }

    /// Begins a session for a user and gives its id, which was never used before; the one of before ends, if any, so
    /// that nobody can know the id beforehand. Also removes sessions that have expired.
    ///
    /// # Errors
    /// [`ManageError::Failed`].
    pub(super) async fn begin_session(&self, user: UserId, before: Option<&str>) -> Result<Secret, ManageError> {
        if let Some(before) = before {
            self.end_session(before).await?;
        }
        let sessions = self.sessions();
        sessions.delete_expired().await?;
        let data = HashMap::from([(USER.to_owned(), user.get().into())]);
        let mut record = Record { id: Id::default(), data, expiry_date: self.session_end()? };
        sessions.create(&mut record).await?;
        Ok(Secret::from_stored(record.id.to_string()))
    }

    /// Ends a session. One that has ended already, and what is no session's id, is no error.
    ///
    /// # Errors
    /// [`ManageError::Failed`].
    pub async fn end_session(&self, id: &str) -> Result<(), ManageError> {
        match id.parse::<Id>() {
            Ok(id) => Ok(self.sessions().delete(&id).await?),
            Err(_) => Ok(()),
        }
    }

    /// When a session ends that is used now.
    fn session_end(&self) -> Result<OffsetDateTime, ManageError> {
        let now = OffsetDateTime::from_unix_timestamp(self.catalog().now().timestamp());
        let now = now.map_err(|error| ManageError::Failed(format!("the clock: {error}")))?;
        Ok(now + Duration::from_secs(self.config().sessions.idle_s))
    }
}
