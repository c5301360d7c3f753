//! The caller of a management operation: a user with a session cookie or an API token.
//!
//! If a request has an `Authorization` header, valid or not, cookies are ignored. Browsers also send cookies with
//! requests of other sites, so session cookies have two protections. The cookie is `SameSite=Lax`, so other sites can
//! send it only with links. In addition, strata rejects a foreign `Origin`, a header that browsers send with each
//! request that can change data.
//!
//! A token with the scope `read` is valid for calls that change nothing: GET, and the POST calls that pull entities for
//! an edit and that check the active version.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use cookie::Cookie;
use strata_catalog::TokenIdentity;
use strata_service::{AuthorizationHeader, ClientNetwork, Principal, Services};
use strata_types::secret::Secret;
use strata_types::token_scope::TokenScope;
use strata_types::user::User;

use super::CallFields;
use crate::AppState;
use crate::error::{CallError, HttpError};
use crate::headers::auth::parse_authorization;
use crate::headers::base_url::has_foreign_origin;
use crate::headers::client_ip;

pub(crate) const SESSION_COOKIE: &str = "strata_session";

pub(super) const PULL_PATH: &str = "/agent/pull_for_edit";
pub(super) const CHECK_PATH: &str = "/dataset/check";

/// The only paths whose methods other than GET change nothing, so that a token with the scope `read` suffices.
const READ_ONLY_PATHS: [&str; 2] = [PULL_PATH, CHECK_PATH];

fn required_scope(method: &Method, path: &str) -> TokenScope {
    if method.is_safe() || READ_ONLY_PATHS.contains(&path) { TokenScope::Read } else { TokenScope::Write }
}

/// An authenticated user.
///
/// # Errors
/// Returns 401 without valid credentials, and 403 for a foreign origin or a token with an insufficient scope.
#[derive(Clone, Debug)]
pub(crate) struct AuthenticatedUser(pub User);

impl FromRequestParts<AppState> for AuthenticatedUser {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let CallerIdentity { user, .. } = CallerIdentity::from_request_parts(parts, services).await?;
        Ok(AuthenticatedUser(user))
    }
}

#[derive(Clone, Debug)]
pub(super) struct CallerIdentity {
    pub user: User,
    pub client: ClientNetwork,
    pub scope: TokenScope,
    /// The session of the user; `None` if the user has sent an API token.
    pub session: Option<Secret>,
}

impl FromRequestParts<AppState> for CallerIdentity {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let identified = identify_caller(parts, services).await?.ok_or(CallError::Unauthenticated)?;
        // The code that reads the body charges the memory of a large body to this principal.
        parts.extensions.insert(Principal::User(identified.user.id));
        Ok(identified)
    }
}

/// A call of an authenticated user, with the fields of its body or query string.
pub(super) struct UserCall {
    pub user: User,
    pub client: ClientNetwork,
    pub scope: TokenScope,
    pub session: Option<Secret>,
    pub services: AppState,
    pub fields: CallFields,
}

impl FromRequest<AppState> for UserCall {
    type Rejection = HttpError;

    async fn from_request(request: Request, services: &AppState) -> Result<Self, HttpError> {
        let (mut parts, body) = request.into_parts();
        let CallerIdentity { user, client, scope, session } =
            CallerIdentity::from_request_parts(&mut parts, services).await?;
        let fields = CallFields::from_request(Request::from_parts(parts, body), services).await?;
        Ok(UserCall { user, client, scope, session, services: services.clone(), fields })
    }
}

/// An authenticated user, or `None` for a request without `Authorization` and without an active session.
///
/// # Errors
/// Returns 401 for an invalid `Authorization` header, and 403 for a foreign origin.
#[derive(Clone, Debug)]
pub(super) struct OptionalUser(pub Option<User>);

impl FromRequestParts<AppState> for OptionalUser {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, services: &AppState) -> Result<Self, HttpError> {
        let user = identify_caller(parts, services).await?.map(|identified| identified.user);
        if user.is_none() && parse_authorization(&parts.headers) != AuthorizationHeader::None {
            return Err(CallError::InvalidToken.into());
        }
        Ok(OptionalUser(user))
    }
}

/// Returns the user of the token or session in a request. The 403 errors are the same as for [`AuthenticatedUser`].
async fn identify_caller(parts: &Parts, services: &Services) -> Result<Option<CallerIdentity>, HttpError> {
    let client = client_ip::request_client(parts, services);
    let user = match parse_authorization(&parts.headers) {
        AuthorizationHeader::Bearer(token) => {
            let found = services.sessions.find_user_by_token(client, token).await?;
            let needed = required_scope(&parts.method, parts.uri.path());
            if found.as_ref().is_some_and(|identity| !identity.scope.can_access(needed)) {
                return Err(CallError::ReadOnlyToken.into());
            }
            return Ok(found.map(|TokenIdentity { user, scope }| CallerIdentity {
                user,
                client,
                scope,
                session: None,
            }));
        }
        AuthorizationHeader::Other => None,
        AuthorizationHeader::None => match session_id_from_cookie(&parts.headers) {
            Some(id) => {
                let user = services.sessions.find_user_by_session(client, &id).await?;
                let session = Some(Secret::from_stored(id));
                user.map(|user| CallerIdentity { user, client, scope: TokenScope::Write, session })
            }
            None => None,
        },
    };
    if user.is_some() && has_foreign_origin(parts, services.config.server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    Ok(user)
}

pub(crate) fn session_id_from_cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies = lines.flat_map(Cookie::split_parse).filter_map(Result::ok);
    cookies.find(|cookie| cookie.name() == SESSION_COOKIE).map(|cookie| cookie.value().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_scope_of_unknown_calls_is_write() {
        for (method, path, scope) in [
            (Method::GET, "/dataset/list", TokenScope::Read),
            (Method::HEAD, "/dataset/list", TokenScope::Read),
            (Method::POST, "/agent/pull_for_edit", TokenScope::Read),
            (Method::POST, "/dataset/check", TokenScope::Read),
            (Method::POST, "/agent/pull_for_edit/", TokenScope::Write),
            (Method::POST, "/dataset/new", TokenScope::Write),
            (Method::DELETE, "/agent/new", TokenScope::Write),
            (Method::PUT, "/dataset/list", TokenScope::Write),
        ] {
            assert_eq!(required_scope(&method, path), scope, "{method} {path}");
        }
    }
}
