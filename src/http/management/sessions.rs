//! `/session/…`: logging in and out.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::on;
use serde::Serialize;
use serde_json::json;
use tower_sessions::cookie::time::Duration;
use tower_sessions::cookie::{Cookie, SameSite};
use utoipa::ToSchema;
use utoipa::openapi::HttpMethod;

use super::base_url::has_foreign_origin;
use super::caller::{SESSION_COOKIE, session_id};
use super::records::{Done, time};
use super::{BaseUrl, Caller, QueryString, body};
use crate::http::endpoint::{Answer, Callers, Endpoint, Field, FieldKind, Group, Input};
use crate::http::error::{CallError, HttpError};
use crate::http::headers::client_ip;
use crate::model::limits;
use crate::model::user::User;
use crate::service::App;

/// Bytes of a log-in, which anybody may try.
const LOGIN_BYTES: u64 = limits::LOGIN_BODY_BYTES as u64;

/// What the log-in and `me` answer.
const USER: Answer = Answer::record::<UserAnswer>("The user, with the plan.");

/// The endpoints of this module.
pub(super) static ENDPOINTS: &[&Endpoint] = &[&LOGIN, &LOGOUT, &ME];

static LOGIN: Endpoint = Endpoint {
    path: "/session/login",
    operations: &[(HttpMethod::Post, "logIn")],
    group: Group::Accounts,
    summary: "Begins a session, whose id is in the cookie `strata_session`",
    callers: Callers::Anybody,
    input: Input::Body(&[
        Field::required("email", FieldKind::Text, "The e-mail address.", || json!("ada@example.org")),
        Field::required("password", FieldKind::Text, "The password.", || json!("a password")),
    ]),
    answer: Answer { headers: &[&["Set-Cookie"]], ..USER },
    errors: &[401, 403, 429, 503],
    handler: |method| on(method, login),
};

async fn login(State(app): State<App>, request: Request) -> Result<Response, HttpError> {
    let (mut head, body) = request.into_parts();
    // A page that logs its visitor in as somebody else would see what the visitor does.
    if has_foreign_origin(&head, app.config().server.public_url.as_ref()) {
        return Err(CallError::ForeignOrigin.into());
    }
    let reached = BaseUrl::from_request_parts(&mut head, &app).await?;
    let client = client_ip::of(&head, &app);
    let before = session_id(&head.headers);
    let limits = &app.config().limits;
    let request = Request::from_parts(head, body);
    let body = body::read(&app, request, limits.body_bytes.min(LOGIN_BYTES)).await?;

    let fields = body.of(&LOGIN)?;
    let (email, password) = (fields.text("email")?, fields.text("password")?);
    let logged_in = app.logins().log_in(client, email, password, before.as_deref()).await?;
    let mut response = Json(UserAnswer::from(&logged_in.user)).into_response();
    // No session lasts longer. Browsers keep no cookie for more than 400 days.
    let longest_s = i64::try_from(app.config().sessions.absolute_s).unwrap_or(i64::MAX);
    set_cookie(response.headers_mut(), logged_in.session_id.expose(), Duration::seconds(longest_s), &reached);
    Ok(response)
}

static LOGOUT: Endpoint = Endpoint {
    path: "/session/logout",
    operations: &[(HttpMethod::Post, "logOut")],
    group: Group::Accounts,
    summary: "Ends the session",
    callers: Callers::Users,
    input: Input::Nothing,
    answer: Answer { headers: &[&["Set-Cookie"]], ..Answer::record::<Done>("It is done.") },
    errors: &[],
    handler: |method| on(method, logout),
};

/// A body is ignored.
async fn logout(
    _: Caller,
    reached: BaseUrl,
    State(app): State<App>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    if let Some(id) = session_id(&headers) {
        app.sessions().end(&id).await?;
    }
    let mut response = Json(Done::OK).into_response();
    set_cookie(response.headers_mut(), "", Duration::ZERO, &reached);
    Ok(response)
}

static ME: Endpoint = Endpoint {
    path: "/session/me",
    operations: &[(HttpMethod::Get, "getUser")],
    group: Group::Accounts,
    summary: "The caller",
    callers: Callers::Users,
    input: Input::Nothing,
    answer: USER,
    errors: &[],
    handler: |method| on(method, me),
};

async fn me(Caller(user): Caller, query: QueryString) -> Result<Json<UserAnswer>, HttpError> {
    query.of(&ME)?;
    Ok(Json(UserAnswer::from(&user)))
}

fn set_cookie(headers: &mut HeaderMap, value: &str, age: Duration, reached: &BaseUrl) {
    let cookie = Cookie::build((SESSION_COOKIE, value))
        .path("/")
        .http_only(true)
        .same_site(SameSite::Lax)
        .secure(reached.is_https())
        .max_age(age);
    // Letters, digits and punctuation are always a valid value.
    if let Ok(value) = HeaderValue::try_from(cookie.to_string()) {
        headers.insert(SET_COOKIE, value);
    }
}

/// A user.
#[derive(Serialize, ToSchema)]
struct UserRecord {
    /// The e-mail address as it was given.
    email: String,
    /// `free`, `pro` or `scale`.
    plan: &'static str,
    /// When the user was added.
    created_at: String,
}

impl From<&User> for UserRecord {
    fn from(user: &User) -> Self {
        UserRecord { email: user.email.clone(), plan: user.plan.name(), created_at: time(user.created_at) }
    }
}

/// The envelope of a user.
#[derive(Serialize, ToSchema)]
struct UserAnswer {
    /// Always true.
    ok: bool,
    /// The user.
    user: UserRecord,
}

impl From<&User> for UserAnswer {
    fn from(user: &User) -> Self {
        UserAnswer { ok: true, user: user.into() }
    }
}
