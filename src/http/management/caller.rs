//! Who calls: a user, by the cookie of a session or by an API token.
//!
//! An `Authorization` counts alone, right or wrong. A browser sends cookies with whatever a page makes it send, so
//! calls by cookie are protected twice: the cookie is `SameSite=Lax`, which keeps it out of all calls of other sites
//! but links; and a call whose `Origin` is foreign is refused. Browsers send one with every call that changes
//! something; a call without is a backend's.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::COOKIE;
use axum::http::request::Parts;
use tower_sessions::cookie::Cookie;

use super::base_url::has_foreign_origin;
use crate::http::error::{CallError, HttpError};
use crate::http::headers::auth::authorization;
use crate::http::headers::client_ip;
use crate::model::user::User;
use crate::service::{App, Authorization, Holder};

/// The name of the cookie that holds the id of a session.
pub(in crate::http) const SESSION_COOKIE: &str = "strata_session";

/// The authenticated user. Rejects with 401, and with 403 when the origin is foreign.
#[derive(Clone, Debug)]
pub(in crate::http) struct Caller(pub User);

impl FromRequestParts<App> for Caller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let user = user_of(parts, app).await?.ok_or(CallError::Unauthenticated)?;
        // Whose body it is.
        parts.extensions.insert(Holder::User(user.id));
        Ok(Caller(user))
    }
}

/// The authenticated user, or nobody: who sends no `Authorization` and no cookie of a session that lasts. Rejects with
/// 401 where an `Authorization` is wrong, and with 403 when the origin is foreign.
#[derive(Clone, Debug)]
pub(super) struct AnyCaller(pub Option<User>);

impl FromRequestParts<App> for AnyCaller {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, HttpError> {
        let user = user_of(parts, app).await?;
        if user.is_none() && authorization(&parts.headers) != Authorization::None {
            return Err(CallError::Unauthenticated.into());
        }
        Ok(AnyCaller(user))
    }
}

/// The user whose token or session the request has.
async fn user_of(parts: &Parts, app: &App) -> Result<Option<User>, HttpError> {
    let client = client_ip::of(parts, app);
    let user = match authorization(&parts.headers) {
        Authorization::Bearer(token) => return Ok(app.sessions().user_of_token(client, token).await?),
        Authorization::Other => None,
        Authorization::None => match session_id(&parts.headers) {
            Some(id) => app.sessions().user_of_session(client, &id).await?,
            None => None,
        },
    };
    if user.is_some() && has_foreign_origin(parts, app.config().server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    Ok(user)
}

/// The id that the session cookie holds; where there are several such cookies, the first one's.
pub(super) fn session_id(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(Cookie::split_parse).filter_map(Result::ok);
    cookies.find(|cookie| cookie.name() == SESSION_COOKIE).map(|cookie| cookie.value().to_owned())
}
