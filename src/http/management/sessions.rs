//! `/session/…` and `/account/…`: logging in and out, the caller's sessions, a new password.

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
use strata_service::{LoggedIn, OwnedSession, Principal, Services};
use strata_types::limits;
use strata_types::secret::Secret;
use strata_types::user::User;
use utoipa::ToSchema;

use super::caller::{SESSION_COOKIE, session_id};
use super::records::{DONE, Done, answers, time};
use super::{BaseUrl, Caller, Fields, Identified, JsonResult, body};
use crate::AppState;
use crate::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input};
use crate::error::{CallError, HttpError};
use crate::headers::base_url::has_foreign_origin;
use crate::headers::client_ip;

pub(super) const ENDPOINTS: &[&Endpoint] = &[&LOGIN, &LOGOUT, &ME, &LIST, &END, &PASSWORD];

const LOGIN_BYTES: u64 = limits::LOGIN_BODY_BYTES as u64;

const USER: Answer = Answer::record::<UserAnswer>("The user and the user's plan.");

static LOGIN: Endpoint = Endpoint::post("/session/login", "logIn", Group::Accounts, || post(login))
    .summary("Starts a session and returns its ID in the cookie `strata_session`")
    .description(
        "Send the cookie with your subsequent requests. Programs should use an API token instead. After several \
             wrong passwords in a row, you must wait before you can try again.",
    )
    .callers(Callers::Anybody)
    .input(Input::Body(&[
        Field::required("email", FieldKind::Text, || json!("ada@example.org")).about("The user's email address."),
        Field::required("password", FieldKind::Text, || json!("a password")).about("The user's password."),
    ]))
    .answer(Answer { headers: &[&["Set-Cookie"]], ..USER })
    .errors(&[401, 403, 429, 503]);

async fn login(State(services): State<AppState>, request: Request) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    // A page that logs in its visitor as another user could see the visitor's actions.
    if has_foreign_origin(&head, services.config.server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    let request = Request::from_parts(head.clone(), body);
    let fields = body::read(&services, request, services.config.limits.body_bytes.min(LOGIN_BYTES), &LOGIN).await?;

    let credentials = (fields.text("email")?, fields.text("password")?);
    let mut headers = HeaderMap::new();
    let user = sign_in(&services, &head, credentials, &mut headers).await?;
    Ok((headers, Json(UserAnswer::from(&user))).into_response())
}

/// Begins a session and sets its cookie. The previous session of the request ends.
pub async fn sign_in(
    services: &Services,
    head: &Parts,
    credentials: (&str, &str),
    headers: &mut HeaderMap,
) -> Result<User, HttpError> {
    let before = session_id(&head.headers);
    let origin = client_ip::session_origin(head, services);
    let logged_in = services
        .logins
        .log_in(client_ip::client(head, services), credentials.0, credentials.1, &origin, before.as_deref())
        .await?;
    let LoggedIn { user, session_id } = logged_in;
    // No session lasts longer. Browsers keep no cookie for more than 400 days.
    let longest_s = i64::try_from(services.config.sessions.absolute_s).unwrap_or(i64::MAX);
    set_cookie(headers, session_id.expose(), Duration::seconds(longest_s), &BaseUrl::of(head, services));
    Ok(user)
}

pub(crate) fn forget(headers: &mut HeaderMap, base: &BaseUrl) {
    set_cookie(headers, "", Duration::ZERO, base);
}

static LOGOUT: Endpoint = Endpoint::post("/session/logout", "logOut", Group::Accounts, || post(logout))
    .summary("Ends the current session")
    .description("strata also clears the cookie. Your other sessions and your tokens stay valid.")
    .answer(Answer { headers: &[&["Set-Cookie"]], ..DONE })
    .errors(&[400, 408, 413]);

/// The body is optional. A JSON body must have no fields.
async fn logout(
    Caller(user): Caller,
    base: BaseUrl,
    State(services): State<AppState>,
    request: Request,
) -> Result<Response, HttpError> {
    let (head, body) = request.into_parts();
    if body::is_json(&head.headers) {
        let (bytes, _) = body::collect(&services, Principal::User(user.id), body, LOGIN_BYTES).await?;
        if !bytes.is_empty() {
            Fields::from_body(body::members(&bytes)?, None, &LOGOUT)?;
        }
    }
    if let Some(id) = session_id(&head.headers) {
        services.sessions.end(&id).await?;
    }
    let mut response = Json(Done::OK).into_response();
    forget(response.headers_mut(), &base);
    Ok(response)
}

static ME: Endpoint = Endpoint::get("/session/me", "getUser", Group::Accounts, || get(me))
    .summary("Returns the authenticated user")
    .description("Use this operation to check whether a token or session is valid.")
    .answer(USER);

async fn me(Caller(user): Caller, _: Fields) -> JsonResult<UserAnswer> {
    Ok(Json(UserAnswer::from(&user)))
}

static LIST: Endpoint = Endpoint::get("/session/list", "listSessions", Group::Accounts, || get(list))
    .summary("Lists your sessions, newest first")
    .description("`current` is true for the session of this request. Use the `id` of a session to end it.")
    .answer(Answer::record::<SessionsAnswer>("The active sessions, without their secrets."));

async fn list(caller: Identified, State(services): State<AppState>, _: Fields) -> JsonResult<SessionsAnswer> {
    let sessions = services.sessions.list(&caller.user, caller.session.as_ref().map(Secret::expose)).await?;
    Ok(Json(SessionsAnswer::new(sessions.into_iter().map(SessionRecord::from).collect())))
}

static END: Endpoint = Endpoint::delete("/session/end", "endSession", Group::Accounts, || delete(end))
    .summary("Ends one of your sessions")
    .description("The cookie of the session stops working immediately.")
    .input(Input::Body(&[Field::required("id", FieldKind::Text, || json!("00112233445566778899aabbccddeeff"))
        .about("The ID of the session, from `/session/list`.")]))
    .answer(DONE)
    .errors(&[404]);

async fn end(Caller(user): Caller, State(services): State<AppState>, fields: Fields) -> JsonResult<Done> {
    services.sessions.end_listed(&user, fields.text("id")?).await?;
    Ok(Json(Done::OK))
}

static PASSWORD: Endpoint = Endpoint::post("/account/password", "changePassword", Group::Accounts, || post(password))
    .summary("Changes your password and ends all other sessions; tokens remain valid")
    .description("If `old` is wrong, strata returns 403 and counts a failed login.")
    .input(Input::Body(&[
        Field::required("old", FieldKind::Text, || json!("a password")).about("The current password."),
        Field::required("new", FieldKind::Text, || json!("another password"))
            .about("The new password, 1 to 1,024 bytes."),
    ]))
    .answer(USER)
    .errors(&[429, 503]);

async fn password(caller: Identified, State(services): State<AppState>, fields: Fields) -> JsonResult<UserAnswer> {
    let old = fields.text("old")?;
    let new = fields.text("new")?;
    let session = caller.session.as_ref().map(Secret::expose);
    services.logins.change_password(caller.client, &caller.user, old, new, session).await?;
    Ok(Json(UserAnswer::from(&caller.user)))
}

fn set_cookie(headers: &mut HeaderMap, value: &str, age: Duration, base: &BaseUrl) {
    let cookie = Cookie::build((SESSION_COOKIE, value))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(base.https)
        .max_age(age);
    // Letters, digits and punctuation are always a valid value.
    if let Ok(value) = HeaderValue::try_from(cookie.to_string()) {
        headers.insert(SET_COOKIE, value);
    }
}

/// A session, without its secret.
#[derive(Serialize, ToSchema)]
struct SessionRecord {
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

impl From<OwnedSession> for SessionRecord {
    fn from(session: OwnedSession) -> Self {
        SessionRecord {
            id: session.id,
            created_at: time(session.created_at),
            last_used_at: time(session.last_used_at),
            current: session.is_current,
        }
    }
}

answers! {
    /// A response that contains your sessions, newest first.
    SessionsAnswer {
        /// The sessions.
        sessions: Vec<SessionRecord>,
    }

    /// A response that contains a user.
    UserAnswer {
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

impl From<&User> for UserAnswer {
    fn from(user: &User) -> Self {
        let email = user.email.clone();
        UserAnswer::new(UserRecord { email, plan: user.plan.name(), created_at: time(user.created_at) })
    }
}
