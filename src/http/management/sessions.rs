//! `/session/…`: logging in and out.

use axum::Json;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use tower_sessions::cookie::time::Duration;
use tower_sessions::cookie::{Cookie, SameSite};

use super::base_url::has_foreign_origin;
use super::caller::{SESSION_COOKIE, session_id};
use super::records::{Done, UserAnswer};
use super::{BaseUrl, CallError, Caller, Query, body};
use crate::http::client_ip;
use crate::http::error::HttpError;
use crate::model::limits;
use crate::service::App;

/// Bytes of a log-in, which anybody may try.
const LOGIN_BYTES: u64 = limits::LOGIN_BODY_BYTES as u64;

/// How long browsers keep the cookie: as long as they keep any. When a session ends is up to the service.
const COOKIE_AGE: Duration = Duration::days(400);

/// `POST /session/login`: `email`, `password`.
pub(super) async fn login(State(app): State<App>, request: Request) -> Result<Response, HttpError> {
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
    let fields = body::read(&app, request, limits.body_bytes.min(LOGIN_BYTES)).await?;

    fields.only(&["email", "password"])?;
    let (email, password) = (fields.text("email")?, fields.text("password")?);
    let logged_in = app.logins().log_in(client, email, password, before.as_deref()).await?;
    let mut response = Json(UserAnswer::from(&logged_in.user)).into_response();
    set_cookie(response.headers_mut(), logged_in.session_id.expose(), COOKIE_AGE, &reached);
    Ok(response)
}

/// `POST /session/logout`. A body is ignored.
pub(super) async fn logout(
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

/// `GET /session/me`.
pub(super) async fn me(Caller(user): Caller, query: Query) -> Result<Json<UserAnswer>, HttpError> {
    query.only(&[])?;
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
