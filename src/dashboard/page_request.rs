//! The request for a page and its response: layout, headers, compression, and error pages.

use askama::Template;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{Html, IntoResponse, Redirect, Response};
use futures::future::BoxFuture;
use strata_encode::{ContentCoding, MIN_COMPRESSED_BODY_BYTES, compress_body};
use strata_http::AppState;
use strata_http::error::{CallError, HttpError};
use strata_http::headers::content_encoding;
use strata_http::large_responses;
use strata_http::page_support::{self, BaseUrl, CurrentUser, quote_for_page};
use strata_runtime::blocking::run_blocking;
use strata_runtime::priority::ThreadPriority;
use strata_service::{BodyReservation, ManageError, ProfileRequest, UsageMeter};
use strata_types::ids::DatasetId;
use strata_types::limits::MAX_SMALL_FORM_BYTES;
use strata_types::user::User;
use strata_types::version::{VersionSelector, VersionVariant};

use super::query_params::QueryParams;
use super::safe_text::{InlineCodeText, flag_invisible_chars};
use super::urls::DatasetUrls;
use super::{assets, form_tokens};

const CSP_HEADER_VALUE: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub(super) const SIGN_IN_PATH: &str = "/ui/sign-in";

pub(super) type PageResult = Result<PageResponse, HttpError>;

pub(super) enum PageResponse {
    Html(StatusCode, String),
    SeeOther(String),
    Raw(Response),
}

impl PageResponse {
    pub(super) fn redirect_with_notice(action: &str, page: &str) -> PageResponse {
        PageResponse::SeeOther(QueryParams::default().with_added("done", action).to_url(page))
    }
}

pub(super) struct PageLayout {
    pub(super) title: String,
    pub(super) email: Option<String>,
    /// The token that forms on the page contain against cross-site request forgery; empty without a session.
    pub(super) token: String,
    pub(super) sign_in: String,
    pub(super) ignored_parameters: Option<InlineCodeText>,
}

pub(super) struct PageRequest {
    pub(super) services: AppState,
    pub(super) head: Parts,
    pub(super) current_user: CurrentUser,
    pub(super) response_headers: HeaderMap,
    pub(super) usage_meter: Option<UsageMeter>,
    /// The user's text in a rejected form. Error pages repeat it, so that the user does not lose it.
    pub(super) typed_text: Option<String>,
    /// The URLs of the dataset, once it is known to be visible and to have a version. Error pages link to the dataset.
    pub(super) dataset_urls: Option<DatasetUrls>,
    ignored_parameters: Option<String>,
}

const MAX_NAMED_PARAMETERS: usize = 5;

#[derive(Template)]
#[template(path = "error.html")]
struct DashboardErrorPage<'a> {
    layout: PageLayout,
    status: u16,
    heading: &'a str,
    text: &'a str,
    lists_main_pages: bool,
    typed_text: Option<&'a str>,
    versions: Option<String>,
    form_page_url: Option<&'a str>,
}

pub(super) struct FormRequest {
    pub(super) request: PageRequest,
    pub(super) body: Body,
}

impl FromRequest<AppState> for FormRequest {
    type Rejection = Response;

    async fn from_request(request: Request, services: &AppState) -> Result<FormRequest, Response> {
        let (head, body) = request.into_parts();
        let req = PageRequest::load(services.clone(), head).await.map_err(|response| *response)?;
        Ok(FormRequest { request: req, body })
    }
}

impl FromRequest<AppState> for PageRequest {
    type Rejection = Response;

    async fn from_request(request: Request, services: &AppState) -> Result<PageRequest, Response> {
        Ok(FormRequest::from_request(request, services).await?.request)
    }
}

impl FormRequest {
    pub(super) async fn respond(self, act: impl AsyncFnOnce(&mut PageRequest, Body) -> PageResult) -> Response {
        let FormRequest { request: mut req, body } = self;
        let outcome = Box::pin(act(&mut req, body)).await;
        req.finish_response(outcome).await
    }
}

impl PageRequest {
    /// Loads the session of a page request. The error response is boxed because it is large and rare.
    pub(super) async fn load(services: AppState, head: Parts) -> Result<PageRequest, Box<Response>> {
        match CurrentUser::from_request_head(&services, &head).await {
            Ok(current_user) => Ok(PageRequest::new(services, head, current_user)),
            Err(error) => {
                let mut response = error.into_response();
                set_security_headers(response.headers_mut());
                Err(Box::new(response))
            }
        }
    }

    fn new(services: AppState, head: Parts, current_user: CurrentUser) -> PageRequest {
        PageRequest {
            services,
            head,
            current_user,
            response_headers: HeaderMap::new(),
            usage_meter: None,
            typed_text: None,
            dataset_urls: None,
            ignored_parameters: None,
        }
    }

    pub(super) fn require_user(&self) -> Result<User, HttpError> {
        self.current_user.user.clone().ok_or_else(|| CallError::Unauthenticated.into())
    }

    pub(super) fn absolute_url(&self, path: &str) -> String {
        BaseUrl::from_request_head(&self.head, &self.services).absolute_url(path)
    }

    pub(super) fn profile_request(
        &self,
        id: DatasetId,
        version: VersionSelector,
        variant: VersionVariant,
    ) -> ProfileRequest<'_> {
        let CurrentUser { user, client, .. } = &self.current_user;
        ProfileRequest { caller: user.as_ref(), client: *client, dataset: id, version, variant }
    }

    /// Parses the query string; 400 for invalid UTF-8 and for a repeated parameter. The page lists unknown parameters.
    pub(super) fn parse_query(&mut self, names: &[&str]) -> Result<QueryParams, HttpError> {
        page_support::check_query_utf8(&self.head)?;
        let query = QueryParams::parse(self.head.uri.query());
        self.note_ignored_parameters(&query, names);
        names.iter().try_for_each(|name| query.single(name).map(|_| ()))?;
        Ok(query)
    }

    pub(super) fn note_ignored_parameters(&mut self, query: &QueryParams, names: &[&str]) {
        let others = query.names_except(names);
        self.ignored_parameters = (!others.is_empty()).then(|| {
            let named: Vec<String> =
                others.iter().take(MAX_NAMED_PARAMETERS).map(|name| quote_for_page(name)).collect();
            let more = if others.len() > MAX_NAMED_PARAMETERS { " and more" } else { "" };
            let valid = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("This page ignores unknown parameters: {}{more}; valid: {valid}.", named.join(", "))
        });
    }

    pub(super) fn log_and_render(&mut self, error: HttpError) -> (StatusCode, String) {
        let body = page_support::log_and_render_error(error, &self.head);
        self.response_headers.extend(body.headers);
        (body.status, body.text)
    }

    pub(super) fn layout(&self, title: impl Into<String>) -> PageLayout {
        let path = match self.head.method {
            Method::GET | Method::HEAD => self.head.uri.path_and_query().map_or("/", |path| path.as_str()),
            _ => page_of_form_action(self.head.uri.path()),
        };
        let has_next = !path.starts_with(SIGN_IN_PATH) && path.len() <= MAX_NEXT_PATH_BYTES;
        let next = if has_next { QueryParams::default().with_added("next", path) } else { QueryParams::default() };
        // Invisible characters are replaced, because a page title cannot contain HTML elements that mark them.
        let title: String = title.into();
        let title = flag_invisible_chars(&title)
            .map(|(character, is_named)| if is_named { char::REPLACEMENT_CHARACTER } else { character });
        let session = self.current_user.session.as_ref();
        PageLayout {
            title: title.collect(),
            email: self.current_user.user.as_ref().map(|user| user.email.clone()),
            token: session.map(|id| form_tokens::create_form_token(id, rand::random())).unwrap_or_default(),
            sign_in: next.to_url(SIGN_IN_PATH),
            ignored_parameters: self.ignored_parameters.as_deref().map(InlineCodeText::new),
        }
    }

    /// Returns the fields of a form and the memory reservation of a large one; 403 for a form of another origin.
    pub(super) async fn read_form_fields(
        &self,
        body: Body,
        limit_bytes: usize,
    ) -> Result<(Vec<(String, String)>, Option<BodyReservation>), HttpError> {
        page_support::check_origin(&self.services, &self.head)?;
        page_support::read_form(&self.services, self.current_user.principal(), &self.head.headers, body, limit_bytes)
            .await
    }

    /// Returns 403 unless the form contains a token of this session.
    pub(super) fn check_form_token(&self, fields: &[(String, String)]) -> Result<(), HttpError> {
        match fields.iter().find(|(name, _)| name == form_tokens::TOKEN_FIELD) {
            Some((_, token)) if self.is_valid_form_token(token) => Ok(()),
            _ => Err(CallError::InvalidFormToken.into()),
        }
    }

    pub(super) fn is_valid_form_token(&self, token: &str) -> bool {
        self.current_user.session.as_ref().is_some_and(|session| form_tokens::is_valid_form_token(session, token))
    }

    pub(super) async fn respond(mut self, page: impl AsyncFnOnce(&mut PageRequest) -> PageResult) -> Response {
        let outcome = Box::pin(page(&mut self)).await;
        self.finish_response(outcome).await
    }

    /// Like [`PageRequest::respond`], but on a worker thread and within the principal's memory quota.
    pub(super) async fn respond_on_worker(
        mut self,
        page: impl for<'a> FnOnce(&'a mut PageRequest) -> BoxFuture<'a, PageResult> + Send + 'static,
    ) -> Response {
        let reservation =
            match large_responses::reserve_response_memory(&self.services, self.current_user.principal()).await {
                Ok(reservation) => reservation,
                Err(error) => return self.finish_response(Err(error)).await,
            };
        let services = self.services.clone();
        let head = self.head.clone();
        let current_user = self.current_user.clone();
        let work = async move {
            let outcome = page(&mut self).await;
            Ok(self.finish_response(outcome).await)
        };
        match large_responses::build_response(reservation, work).await {
            Ok(response) => response,
            Err(error) => PageRequest::new(services, head, current_user).finish_response(Err(error)).await,
        }
    }

    pub(super) async fn finish_response(self, outcome: PageResult) -> Response {
        let (reply, more) = match outcome {
            Ok(reply) => (reply, HeaderMap::new()),
            Err(error) => self.render_error_page(error),
        };
        let mut response = match reply {
            PageResponse::Html(status, html) => (status, compress_html(&self.head.headers, html).await).into_response(),
            PageResponse::SeeOther(path) => Redirect::to(&path).into_response(),
            PageResponse::Raw(response) => response,
        };
        let status = response.status();
        let headers = response.headers_mut();
        headers.extend(self.response_headers);
        headers.extend(more);
        set_security_headers(headers);
        let is_read = matches!(self.head.method, Method::GET | Method::HEAD);
        let cache_control = match self.current_user.user.is_some() || !status.is_success() || !is_read {
            true => "private, no-store",
            false => "private, no-cache",
        };
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static(cache_control));
        headers.entry(VARY).or_insert(HeaderValue::from_static("Accept-Encoding, Cookie"));
        if let Some(usage_meter) = self.usage_meter {
            response.extensions_mut().insert(usage_meter);
        }
        response
    }

    fn render_error_page(&self, error: HttpError) -> (PageResponse, HeaderMap) {
        let lists_main_pages = matches!(error, HttpError::PathNotFound | HttpError::PathNotFoundWithHint { .. });
        // The messages of several errors name API operations, so error pages have their own texts.
        let page_text = match error {
            HttpError::PathNotFound => Some("This page does not exist."),
            HttpError::MethodNotAllowed { .. } => {
                Some("There is no page at this address, which accepts only form submissions and API requests.")
            }
            HttpError::Call(CallError::Unauthenticated) => Some(match is_owner_page(self.head.uri.path()) {
                true => "To see this page, sign in as the dataset’s owner.",
                false => "To see this page, sign in.",
            }),
            HttpError::Manage(ManageError::DatasetNotFound) => {
                Some("You do not own a dataset at this address. If you renamed your dataset, its address has changed.")
            }
            _ => None,
        };
        let page_support::ErrorPage { status, text, headers } = page_support::log_and_render_error(error, &self.head);
        let text = page_text.map_or(text, str::to_owned);
        let heading = match status.as_u16() {
            400 if self.head.method == Method::POST => "This form is not valid",
            400 | 414 => "This address is not valid",
            401 => "Sign in first",
            403 => "This is not allowed",
            404 => "Not found",
            409 => "This is not possible right now",
            410 => "This dataset is frozen",
            429 => "Too many requests",
            503 => "The service is busy",
            _ => "Something went wrong",
        };
        let dataset = self.dataset_urls.as_ref().filter(|_| matches!(status.as_u16(), 400 | 404 | 409 | 413));
        let is_refused = self.head.method == Method::POST && matches!(status.as_u16(), 403 | 409 | 413);
        let page = DashboardErrorPage {
            layout: self.layout(format!("Error: {heading}")),
            status: status.as_u16(),
            heading,
            text: &text,
            lists_main_pages,
            typed_text: self.typed_text.as_deref().filter(|typed_text| !typed_text.is_empty()),
            versions: dataset.map(|urls| urls.page_url("versions")),
            form_page_url: is_refused.then(|| page_of_form_action(self.head.uri.path())).filter(|page| *page != "/"),
        };
        (render(status, &page).unwrap_or(PageResponse::Html(status, String::new())), headers)
    }
}

/// Returns whether only the owner of the dataset can open the page. Every user can open the clone page.
fn is_owner_page(path: &str) -> bool {
    DatasetUrls::parse(path).is_ok() && path.split('/').nth(4) != Some("clone")
}

/// Returns the path of the page with the form that browsers submit to `path`.
fn page_of_form_action(path: &str) -> &str {
    match path.rsplit_once('/') {
        _ if path == "/ui/new" || path.ends_with("/clone") => path,
        Some((manage, _)) if manage.ends_with("/manage") => manage.strip_suffix("/manage").unwrap_or(manage),
        Some((page, _)) if page.starts_with("/ui/") && page != "/ui" => page,
        _ => "/",
    }
}

const MAX_NEXT_PATH_BYTES: usize = MAX_SMALL_FORM_BYTES / 16;

pub(super) fn render(status: StatusCode, page: &impl Template) -> PageResult {
    let html = page.render().map_err(|error| HttpError::Panic(format!("failed to render a page: {error}")))?;
    Ok(PageResponse::Html(status, html))
}

/// Larger pages are compressed on a worker thread, because connection threads must not block.
const MAX_INLINE_COMPRESSION_BYTES: usize = 128 << 10;

async fn compress_html(headers: &HeaderMap, html: String) -> Response {
    let coding = match html.len() < MIN_COMPRESSED_BODY_BYTES {
        true => ContentCoding::Identity,
        false => content_encoding::negotiate(headers),
    };
    let plain = Bytes::from(html);
    let html = plain.clone();
    let compressed = move || compress_body(coding, &html).ok();
    let compressed_body = match coding {
        ContentCoding::Identity => None,
        _ if plain.len() <= MAX_INLINE_COMPRESSION_BYTES || ThreadPriority::current() != ThreadPriority::Short => {
            compressed()
        }
        _ => run_blocking(compressed).await.ok().flatten(),
    };
    let encoding = compressed_body.as_ref().map(|_| (CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
    let mut response = Html(compressed_body.unwrap_or(plain)).into_response();
    response.headers_mut().extend(encoding);
    response
}

/// Sets the security headers. With the referrer policy `no-referrer`, browsers would send forms with `Origin: null`.
pub(super) fn set_security_headers(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP_HEADER_VALUE));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

pub(super) async fn serve_asset(State(services): State<AppState>, head: Parts) -> Response {
    let Some(asset) = assets::find_asset(head.uri.path()) else {
        return match PageRequest::load(services, head).await {
            Ok(req) => req.finish_response(Err(HttpError::PathNotFound)).await,
            Err(response) => *response,
        };
    };
    let mut response = asset.respond(&head.headers);
    set_security_headers(response.headers_mut());
    response
}

/// Responds to browsers for an unknown path or method. A GET request for the path of a form redirects to its page,
/// because browsers stay on the path of a form whose response was a page.
pub(super) async fn respond_unknown_route(services: AppState, head: Parts, error: HttpError) -> Response {
    match PageRequest::load(services, head).await {
        Ok(mut req) => {
            req.response_headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding, Cookie"));
            let path = req.head.uri.path();
            let form = path.rsplit_once('/').filter(|_| path.starts_with("/ui/"));
            let outcome = match (&error, form) {
                (HttpError::MethodNotAllowed { .. }, Some((page, _))) => Ok(PageResponse::SeeOther(page.to_owned())),
                _ => Err(error),
            };
            req.finish_response(outcome).await
        }
        Err(response) => *response,
    }
}
