//! `/session/…` and `/account/…`: login, logout, the caller's sessions, and password changes.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use cookie::time::Duration;
use cookie::{Cookie, SameSite};
use serde::Serialize;
use serde_json::json;
use strata_service::{AuthenticatedSession, OwnedSession, Principal, Services};
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::User;
use utoipa::ToSchema;

use super::caller::{SESSION_COOKIE, session_id_from_cookie};
use super::records::{SUCCESS_RESPONSE, SuccessResponse, format_time, response_types};
use super::{AuthenticatedUser, BaseUrl, CallFields, JsonResult, UserCall, request_body};
use crate::AppState;
use crate::endpoint::{AllowedCallers, Endpoint, EndpointGroup, EndpointInput, EndpointResponse, FieldKind, FieldSpec};
use crate::error::{CallError, HttpError};
use crate::headers::base_url::has_foreign_origin;
use crate::headers::client_ip;

pub(super) const ENDPOINTS: &[&Endpoint] = &[
    &LOGIN_ENDPOINT,
    &LOGOUT_ENDPOINT,
    &GET_USER_ENDPOINT,
    &LIST_SESSIONS_ENDPOINT,
    &END_SESSION_ENDPOINT,
    &CHANGE_PASSWORD_ENDPOINT,
];

const MAX_LOGIN_BODY_BYTES: u64 = limits::MAX_LOGIN_BODY_BYTES as u64;

const USER_RESPONSE: EndpointResponse = EndpointResponse::for_record::<UserResponse>("The user and the user's plan.");

static LOGIN_ENDPOINT: Endpoint = Endpoint::post("/session/login", "logIn", EndpointGroup::Accounts, || post(login))
    .summary("Starts a session and returns its ID in the cookie `strata_session`")
    .description(
        "Send the cookie with your subsequent requests. Programs should use an API token instead. After several \
             wrong passwords in a row, you must wait before you can try again.",
    )
    .callers(AllowedCallers::Anyone)
    .input(EndpointInput::Body(&[
        FieldSpec::required("email", FieldKind::Text, || json!("ada@example.org"))
            .description("The user's email address."),
        FieldSpec::required("password", FieldKind::Text, || json!("a password")).description("The user's password."),
    ]))
    .response(EndpointResponse { headers: &[&["Set-Cookie"]], ..USER_RESPONSE })
    .errors(&[401, 403, 429, 503]);

async fn login(State(services): State<AppState>, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    // Otherwise, a foreign page could log a visitor in as an attacker, who could then see the visitor's actions.
    if has_foreign_origin(&head, services.config.server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    let request = Request::from_parts(head.clone(), body);
    let limit = services.config.limits.body_bytes.min(MAX_LOGIN_BODY_BYTES);
    let fields = request_body::read_fields(&services, request, limit, &LOGIN_ENDPOINT).await?;

    let credentials = LoginCredentials { email: fields.text("email")?, password: fields.text("password")? };
    let mut headers = HeaderMap::new();
    let user = sign_in(&services, &head, credentials, &mut headers).await?;
    Ok((headers, Json(UserResponse::from(&user))).into_response())
}

#[derive(Clone, Copy)]
pub struct LoginCredentials<'a> {
    pub email: &'a str,
    pub password: &'a str,
}

/// Starts a session and sets its cookie. Ends the session to which the cookie in the request belongs.
pub async fn sign_in(
    services: &Services,
    head: &Parts,
    credentials: LoginCredentials<'_>,
    headers: &mut HeaderMap,
) -> Result<User, HttpError> {
    let previous = session_id_from_cookie(&head.headers);
    let origin = client_ip::session_origin(head, services);
    let client = client_ip::request_client(head, services);
    let LoginCredentials { email, password } = credentials;
    let session = services.logins.log_in(client, email, password, &origin, previous.as_deref()).await?;
    let AuthenticatedSession { user, session_id } = session;
    // The session cookie lives as long as the longest possible session. Browsers limit cookies to 400 days.
    let max_age = Duration::seconds(i64::try_from(services.config.sessions.absolute_s).unwrap_or(i64::MAX));
    set_session_cookie(headers, session_id.expose(), max_age, &BaseUrl::from_request_head(head, services));
    Ok(user)
}

pub(crate) fn clear_session_cookie(headers: &mut HeaderMap, base: &BaseUrl) {
    set_session_cookie(headers, "", Duration::ZERO, base);
}

static LOGOUT_ENDPOINT: Endpoint =
    Endpoint::post("/session/logout", "logOut", EndpointGroup::Accounts, || post(logout))
        .summary("Ends the current session")
        .description("strata also clears the cookie. Your other sessions and your tokens stay valid.")
        .response(EndpointResponse { headers: &[&["Set-Cookie"]], ..SUCCESS_RESPONSE })
        .errors(&[400, 408, 413]);

/// Ends the session of the request. The body is optional. If it is JSON, it must have no members.
async fn logout(
    AuthenticatedUser(user): AuthenticatedUser,
    base: BaseUrl,
    State(services): State<AppState>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    if request_body::has_json_body(&head.headers) {
        let (bytes, _) =
            request_body::collect_body(&services, Principal::User(user.id), body, MAX_LOGIN_BODY_BYTES).await?;
        if !bytes.is_empty() {
            CallFields::from_body(request_body::parse_members(&bytes)?, None, &LOGOUT_ENDPOINT)?;
        }
    }
    if let Some(id) = session_id_from_cookie(&head.headers) {
        services.sessions.end_session(&id).await?;
    }
    let mut response = Json(SuccessResponse::OK).into_response();
    clear_session_cookie(response.headers_mut(), &base);
    Ok(response)
}

static GET_USER_ENDPOINT: Endpoint = Endpoint::get("/session/me", "getUser", EndpointGroup::Accounts, || get(get_user))
    .summary("Returns the authenticated user")
    .description("Use this operation to check whether a token or session is valid.")
    .response(USER_RESPONSE);

async fn get_user(AuthenticatedUser(user): AuthenticatedUser, _: CallFields) -> JsonResult<UserResponse> {
    Ok(Json(UserResponse::from(&user)))
}

static LIST_SESSIONS_ENDPOINT: Endpoint =
    Endpoint::get("/session/list", "listSessions", EndpointGroup::Accounts, || get(list_sessions))
        .summary("Lists your sessions, newest first")
        .description("`current` is true for the session of this request. Use the `id` of a session to end it.")
        .response(EndpointResponse::for_record::<SessionsResponse>("The active sessions, without their secrets."));

async fn list_sessions(UserCall { user, session, services, .. }: UserCall) -> JsonResult<SessionsResponse> {
    let sessions = services.sessions.list_sessions(&user, session.as_ref().map(Secret::expose)).await?;
    Ok(Json(SessionsResponse::new(sessions.into_iter().map(ListedSession::from).collect())))
}

static END_SESSION_ENDPOINT: Endpoint =
    Endpoint::delete("/session/end", "endSession", EndpointGroup::Accounts, || delete(end_session))
        .summary("Ends one of your sessions")
        .description("The cookie of the session stops working immediately.")
        .input(EndpointInput::Body(&[FieldSpec::required("id", FieldKind::Text, || {
            json!("00112233445566778899aabbccddeeff")
        })
        .description("The ID of the session, from `/session/list`.")]))
        .response(SUCCESS_RESPONSE)
        .errors(&[404]);

async fn end_session(UserCall { user, services, fields, .. }: UserCall) -> JsonResult<SuccessResponse> {
    services.sessions.end_session_by_public_id(&user, fields.text("id")?).await?;
    Ok(Json(SuccessResponse::OK))
}

static CHANGE_PASSWORD_ENDPOINT: Endpoint =
    Endpoint::post("/account/password", "changePassword", EndpointGroup::Accounts, || post(change_password))
        .summary("Changes your password and ends all other sessions; tokens remain valid")
        .description("If `old` is wrong, strata returns 403 and counts a failed login.")
        .input(EndpointInput::Body(&[
            FieldSpec::required("old", FieldKind::Text, || json!("a password")).description("The current password."),
            FieldSpec::required("new", FieldKind::Text, || json!("another password"))
                .description("The new password, 1 to 1,024 bytes."),
        ]))
        .response(USER_RESPONSE)
        .errors(&[429, 503]);

async fn change_password(call: UserCall) -> JsonResult<UserResponse> {
    let old = call.fields.text("old")?;
    let new = call.fields.text("new")?;
    let session = call.session.as_ref().map(Secret::expose);
    call.services.logins.change_password(call.client, &call.user, old, new, session).await?;
    Ok(Json(UserResponse::from(&call.user)))
}

fn set_session_cookie(headers: &mut HeaderMap, value: &str, max_age: Duration, base: &BaseUrl) {
    let cookie = Cookie::build((SESSION_COOKIE, value))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(base.https)
        .max_age(max_age);
    // Letters, digits, and punctuation are always a valid header value.
    if let Ok(value) = HeaderValue::try_from(cookie.to_string()) {
        headers.insert(SET_COOKIE, value);
    }
}

/// A session, without its secret.
#[derive(Serialize, ToSchema)]
struct ListedSession {
    /// The ID with which you can end the session. It is not the ID in the cookie.
    id: String,
    /// When the session began.
    #[schema(format = DateTime)]
    created_at: String,
    /// When the session was last used, to the minute.
    #[schema(format = DateTime)]
    last_used_at: String,
    /// Whether this request uses the session.
    current: bool,
}

impl From<OwnedSession> for ListedSession {
    fn from(session: OwnedSession) -> Self {
        ListedSession {
            id: session.id,
            created_at: format_time(session.created_at),
            last_used_at: format_time(session.last_used_at),
            current: session.is_current,
        }
    }
}

response_types! {
    /// A response that contains your sessions, newest first.
    SessionsResponse {
        /// The sessions.
        sessions: Vec<ListedSession>,
    }

    /// A response that contains a user.
    UserResponse {
        /// The user.
        user: UserRecord,
    }
}

/// A user.
#[derive(Serialize, ToSchema)]
struct UserRecord {
    /// The email address, as it was entered.
    email: String,
    /// The plan: `free`, `pro`, or `scale`.
    plan: &'static str,
    /// When the user was added.
    #[schema(format = DateTime)]
    created_at: String,
}

impl From<&User> for UserResponse {
    fn from(user: &User) -> Self {
        let email = user.email.clone();
        UserResponse::new(UserRecord { email, plan: user.plan.name(), created_at: format_time(user.created_at) })
    }
}
