//! The HTTP functions that pages of the dashboard use: the visitor, rate limits, sessions, forms, downloads, and
//! errors.

mod upload;

use strata_types::secret::Secret;
use strata_types::text::with_names;
use strata_types::user::User;
pub use upload::{File, Part, Upload};

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;

use super::error::{CallError, HttpError, ServerFailure};
pub use super::headers::base_url::BaseUrl;
use super::headers::base_url::has_foreign_origin;
use super::headers::client_ip;
use super::layers::access_log::RequestId;
pub use super::management::DiffCall;
pub use super::management::sessions::sign_in;
use super::management::{self, body, sessions};
pub use super::read::download;
pub use super::read::rate::admit as count;
use strata_service::{BodyRoom, Client, Principal, Services};

use super::{params, text};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The user of the session cookie, or an anonymous visitor.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub client: Client,
    pub user: Option<User>,
    pub session: Option<Secret>,
}

impl Visitor {
    /// The visitor of a request. An expired session is anonymous. `Authorization` is ignored, because browsers do not
    /// send it.
    pub async fn of(services: &Services, head: &Parts) -> Result<Visitor, HttpError> {
        let client = client_ip::client(head, services);
        let Some(id) = management::session_id(&head.headers) else {
            return Ok(Visitor { client, user: None, session: None });
        };
        let user = services.sessions.user_of_session(client, &id).await?;
        let session = user.as_ref().map(|_| Secret::from_stored(id));
        Ok(Visitor { client, user, session })
    }

    pub fn holder(&self) -> Principal {
        self.user.as_ref().map_or(Principal::Anonymous(self.client), |user| Principal::User(user.id))
    }
}

/// Rejects a form from a page of another site.
pub fn check_origin(services: &Services, head: &Parts) -> Result<(), HttpError> {
    let other_site =
        head.headers.get_all(SEC_FETCH_SITE).iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    match other_site || has_foreign_origin(head, services.config.server.public_url.as_ref()) {
        true => Err(CallError::ForeignOrigin.into()),
        false => Ok(()),
    }
}

/// The fields of a form in order, and the reserved memory if the form is large.
///
/// # Errors
/// 415 for another body, 408, 413, or 503 if it cannot be received, and 400 if it is not UTF-8.
pub async fn form(
    services: &Services,
    holder: Principal,
    headers: &HeaderMap,
    body: Body,
    limit_bytes: usize,
) -> Result<(Vec<(String, String)>, Option<BodyRoom>), HttpError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(CallError::NotForm.into());
    }
    let (bytes, room) = body::collect(services, holder, body, limit_bytes as u64).await?;
    // A lossy conversion would save another text than the one that was sent.
    let is_not_utf8 = |pair: &&[u8]| str::from_utf8(pair).map_or(true, |pair| params::not_utf8(pair).is_some());
    let wrong = bytes.split(|byte| *byte == b'&').find(is_not_utf8);
    if let Some(pair) = wrong {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        return Err(CallError::FormNotUtf8 { name: String::from_utf8_lossy(name).into_owned() }.into());
    }
    Ok((form_urlencoded::parse(&bytes).into_owned().collect(), room))
}

/// Ends the session of the visitor, and clears its cookie.
pub async fn sign_out(
    services: &Services,
    head: &Parts,
    visitor: &Visitor,
    headers: &mut HeaderMap,
) -> Result<(), HttpError> {
    if let Some(id) = &visitor.session {
        services.sessions.end(id.expose()).await?;
    }
    sessions::forget(headers, &BaseUrl::of(head, services));
    Ok(())
}

/// An error as a page shows it, with its headers except for those of plain text.
pub struct Told {
    pub status: StatusCode,
    pub text: String,
    pub headers: HeaderMap,
}

/// Logs an error and renders it for a page, with the ID of the request for a 5xx, and with names for invisible
/// characters.
pub fn told(error: HttpError, head: &Parts) -> Told {
    let (_, text) = error.to_public();
    let (parts, _) = error.into_response().into_parts();
    let mut headers = parts.headers;
    headers.remove(CONTENT_TYPE);
    headers.remove(CACHE_CONTROL);
    let failed = parts.extensions.get::<ServerFailure>().is_some();
    let text = match head.extensions.get::<RequestId>() {
        Some(id) if failed => id.named_in(&text),
        _ => text,
    };
    Told { status: parts.status, text: with_names(&text).into_owned(), headers }
}

/// Rejects a query string that is not UTF-8, as operations do.
pub fn check_utf8(head: &Parts) -> Result<(), HttpError> {
    match params::not_utf8(head.uri.query().unwrap_or_default()) {
        None => Ok(()),
        Some(raw) => Err(CallError::NotUtf8 { raw: raw.to_owned() }.into()),
    }
}

/// A text from a request in quotation marks and on one line, with names for invisible characters.
pub fn quoted(text: &str) -> String {
    with_names(&text::quoted(text)).into_owned()
}
