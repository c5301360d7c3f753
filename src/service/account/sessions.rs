//! Finds the user of a request by a session or an API token.
//!
//! A session is a random id in a cookie of the client. The catalog contains the hash of the id, the user, the beginning
//! and the end. Each use moves the end, at most once in [`RENEWAL_INTERVAL`] or a tenth of its length, because not
//! every request should pay for a commit. The last use is recorded to [`USE_INTERVAL`]. If the catalog cannot be
//! written, the end stays, and the request continues. No use moves the end beyond `sessions.absolute_s` after the
//! login.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use strata_catalog::{Catalog, CatalogError, SessionRecord, TokenUser};
use strata_config::{self as config, Config};
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::User;

use crate::account::session_origin::SessionOrigin;
use crate::admission::catalog::CatalogGates;
use crate::{Client, ManageError};

/// The precision of the end of a session.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3_600);

/// The precision of the last use of a session.
const USE_INTERVAL: TimeDelta = TimeDelta::seconds(60);

const SHOWN_DIGITS: usize = 32;

#[derive(Clone, Debug)]
pub struct OwnedSession {
    /// The hash of the catalog's key, which is the hash of the cookie. It does not give access.
    pub id: String,
    pub created_at: DateTime<Utc>,
    /// The last use, to the minute.
    pub last_used_at: DateTime<Utc>,
    pub is_current: bool,
    pub origin: SessionOrigin,
}

/// The catalog's key of a session, which is not a valid cookie; `None` if `id` is not the id of a session.
pub(crate) fn session_hash(id: &str) -> Option<String> {
    Secret::is_session_id(id).then(|| Secret::from_stored(id.to_owned()).hash())
}

fn shown_id(id_hash: &str) -> String {
    let mut id = Secret::from_stored(id_hash.to_owned()).hash();
    id.truncate(SHOWN_DIGITS);
    id
}

/// The end of a session that began at `begun` and is used at `now`.
fn end(sessions: &config::Sessions, begun: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    let after = |time: DateTime<Utc>, seconds: u64| {
        let span = i64::try_from(seconds).ok().and_then(TimeDelta::try_seconds);
        span.and_then(|span| time.checked_add_signed(span)).unwrap_or(DateTime::<Utc>::MAX_UTC)
    };
    after(now, sessions.idle_s).min(after(begun, sessions.absolute_s))
}

pub struct Sessions {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) gates: Arc<CatalogGates>,
}

impl Sessions {
    /// The user and the scope of an API token; `None` if it is unknown or has expired. One look-up.
    pub async fn user_of_token(&self, client: Client, token: &str) -> Result<Option<TokenUser>, ManageError> {
        if !token.starts_with(Secret::API_TOKEN_PREFIX) {
            return Ok(None);
        }
        let hash = Secret::from_stored(token.to_owned()).hash();
        let _permit = self.gates.look_up(client).await?;
        self.catalog.user_by_token(&hash).await.map_err(ManageError::Catalog)
    }

    /// The user of a session that has not ended, in two look-ups. Moves the session's end if that can be recorded.
    pub async fn user_of_session(&self, client: Client, id: &str) -> Result<Option<User>, ManageError> {
        let Some(id_hash) = session_hash(id) else { return Ok(None) };
        let _permit = self.gates.look_up(client).await?;
        let catalog = &self.catalog;
        let options = &self.config.sessions;
        let Some(session) = catalog.session(&id_hash).await.map_err(ManageError::Catalog)? else { return Ok(None) };
        let end = end(options, session.created_at, catalog.now());
        // The limit can be lower than at the last use.
        if end <= catalog.now() {
            return Ok(None);
        }
        let Some(user) = session.user else { return Ok(None) };
        let user = catalog.user(user).await.map_err(ManageError::Catalog)?;
        let interval = RENEWAL_INTERVAL.min(Duration::from_secs(options.idle_s) / 10);
        let unused = session.last_used_at + USE_INTERVAL <= catalog.now();
        if user.is_some() && (unused || session.expires_at + interval <= end) {
            catalog.try_extend_session(&session.id_hash, end).await;
        }
        Ok(user)
    }

    /// Begins a session for a user, and returns its new id. Ends the session `before`, so that nobody can know the id
    /// in advance. Also removes expired sessions, and the least recently used ones if the user has more than
    /// [`limits::SESSIONS`]. [`ManageError::WrongCredentials`] if the password has changed.
    pub(crate) async fn begin(
        &self,
        user: &User,
        origin: &SessionOrigin,
        before: Option<&str>,
    ) -> Result<Secret, ManageError> {
        if let Some(before) = before {
            self.end(before).await?;
        }
        let catalog = &self.catalog;
        catalog.delete_expired_sessions().await.map_err(ManageError::Catalog)?;
        loop {
            let id = Secret::session_id(rand::random());
            let now = catalog.now();
            let session = SessionRecord {
                id_hash: id.hash(),
                user: Some(user.id),
                data: origin.to_data(),
                created_at: now,
                expires_at: end(&self.config.sessions, now, now),
                last_used_at: now,
            };
            match catalog.create_session(&session, Some(&user.password_hash), limits::SESSIONS).await {
                Ok(true) => return Ok(id),
                // Taken, of 2^256.
                Ok(false) => {}
                // The user was removed meanwhile, or the password changed.
                Err(CatalogError::NotFound | CatalogError::Conflict) => return Err(ManageError::WrongCredentials),
                Err(error) => return Err(ManageError::Catalog(error)),
            }
        }
    }

    /// The sessions of a user, the newest first. `current` is the id of the session of the call.
    pub async fn list(&self, user: &User, current: Option<&str>) -> Result<Vec<OwnedSession>, ManageError> {
        let current = current.and_then(session_hash);
        let sessions = self.catalog.sessions_of(user.id).await.map_err(ManageError::Catalog)?;
        let now = self.catalog.now();
        let lasting = sessions.into_iter().filter(|session| end(&self.config.sessions, session.created_at, now) > now);
        let owned = lasting.map(|session| OwnedSession {
            id: shown_id(&session.id_hash),
            created_at: session.created_at,
            last_used_at: session.last_used_at,
            is_current: current.as_deref() == Some(&session.id_hash),
            origin: SessionOrigin::from_data(&session.data),
        });
        Ok(owned.collect())
    }

    /// Ends the session of a user that [`Sessions::list`] gives this id.
    pub async fn end_listed(&self, user: &User, id: &str) -> Result<(), ManageError> {
        let sessions = self.catalog.sessions_of(user.id).await.map_err(ManageError::Catalog)?;
        let named = sessions.iter().find(|session| shown_id(&session.id_hash) == id);
        let session = named.ok_or(ManageError::SessionNotFound)?;
        match self.catalog.delete_session_of(user.id, &session.id_hash).await.map_err(ManageError::Catalog)? {
            true => Ok(()),
            // Another call was faster.
            false => Err(ManageError::SessionNotFound),
        }
    }

    /// Ends a session. An unknown id is not an error.
    pub async fn end(&self, id: &str) -> Result<(), ManageError> {
        match session_hash(id) {
            Some(id_hash) => self.catalog.delete_session(&id_hash).await.map_err(ManageError::Catalog),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_moves_the_end_and_never_beyond_the_absolute_one() {
        let options = config::Sessions { idle_s: 100, absolute_s: 250 };
        let begun = DateTime::UNIX_EPOCH;
        let at = |seconds| begun + TimeDelta::seconds(seconds);
        for (used, ends) in [(0, 100), (50, 150), (149, 249), (151, 250), (250, 250), (1_000, 250)] {
            assert_eq!(end(&options, begun, at(used)), at(ends), "used at {used}");
        }
    }
}
