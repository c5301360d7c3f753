//! A request for a page, and its response: the layout of all pages, their headers, and errors as pages.

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
use strata_encode::{ContentCoding, LEAST_COMPRESSED_BYTES, compress};
use strata_http::AppState;
use strata_http::error::{CallError, HttpError};
use strata_http::headers::content_encoding;
use strata_http::large_responses;
use strata_http::visit::{self, Visitor, quoted};
use strata_runtime::blocking::blocking;
use strata_runtime::priority::Priority;
use strata_service::{BodyRoom, ManageError, ProfileRequest, UsageMeter};
use strata_types::ids::DatasetId;
use strata_types::limits::FORM_BYTES;
use strata_types::user::User;
use strata_types::version::VersionSelector;

use super::query::Query;
use super::safe_text::{Sentence, with_named};
use super::urls::DatasetPlace;
use super::{assets, form_tokens};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub(super) const SIGN_IN: &str = "/ui/sign-in";

pub(super) type PageResult = Result<Reply, HttpError>;

pub(super) enum Reply {
    Page(StatusCode, String),
    SeeOther(String),
    Other(Response),
}

impl Reply {
    /// Redirects to a page whose parameter `done` names what was done.
    pub(super) fn done(what: &str, page: &str) -> Reply {
        Reply::SeeOther(Query::default().and("done", what).at(page))
    }
}

/// The values of `layout.html`.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) email: Option<String>,
    /// The token of forms; empty without a session.
    pub(super) token: String,
    pub(super) sign_in: String,
    /// Names the parameters of the address that the page does not have.
    pub(super) ignored: Option<Sentence>,
}

pub(super) struct Visit {
    pub(super) services: AppState,
    pub(super) head: Parts,
    pub(super) visitor: Visitor,
    pub(super) headers: HeaderMap,
    pub(super) meter: Option<UsageMeter>,
    /// The text of the form that was sent. An error page shows it, so that it is not lost.
    pub(super) typed: Option<String>,
    /// The dataset of the page, once it is known to be visible and to have a version. An error page links to it.
    pub(super) dataset: Option<DatasetPlace>,
    ignored: Option<String>,
}

/// Unknown parameters that a page names.
const NAMED: usize = 5;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    shell: Shell,
    status: u16,
    heading: &'a str,
    text: &'a str,
    tells_what_there_is: bool,
    typed: Option<&'a str>,
    versions: Option<String>,
    /// The page of the form that was sent, if it can be sent again from there.
    again: Option<&'a str>,
}

pub(super) struct Posted {
    pub(super) visit: Visit,
    pub(super) body: Body,
}

impl FromRequest<AppState> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, services: &AppState) -> Result<Posted, Response> {
        let (head, body) = request.into_parts();
        let visit = Visit::begin(services.clone(), head).await.map_err(|response| *response)?;
        Ok(Posted { visit, body })
    }
}

impl FromRequest<AppState> for Visit {
    type Rejection = Response;

    async fn from_request(request: Request, services: &AppState) -> Result<Visit, Response> {
        Ok(Posted::from_request(request, services).await?.visit)
    }
}

impl Posted {
    pub(super) async fn respond(self, act: impl AsyncFnOnce(&mut Visit, Body) -> PageResult) -> Response {
        let Posted { mut visit, body } = self;
        let outcome = Box::pin(act(&mut visit, body)).await;
        visit.answer(outcome).await
    }
}

impl Visit {
    /// Looks up the session. The response to a failure is boxed because it is large and rare.
    pub(super) async fn begin(services: AppState, head: Parts) -> Result<Visit, Box<Response>> {
        match Visitor::of(&services, &head).await {
            Ok(visitor) => Ok(Visit::new(services, head, visitor)),
            Err(error) => {
                let mut response = error.into_response();
                guard(response.headers_mut());
                Err(Box::new(response))
            }
        }
    }

    fn new(services: AppState, head: Parts, visitor: Visitor) -> Visit {
        let headers = HeaderMap::new();
        Visit { services, head, visitor, headers, meter: None, typed: None, dataset: None, ignored: None }
    }

    pub(super) fn user(&self) -> Result<User, HttpError> {
        self.visitor.user.clone().ok_or_else(|| CallError::Unauthenticated.into())
    }

    pub(super) fn profile(&self, dataset: DatasetId, version: VersionSelector, alt: bool) -> ProfileRequest<'_> {
        let Visitor { user, client, .. } = &self.visitor;
        ProfileRequest { caller: user.as_ref(), client: *client, dataset, version, alt }
    }

    /// The query string of a page that has these parameters. As at the read endpoint, others are ignored, and named.
    ///
    /// # Errors
    /// 400 for a query string that is not UTF-8, and for a parameter that occurs twice.
    pub(super) fn query(&mut self, names: &[&str]) -> Result<Query, HttpError> {
        visit::check_utf8(&self.head)?;
        let query = Query::parse(self.head.uri.query());
        self.ignore_others(&query, names);
        names.iter().try_for_each(|name| query.once(name).map(|_| ()))?;
        Ok(query)
    }

    pub(super) fn ignore_others(&mut self, query: &Query, names: &[&str]) {
        let others = query.others(names);
        self.ignored = (!others.is_empty()).then(|| {
            let named: Vec<String> = others.iter().take(NAMED).map(|name| quoted(name)).collect();
            let more = if others.len() > NAMED { " and more" } else { "" };
            let valid = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("This page ignores unknown parameters: {}{more}; valid: {valid}.", named.join(", "))
        });
    }

    /// The status and the text of an error that a page shows next to its contents.
    pub(super) fn tell(&mut self, error: HttpError) -> (StatusCode, String) {
        let told = visit::told(error, &self.head);
        self.headers.extend(told.headers);
        (told.status, told.text)
    }

    pub(super) fn shell(&self, title: impl Into<String>) -> Shell {
        let path = match self.head.method {
            Method::GET | Method::HEAD => self.head.uri.path_and_query().map_or("/", |path| path.as_str()),
            _ => page_of_form(self.head.uri.path()),
        };
        let has_next = !path.starts_with(SIGN_IN) && path.len() <= NEXT_BYTES;
        let next = if has_next { Query::default().and("next", path) } else { Query::default() };
        // A window title has no elements that could name invisible characters.
        let title: String = title.into();
        let title = with_named(&title).map(|(one, is_named)| if is_named { char::REPLACEMENT_CHARACTER } else { one });
        Shell {
            title: title.collect(),
            email: self.visitor.user.as_ref().map(|user| user.email.clone()),
            token: self.visitor.session.as_ref().map(|id| form_tokens::token(id, rand::random())).unwrap_or_default(),
            sign_in: next.at(SIGN_IN),
            ignored: self.ignored.as_deref().map(Sentence::new),
        }
    }

    /// The fields of a form of this site, and the memory that is reserved for a large one; 403 for a form of another
    /// site.
    pub(super) async fn fields_within(
        &self,
        body: Body,
        limit_bytes: usize,
    ) -> Result<(Vec<(String, String)>, Option<BodyRoom>), HttpError> {
        visit::check_origin(&self.services, &self.head)?;
        visit::form(&self.services, self.visitor.holder(), &self.head.headers, body, limit_bytes).await
    }

    /// Checks that a form is from a page of this session; 403 for any other.
    pub(super) fn check_token(&self, fields: &[(String, String)]) -> Result<(), HttpError> {
        match fields.iter().find(|(name, _)| name == form_tokens::TOKEN) {
            Some((_, token)) if self.is_token(token) => Ok(()),
            _ => Err(CallError::ForgedForm.into()),
        }
    }

    pub(super) fn is_token(&self, token: &str) -> bool {
        self.visitor.session.as_ref().is_some_and(|session| form_tokens::is_token(session, token))
    }

    pub(super) async fn respond(mut self, page: impl AsyncFnOnce(&mut Visit) -> PageResult) -> Response {
        let outcome = Box::pin(page(&mut self)).await;
        self.answer(outcome).await
    }

    /// [`Visit::respond`] for a page that can be large or slow: on a separate thread and within the visitor's share of
    /// memory.
    pub(super) async fn build(
        mut self,
        page: impl for<'a> FnOnce(&'a mut Visit) -> BoxFuture<'a, PageResult> + Send + 'static,
    ) -> Response {
        let reservation = match large_responses::reserve(&self.services, self.visitor.holder()).await {
            Ok(reservation) => reservation,
            Err(error) => return self.answer(Err(error)).await,
        };
        let services = self.services.clone();
        let head = self.head.clone();
        let visitor = self.visitor.clone();
        let work = async move {
            let outcome = page(&mut self).await;
            Ok(self.answer(outcome).await)
        };
        match large_responses::build(reservation, work).await {
            Ok(response) => response,
            Err(error) => Visit::new(services, head, visitor).answer(Err(error)).await,
        }
    }

    pub(super) async fn answer(self, outcome: PageResult) -> Response {
        let (reply, more) = match outcome {
            Ok(reply) => (reply, HeaderMap::new()),
            Err(error) => self.error_page(error),
        };
        let signed_in = self.visitor.user.is_some();
        let mut response = match reply {
            Reply::Page(status, html) => (status, coded(&self.head.headers, html).await).into_response(),
            Reply::SeeOther(path) => Redirect::to(&path).into_response(),
            Reply::Other(response) => response,
        };
        let status = response.status();
        let headers = response.headers_mut();
        headers.extend(self.headers);
        headers.extend(more);
        guard(headers);
        let is_read = matches!(self.head.method, Method::GET | Method::HEAD);
        let kept = match signed_in || !status.is_success() || !is_read {
            true => "private, no-store",
            false => "private, no-cache",
        };
        headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static(kept));
        headers.entry(VARY).or_insert(HeaderValue::from_static("Accept-Encoding, Cookie"));
        if let Some(meter) = self.meter {
            response.extensions_mut().insert(meter);
        }
        response
    }

    fn error_page(&self, error: HttpError) -> (Reply, HeaderMap) {
        let tells_what_there_is = matches!(error, HttpError::NoSuchPath | HttpError::MisspeltPath { .. });
        // The texts of these errors name operations.
        let own = match error {
            HttpError::NoSuchPath => Some("This page does not exist."),
            HttpError::MethodNotAllowed { .. } => {
                Some("There is no page at this address, which accepts only form submissions and API requests.")
            }
            HttpError::Call(CallError::Unauthenticated) => Some(match is_of_owner(self.head.uri.path()) {
                true => "To see this page, sign in as the dataset’s owner.",
                false => "To see this page, sign in.",
            }),
            HttpError::Manage(ManageError::DatasetNotFound) => {
                Some("You do not own a dataset at this address. If you renamed your dataset, its address has changed.")
            }
            _ => None,
        };
        let visit::Told { status, text, headers } = visit::told(error, &self.head);
        let text = own.map_or(text, str::to_owned);
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
        let shell = self.shell(format!("Error: {heading}"));
        let typed = self.typed.as_deref().filter(|typed| !typed.is_empty());
        let dataset = self.dataset.as_ref().filter(|_| matches!(status.as_u16(), 400 | 404 | 409 | 413));
        let versions = dataset.map(|place| place.page("versions"));
        let is_refused = self.head.method == Method::POST && matches!(status.as_u16(), 403 | 409 | 413);
        let again = is_refused.then(|| page_of_form(self.head.uri.path())).filter(|page| *page != "/");
        let text = &text;
        let page =
            ErrorPage { shell, status: status.as_u16(), heading, text, tells_what_there_is, typed, versions, again };
        (render(status, &page).unwrap_or(Reply::Page(status, String::new())), headers)
    }
}

/// Whether a page is for the owner of its dataset. Every user can clone a dataset.
fn is_of_owner(path: &str) -> bool {
    DatasetPlace::parse(path).is_ok() && path.split('/').nth(4) != Some("clone")
}

/// The page that has the form of this path.
fn page_of_form(path: &str) -> &str {
    match path.rsplit_once('/') {
        _ if path == "/ui/new" || path.ends_with("/clone") => path,
        Some((manage, _)) if manage.ends_with("/manage") => manage.strip_suffix("/manage").unwrap_or(manage),
        Some((page, _)) if page.starts_with("/ui/") && page != "/ui" => page,
        _ => "/",
    }
}

/// Bytes of an address to which signing in redirects.
const NEXT_BYTES: usize = FORM_BYTES / 16;

pub(super) fn render(status: StatusCode, page: &impl Template) -> PageResult {
    match page.render() {
        Ok(html) => Ok(Reply::Page(status, html)),
        Err(error) => Err(HttpError::Panic(format!("failed to render a page: {error}"))),
    }
}

/// Bytes of a page that a thread that serves connections compresses.
const COMPRESSED_HERE: usize = 128 << 10;

async fn coded(headers: &HeaderMap, html: String) -> Response {
    let coding = match html.len() < LEAST_COMPRESSED_BYTES {
        true => ContentCoding::Identity,
        false => content_encoding::negotiate(headers),
    };
    let plain = Bytes::from(html);
    let html = plain.clone();
    let compressed = move || compress(coding, &html).ok();
    let coded = match coding {
        ContentCoding::Identity => None,
        _ if plain.len() <= COMPRESSED_HERE || Priority::current() != Priority::Short => compressed(),
        _ => blocking(compressed).await.ok().flatten(),
    };
    let encoding = coded.as_ref().map(|_| (CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
    let mut response = Html(coded.unwrap_or(plain)).into_response();
    response.headers_mut().extend(encoding);
    response
}

/// Sets the security headers of every response. With the policy `no-referrer`, browsers would send forms of our own
/// pages with the `Origin` `null`.
pub(super) fn guard(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

pub(super) async fn asset(State(services): State<AppState>, head: Parts) -> Response {
    let Some(asset) = assets::find(head.uri.path()) else {
        return match Visit::begin(services, head).await {
            Ok(visit) => visit.answer(Err(HttpError::NoSuchPath)).await,
            Err(response) => *response,
        };
    };
    let mut response = asset.answer(&head.headers);
    guard(response.headers_mut());
    response
}

/// The response to browsers for an unknown path or method. Programs get a text, so the response varies by `Accept`. An
/// address that accepts only a form redirects to the page of the form: a browser keeps this address if the response to
/// the form was a page.
pub(super) async fn unknown(services: AppState, head: Parts, error: HttpError) -> Response {
    match Visit::begin(services, head).await {
        Ok(mut visit) => {
            visit.headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding, Cookie"));
            let path = visit.head.uri.path();
            let form = path.rsplit_once('/').filter(|_| path.starts_with("/ui/"));
            let outcome = match (&error, form) {
                (HttpError::MethodNotAllowed { .. }, Some((page, _))) => Ok(Reply::SeeOther(page.to_owned())),
                _ => Err(error),
            };
            visit.answer(outcome).await
        }
        Err(response) => *response,
    }
}
