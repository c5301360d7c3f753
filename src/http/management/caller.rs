//! Who calls: a user, by the cookie of a session or by an API token.
//!
//! An `Authorization` counts alone, right or wrong. A browser sends cookies with whatever a page makes it send, so
//! calls by cookie are protected twice: the cookie is `SameSite=Lax`, which keeps it out of all calls of other sites
//! but links; and a call whose `Origin` is foreign is refused. Browsers send one with every call that changes
//! something; a call without is a backend's.
//!
//! A token of the scope `read` makes calls that change nothing: GETs, and the pull of an edit, which is a POST.

use axum::extract::FromRequestParts;
use axum::http::header::COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use cookie::Cookie;
use strata_catalog::TokenUser;
use strata_service::{App, Authorization, Client, Principal};
use strata_types::scope::Scope;
use strata_types::secret::Secret;
use strata_types::user::User;

use crate::error::{CallError, HttpError};
use crate::headers::auth::authorization;
use crate::headers::base_url::has_foreign_origin;
use crate::headers::client_ip;

pub(crate) const SESSION_COOKIE: &str = "strata_session";

/// The one operation that changes nothing although it is no GET.
pub(super) const PULL_PATH: &str = "/agent/pull_for_edit";

fn needed(method: &Method, path: &str) -> Scope {
    if method.is_safe() || path == PULL_PATH { Scope::Read } else { Scope::Write }
}

/// The authenticated user. Rejects with 401, and with 403 for a foreign origin or a token that does not suffice.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub User);

impl FromRequestParts<App> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let Identified { user, .. } = Identified::from_request_parts(parts, app).await?;
        Ok(Caller(user))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Identified {
    pub user: User,
    pub client: Client,
    pub scope: Scope,
    /// The id of the session, unless it is by an API token.
    pub session: Option<Secret>,
}

impl FromRequestParts<App> for Identified {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let identified = identified(parts, app).await?.ok_or(CallError::Unauthenticated)?;
        // Whose body it is.
        parts.extensions.insert(Principal::User(identified.user.id));
        Ok(identified)
    }
}

/// The authenticated user, or nobody: who sends no `Authorization` and no cookie of a session that lasts. Rejects with
/// 401 where an `Authorization` is wrong, and with 403 when the origin is foreign.
#[derive(Clone, Debug)]
pub(super) struct AnyCaller(pub Option<User>);

impl FromRequestParts<App> for AnyCaller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let user = identified(parts, app).await?.map(|identified| identified.user);
        if user.is_none() && authorization(&parts.headers) != Authorization::None {
            return Err(CallError::NotToken.into());
        }
        Ok(AnyCaller(user))
    }
}

/// The user whose token or session the request has. Rejects with 403 as [`Caller`] does.
async fn identified(parts: &Parts, app: &App) -> Result<Option<Identified>, HttpError> {
    let client = client_ip::of(parts, app);
    let user = match authorization(&parts.headers) {
        Authorization::Bearer(token) => {
            let found = app.sessions().user_of_token(client, token).await?;
            let needed = needed(&parts.method, parts.uri.path());
            if found.as_ref().is_some_and(|found| !found.scope.allows(needed)) {
                return Err(CallError::ReadOnly.into());
            }
            return Ok(found.map(|TokenUser { user, scope }| Identified { user, client, scope, session: None }));
        }
        Authorization::Other => None,
        Authorization::None => match session_id(&parts.headers) {
            Some(id) => {
                let user = app.sessions().user_of_session(client, &id).await?;
                let session = Some(Secret::from_stored(id));
                user.map(|user| Identified { user, client, scope: Scope::Write, session })
            }
            None => None,
        },
    };
    if user.is_some() && has_foreign_origin(parts, app.config().server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    Ok(user)
}

/// The id that the session cookie holds; where there are several such cookies, the first one's.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(Cookie::split_parse).filter_map(Result::ok);
    cookies.find(|cookie| cookie.name() == SESSION_COOKIE).map(|cookie| cookie.value().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_not_known_to_change_nothing_needs_the_scope_write() {
        for (method, path, scope) in [
            (Method::GET, "/dataset/list", Scope::Read),
            (Method::HEAD, "/dataset/list", Scope::Read),
            (Method::POST, "/agent/pull_for_edit", Scope::Read),
            (Method::POST, "/agent/pull_for_edit/", Scope::Write),
            (Method::POST, "/dataset/new", Scope::Write),
            (Method::DELETE, "/agent/new", Scope::Write),
            (Method::PUT, "/dataset/list", Scope::Write),
        ] {
            assert_eq!(needed(&method, path), scope, "{method} {path}");
        }
    }
}
