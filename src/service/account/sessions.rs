//! Finds the user of a request by a session or an API token.
//!
//! A session is a random id in a cookie of the client. The catalog contains the hash of the id, the user, the start and
//! the expiry. Uses extend the expiry up to `sessions.absolute_s` after the login. To save commits, the expiry is
//! stored at most once per [`RENEWAL_INTERVAL`] or a tenth of `sessions.idle_s`, and the last use once per
//! [`LAST_USE_PRECISION`]. If the catalog rejects that write, the request continues.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{Catalog, CatalogError, StoredSession, TokenIdentity};
use strata_config::{self as config, Config};
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::User;

use crate::ClientNetwork;
use crate::account::session_origin::SessionOrigin;
use crate::admission::catalog_limits::CatalogLimits;
use crate::management::{ManageError, Result};

const RENEWAL_INTERVAL: Duration = Duration::from_secs(3_600);
const LAST_USE_PRECISION: TimeDelta = TimeDelta::seconds(60);
const PUBLIC_ID_DIGITS: usize = 32;

#[derive(Clone, Debug)]
pub struct OwnedSession {
    /// The public id of a session: a hash of its catalog key, itself a hash of the cookie. The id does not give access.
    pub id: String,
    pub created_at: DateTime<Utc>,
    pub last_used_at: DateTime<Utc>,
    pub is_current: bool,
    pub origin: SessionOrigin,
}

/// Returns the catalog's key of a session, which is not a valid cookie; `None` if `id` is malformed.
pub(crate) fn session_hash(id: &str) -> Option<String> {
    Secret::is_session_id(id).then(|| Secret::from_stored(id.to_owned()).sha256_hex())
}

fn public_session_id(id_hash: &str) -> String {
    let mut id = Secret::from_stored(id_hash.to_owned()).sha256_hex();
    id.truncate(PUBLIC_ID_DIGITS);
    id
}

/// Returns the time at which a session that began at `begun` and is used at `now` expires.
fn session_expiry(sessions: &config::LoginSessionConfig, begun: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    let after = |time: DateTime<Utc>, seconds: u64| {
        let span = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds);
        span.and_then(|span| time.checked_add_signed(span)).unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    after(now, sessions.idle_s).min(after(begun, sessions.absolute_s))
}

pub struct SessionService {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) catalog_limits: Arc<CatalogLimits>,
}

impl SessionService {
    /// Returns the user and the scope of an API token; `None` if it is unknown or has expired.
    pub async fn find_user_by_token(&self, client: ClientNetwork, token: &str) -> Result<Option<TokenIdentity>> {
        if !token.starts_with(Secret::API_TOKEN_PREFIX) {
            return Ok(None);
        }
        let hash = Secret::from_stored(token.to_owned()).sha256_hex();
        let _permit = self.catalog_limits.acquire_lookup(client).await?;
        self.catalog.user_by_token(&hash).await.map_err(ManageError::Catalog)
    }

    /// Returns the user of a session that has not expired, and extends the session.
    pub async fn find_user_by_session(&self, client: ClientNetwork, id: &str) -> Result<Option<User>> {
        let Some(id_hash) = session_hash(id) else { return Ok(None) };
        let _permit = self.catalog_limits.acquire_lookup(client).await?;
        let catalog = &self.catalog;
        let options = &self.config.sessions;
        let Some(session) = catalog.session(&id_hash).await.map_err(ManageError::Catalog)? else { return Ok(None) };
        let expiry = session_expiry(options, session.created_at, catalog.now());
        // The configured lifetimes of sessions can have changed since the last use of this session.
        if expiry <= catalog.now() {
            return Ok(None);
        }
        let Some(user) = session.user else { return Ok(None) };
        let user = catalog.user(user).await.map_err(ManageError::Catalog)?;
        let interval = RENEWAL_INTERVAL.min(Duration::from_secs(options.idle_s) / 10);
        let is_use_due = session.last_used_at + LAST_USE_PRECISION <= catalog.now();
        if user.is_some() && (is_use_due || session.expires_at + interval <= expiry) {
            catalog.extend_session_best_effort(&session.id_hash, expiry).await;
        }
        Ok(user)
    }

    /// Begins a session with a new id against session fixation. Ends `previous` and the least recently used sessions
    /// beyond [`limits::MAX_USER_SESSIONS`]. Returns [`ManageError::WrongCredentials`] if the password changed.
    pub(crate) async fn create_session(
        &self,
        user: &User,
        origin: &SessionOrigin,
        previous: Option<&str>,
    ) -> Result<Secret> {
        if let Some(previous) = previous {
            self.end_session(previous).await?;
        }
        let catalog = &self.catalog;
        catalog.delete_expired_sessions().await.map_err(ManageError::Catalog)?;
        loop {
            let id = Secret::new_session_id(rand::random());
            let now = catalog.now();
            let session = StoredSession {
                id_hash: id.sha256_hex(),
                user: Some(user.id),
                data: origin.to_json(),
                created_at: now,
                expires_at: session_expiry(&self.config.sessions, now, now),
                last_used_at: now,
            };
            match catalog.try_create_session(&session, Some(&user.password_hash), limits::MAX_USER_SESSIONS).await {
                Ok(true) => return Ok(id),
                // Another session has the same random id, so a new id is created.
                Ok(false) => {}
                // The user was removed, or the password was changed after its verification.
                Err(CatalogError::NotFound | CatalogError::Conflict) => return Err(ManageError::WrongCredentials),
                Err(error) => return Err(ManageError::Catalog(error)),
            }
        }
    }

    /// Lists the sessions of a user, newest first. `current` is the id of the caller's session.
    pub async fn list_sessions(&self, user: &User, current: Option<&str>) -> Result<Vec<OwnedSession>> {
        let current = current.and_then(session_hash);
        let sessions = self.catalog.sessions_by_user(user.id).await.map_err(ManageError::Catalog)?;
        let now = self.catalog.now();
        let options = &self.config.sessions;
        let active = sessions.into_iter().filter(|session| session_expiry(options, session.created_at, now) > now);
        let owned = active.map(|session| OwnedSession {
            id: public_session_id(&session.id_hash),
            created_at: session.created_at,
            last_used_at: session.last_used_at,
            is_current: current.as_deref() == Some(&session.id_hash),
            origin: SessionOrigin::from_json(&session.data),
        });
        Ok(owned.collect())
    }

    pub async fn end_session_by_public_id(&self, user: &User, id: &str) -> Result<()> {
        let sessions = self.catalog.sessions_by_user(user.id).await.map_err(ManageError::Catalog)?;
        let found = sessions.iter().find(|session| public_session_id(&session.id_hash) == id);
        let session = found.ok_or(ManageError::SessionNotFound)?;
        match self.catalog.delete_session_by_user(user.id, &session.id_hash).await.map_err(ManageError::Catalog)? {
            true => Ok(()),
            // Another request has ended the session in the meantime.
            false => Err(ManageError::SessionNotFound),
        }
    }

    /// Ends a session. An unknown id is not an error.
    pub async fn end_session(&self, id: &str) -> Result<()> {
        let Some(id_hash) = session_hash(id) else { return Ok(()) };
        self.catalog.delete_session(&id_hash).await.map_err(ManageError::Catalog)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_extends_session_up_to_absolute_limit() {
        let options = config::LoginSessionConfig { idle_s: 100, absolute_s: 250 };
        let begun = DateTime::UNIX_EPOCH;
        let at = |seconds| begun + TimeDelta::seconds(seconds);
        for (used, ends) in [(0, 100), (50, 150), (149, 249), (151, 250), (250, 250), (1_000, 250)] {
            assert_eq!(session_expiry(&options, begun, at(used)), at(ends), "used at {used}");
        }
    }
}
