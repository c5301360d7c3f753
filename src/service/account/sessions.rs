//! Who a request is from: sessions, which a log-in begins, and API tokens.
//!
//! A session is a random id that the client keeps in a cookie; the catalog knows its hash, whose it is, when it began
//! and when it ends. Each use moves its end, at most once in [`RENEWAL_INTERVAL`] or a tenth of its length: a request
//! should not pay for a commit each time. When it was last used is recorded to [`USE_INTERVAL`]. Where the catalog
//! cannot be written the end stays, and the request is answered. No use moves the end beyond `sessions.absolute_s`
//! after the log-in.

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

/// How exactly the end of a session is known.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(3_600);

/// How exactly the last use of a session is known.
const USE_INTERVAL: TimeDelta = TimeDelta::seconds(60);

const SHOWN_DIGITS: usize = 32;

#[derive(Clone, Debug)]
pub struct OwnedSession {
    /// What names it. It opens nothing: it is a hash of what the catalog keeps, which is a hash of the cookie.
    pub id: String,
    pub created_at: DateTime<Utc>,
    /// When it was last used, to the minute.
    pub last_used_at: DateTime<Utc>,
    pub is_current: bool,
    pub origin: SessionOrigin,
}

/// The catalog's key of a session, which is no use as a cookie; `None` if `id` is not that of a session.
pub(crate) fn session_hash(id: &str) -> Option<String> {
    Secret::is_session_id(id).then(|| Secret::from_stored(id.to_owned()).hash())
}

fn shown_id(id_hash: &str) -> String {
    let mut id = Secret::from_stored(id_hash.to_owned()).hash();
    id.truncate(SHOWN_DIGITS);
    id
}

/// When a session ends that began at `begun` and is used at `now`.
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
    /// Whose API token this is and what it allows, for who sends it; `None` if it is none or has expired. One look-up.
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
        let (catalog, options) = (&self.catalog, &self.config.sessions);
        let Some(session) = catalog.session(&id_hash).await.map_err(ManageError::Catalog)? else { return Ok(None) };
        let end = end(options, session.created_at, catalog.now());
        // The limit may be a lower one than when the session was used last.
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

    /// Begins a session for a user and gives its id, which was never used before; the one of before ends, if any, so
    /// that nobody can know the id beforehand. Also removes sessions that have expired. A user has at most
    /// [`limits::SESSIONS`]: more end those that were not used the longest.
    /// [`ManageError::WrongCredentials`] if the user has another password by now.
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
        let (options, now) = (&self.config.sessions, self.catalog.now());
        let lasting = sessions.into_iter().filter(|session| end(options, session.created_at, now) > now);
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

    /// Ends a session. One that has ended already, and what is no session's id, is no error.
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
