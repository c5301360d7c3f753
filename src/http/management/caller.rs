//! The caller: a user with a session cookie or an API token.
//!
//! With an `Authorization`, valid or not, cookies are ignored. A browser also sends cookies with the requests of other
//! sites, so calls with a cookie have two protections. The cookie is `SameSite=Lax`, so that other sites can send it
//! only with links. And a call with a foreign `Origin` is rejected: browsers send it with each call that changes data.
//!
//! A token with the scope `read` can make calls that change nothing: GET, and the pull for an edit, which is a POST.

use axum::extract::FromRequestParts;
use axum::http::header::COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use cookie::Cookie;
use strata_catalog::TokenUser;
use strata_service::{Authorization, Client, Principal, Services};
use strata_types::scope::Scope;
use strata_types::secret::Secret;
use strata_types::user::User;

use crate::AppState;
use crate::error::{CallError, HttpError};
use crate::headers::auth::authorization;
use crate::headers::base_url::has_foreign_origin;
use crate::headers::client_ip;

pub(crate) const SESSION_COOKIE: &str = "strata_session";

/// The only operation that changes nothing although it is not a GET.
pub(super) const PULL_PATH: &str = "/agent/pull_for_edit";

fn needed(method: &Method, path: &str) -> Scope {
    if method.is_safe() || path == PULL_PATH { Scope::Read } else { Scope::Write }
}

/// The authenticated user. Rejects with 401, and with 403 for a foreign origin or a token that does not suffice.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub User);

impl FromRequestParts<AppState> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let Identified { user, .. } = Identified::from_request_parts(parts, services).await?;
        Ok(Caller(user))
    }
}

#[derive(Clone, Debug)]
pub(super) struct Identified {
    pub user: User,
    pub client: Client,
    pub scope: Scope,
    /// `None` for an API token.
    pub session: Option<Secret>,
}

impl FromRequestParts<AppState> for Identified {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let identified = identified(parts, services).await?.ok_or(CallError::Unauthenticated)?;
        // Reading the body reserves memory for this principal.
        parts.extensions.insert(Principal::User(identified.user.id));
        Ok(identified)
    }
}

/// The authenticated user, or an anonymous caller without `Authorization` and without an active session. Rejects with
/// 401 for an invalid `Authorization`, and with 403 for a foreign origin.
#[derive(Clone, Debug)]
pub(super) struct AnyCaller(pub Option<User>);

impl FromRequestParts<AppState> for AnyCaller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let user = identified(parts, services).await?.map(|identified| identified.user);
        if user.is_none() && authorization(&parts.headers) != Authorization::None {
            return Err(CallError::NotToken.into());
        }
        Ok(AnyCaller(user))
    }
}

/// The user of the token or session. Rejects with 403 like [`Caller`].
async fn identified(parts: &Parts, services: &Services) -> Result<Option<Identified>, HttpError> {
    let client = client_ip::client(parts, services);
    let user = match authorization(&parts.headers) {
        Authorization::Bearer(token) => {
            let found = services.sessions.user_of_token(client, token).await?;
            let needed = needed(&parts.method, parts.uri.path());
            if found.as_ref().is_some_and(|found| !found.scope.allows(needed)) {
                return Err(CallError::ReadOnly.into());
            }
            return Ok(found.map(|TokenUser { user, scope }| Identified { user, client, scope, session: None }));
        }
        Authorization::Other => None,
        Authorization::None => match session_id(&parts.headers) {
            Some(id) => {
                let user = services.sessions.user_of_session(client, &id).await?;
                let session = Some(Secret::from_stored(id));
                user.map(|user| Identified { user, client, scope: Scope::Write, session })
            }
            None => None,
        },
    };
    if user.is_some() && has_foreign_origin(parts, services.config.server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    Ok(user)
}

/// The ID in the first session cookie.
pub(crate) fn session_id(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(Cookie::split_parse).filter_map(Result::ok);
    cookies.find(|cookie| cookie.name() == SESSION_COOKIE).map(|cookie| cookie.value().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_calls_need_the_write_scope() {
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
