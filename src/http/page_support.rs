//! HTTP functions for the dashboard's pages: the current user, rate limits, sessions, forms, downloads, and errors.

mod file_upload;

pub use file_upload::{FileUploadForm, FormPart, UploadedFile};
use strata_types::invisible_text::format_escapes_as_code_points;
use strata_types::secret::Secret;
use strata_types::user::User;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::IntoResponse;

use super::error::{CallError, HttpError, Result, ServerErrorText};
pub use super::headers::base_url::BaseUrl;
use super::headers::base_url::has_foreign_origin;
use super::headers::client_ip;
use super::layers::access_log::RequestId;
pub use super::management::DiffCall;
pub use super::management::sessions::{LoginCredentials, sign_in};
use super::management::{self, request_body, sessions};
pub use super::read::download_response;
pub use super::read::rate_limiting::admit_request as count;
use strata_service::{BodyReservation, ClientNetwork, Principal, Services};

use super::{display_text, params};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

#[derive(Clone, Debug)]
pub struct CurrentUser {
    pub client: ClientNetwork,
    pub user: Option<User>,
    pub session: Option<Secret>,
}

impl CurrentUser {
    /// Finds a request's user. An expired session is anonymous. `Authorization` is ignored: browsers do not send it.
    pub async fn from_request_head(services: &Services, head: &Parts) -> Result<CurrentUser> {
        let client = client_ip::request_client(head, services);
        let Some(id) = management::session_id_from_cookie(&head.headers) else {
            return Ok(CurrentUser { client, user: None, session: None });
        };
        let user = services.sessions.find_user_by_session(client, &id).await?;
        let session = user.as_ref().map(|_| Secret::from_stored(id));
        Ok(CurrentUser { client, user, session })
    }

    pub fn principal(&self) -> Principal {
        self.user.as_ref().map_or(Principal::Anonymous(self.client), |user| Principal::User(user.id))
    }
}

pub fn check_origin(services: &Services, head: &Parts) -> Result<()> {
    let other_site =
        head.headers.get_all(SEC_FETCH_SITE).iter().any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
    match other_site || has_foreign_origin(head, services.config.server.public_url.as_ref()) {
        true => Err(CallError::ForeignOrigin.into()),
        false => Ok(()),
    }
}

/// Reads the fields of a form in order. For a large form, also returns the memory reservation.
///
/// # Errors
/// Returns 415 if the body is not a form, 400 if it is not UTF-8, and 408, 413, or 503 if it cannot be received.
pub async fn read_form(
    services: &Services,
    principal: Principal,
    headers: &HeaderMap,
    body: Body,
    limit_bytes: usize,
) -> Result<(Vec<(String, String)>, Option<BodyReservation>)> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Err(CallError::FormRequired.into());
    }
    let (bytes, reservation) = request_body::collect_body(services, principal, body, limit_bytes as u64).await?;
    // A lossy conversion to UTF-8 would change the text of a form without an error.
    let is_not_utf8 =
        |pair: &&[u8]| str::from_utf8(pair).map_or(true, |pair| params::find_invalid_utf8(pair).is_some());
    let invalid = bytes.split(|byte| *byte == b'&').find(is_not_utf8);
    if let Some(pair) = invalid {
        let name = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        return Err(CallError::FormNotUtf8 { name: String::from_utf8_lossy(name).into_owned() }.into());
    }
    Ok((form_urlencoded::parse(&bytes).into_owned().collect(), reservation))
}

pub async fn sign_out(services: &Services, head: &Parts, current: &CurrentUser, headers: &mut HeaderMap) -> Result<()> {
    if let Some(id) = &current.session {
        services.sessions.end_session(id.expose()).await?;
    }
    sessions::clear_session_cookie(headers, &BaseUrl::from_request_head(head, services));
    Ok(())
}

/// An error for an HTML page. Its headers do not include the headers that are specific to plain text.
pub struct ErrorPage {
    pub status: StatusCode,
    pub text: String,
    pub headers: HeaderMap,
}

/// Logs an error and renders it for an HTML page. The text of a 5xx error contains the request ID. Invisible characters
/// are shown as code points.
pub fn log_and_render_error(error: HttpError, head: &Parts) -> ErrorPage {
    let (_, text) = error.to_public();
    let (parts, _) = error.into_response().into_parts();
    let mut headers = parts.headers;
    headers.remove(CONTENT_TYPE);
    headers.remove(CACHE_CONTROL);
    let failed = parts.extensions.get::<ServerErrorText>().is_some();
    let text = match head.extensions.get::<RequestId>() {
        Some(id) if failed => id.append_to(&text),
        _ => text,
    };
    ErrorPage { status: parts.status, text: format_escapes_as_code_points(&text).into_owned(), headers }
}

/// Returns 400 for a query string that is not UTF-8, as API endpoints do.
pub fn check_query_utf8(head: &Parts) -> Result<()> {
    match params::find_invalid_utf8(head.uri.query().unwrap_or_default()) {
        None => Ok(()),
        Some(raw) => Err(CallError::QueryNotUtf8 { raw: raw.to_owned() }.into()),
    }
}

/// Quotes a text from a request on one line. Invisible characters are shown as code points.
pub fn quote_for_page(text: &str) -> String {
    format_escapes_as_code_points(&display_text::quote_for_display(text)).into_owned()
}
