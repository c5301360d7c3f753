//! A request for a page, and its answer: what all pages have around them, their headers, and errors as pages.

use askama::Template;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use strata_encode::{ContentCoding, LEAST_COMPRESSED_BYTES, compress};
use strata_http::error::{CallError, HttpError};
use strata_http::headers::content_encoding;
use strata_http::large_responses;
use strata_http::visit::{self, Visitor, quoted};
use strata_runtime::blocking::blocking;
use strata_runtime::priority::Priority;
use strata_service::{App, BodyRoom, ManageError, ProfileRequest, UsageMeter};
use strata_types::ids::DatasetId;
use strata_types::limits::FORM_BYTES;
use strata_types::user::User;
use strata_types::version::VersionSelector;

use super::place::DatasetPlace;
use super::query::Query;
use super::shown::{Sentence, with_named};
use super::{assets, forms};

/// What a page may load and do: its style sheet, its script and its icon, calls of its own service, nothing of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

pub(super) const SIGN_IN: &str = "/ui/sign-in";

/// A page, ready to be sent; or another answer.
pub(super) enum Reply {
    Page(StatusCode, String),
    /// Another page, to be opened by GET.
    SeeOther(String),
    /// An answer that is no page.
    Other(Response),
}

impl Reply {
    /// Leads to a page that says that this is done.
    pub(super) fn done(what: &str, page: &str) -> Reply {
        Reply::SeeOther(Query::default().and("done", what).at(page))
    }
}

/// What all pages have around them.
pub(super) struct Shell {
    pub(super) title: String,
    pub(super) email: Option<String>,
    /// The token of forms, where there is a session.
    pub(super) token: String,
    /// Where signing in leads back to.
    pub(super) sign_in: String,
    /// Parameters of the address that the page does not have.
    pub(super) ignored: Option<Sentence>,
}

pub(super) struct Visit {
    pub(super) app: App,
    pub(super) head: Parts,
    pub(super) visitor: Visitor,
    pub(super) headers: HeaderMap,
    pub(super) meter: Option<UsageMeter>,
    /// What was typed into the form that was sent. The page of an error shows it, so that it is not lost.
    pub(super) typed: Option<String>,
    /// The dataset of the page, once it is known that it is there for the visitor, with a version. The page of an error
    /// leads back to it.
    pub(super) dataset: Option<DatasetPlace>,
    /// Says which parameters of the address the page does not have.
    ignored: Option<String>,
}

/// Parameters that are named where a page does not have them.
const NAMED: usize = 5;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    shell: Shell,
    status: u16,
    heading: &'a str,
    text: &'a str,
    /// Whether links lead to what exists.
    tells_what_there_is: bool,
    typed: Option<&'a str>,
    /// The page of the dataset's versions, where what is not there is a part of it.
    versions: Option<String>,
    /// The page of the form that was sent, where it may be sent anew from there.
    again: Option<&'a str>,
}

pub(super) struct Posted {
    pub(super) visit: Visit,
    pub(super) body: Body,
}

impl FromRequest<App> for Posted {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Posted, Response> {
        let (head, body) = request.into_parts();
        let visit = Visit::begin(app.clone(), head).await.map_err(|response| *response)?;
        Ok(Posted { visit, body })
    }
}

impl FromRequest<App> for Visit {
    type Rejection = Response;

    async fn from_request(request: Request, app: &App) -> Result<Visit, Response> {
        Ok(Posted::from_request(request, app).await?.visit)
    }
}

impl Posted {
    pub(super) async fn respond(self, act: impl AsyncFnOnce(&mut Visit, Body) -> Result<Reply, HttpError>) -> Response {
        let Posted { mut visit, body } = self;
        let outcome = Box::pin(act(&mut visit, body)).await;
        visit.answer(outcome).await
    }
}

impl Visit {
    /// Finds out who visits. The answer, if that cannot be found out, is boxed because it is large and rare.
    pub(super) async fn begin(app: App, head: Parts) -> Result<Visit, Box<Response>> {
        match Visitor::of(&app, &head).await {
            Ok(visitor) => Ok(Visit::new(app, head, visitor)),
            Err(error) => {
                let mut response = error.into_response();
                guard(response.headers_mut());
                Err(Box::new(response))
            }
        }
    }

    /// The answer to a request of anybody.
    pub(super) async fn begin_and_answer(app: App, head: Parts, outcome: Result<Reply, HttpError>) -> Response {
        match Visit::begin(app, head).await {
            Ok(visit) => visit.answer(outcome).await,
            Err(response) => *response,
        }
    }

    fn new(app: App, head: Parts, visitor: Visitor) -> Visit {
        let headers = HeaderMap::new();
        Visit { app, head, visitor, headers, meter: None, typed: None, dataset: None, ignored: None }
    }

    pub(super) fn user(&self) -> Result<User, HttpError> {
        self.visitor.user.clone().ok_or_else(|| CallError::Unauthenticated.into())
    }

    /// A request for the profile of a version.
    pub(super) fn profile(&self, dataset: DatasetId, version: VersionSelector, alt: bool) -> ProfileRequest<'_> {
        let Visitor { user, client, .. } = &self.visitor;
        ProfileRequest { caller: user.as_ref(), client: *client, dataset, version, alt }
    }

    /// The query string of a page that has these parameters, each once at most. As at the read endpoint, others are
    /// ignored, and named.
    ///
    /// # Errors
    /// 400 for what is not UTF-8, and for a parameter that comes twice.
    pub(super) fn query(&mut self, names: &[&str]) -> Result<Query, HttpError> {
        visit::check_utf8(&self.head)?;
        let query = Query::parse(self.head.uri.query());
        self.ignore_others(&query, names);
        names.iter().try_for_each(|name| query.once(name).map(|_| ()))?;
        Ok(query)
    }

    /// Names above the page what is none of its parameters.
    pub(super) fn ignore_others(&mut self, query: &Query, names: &[&str]) {
        let others = query.others(names);
        self.ignored = (!others.is_empty()).then(|| {
            let named: Vec<String> = others.iter().take(NAMED).map(|name| quoted(name)).collect();
            let more = if others.len() > NAMED { " and more" } else { "" };
            let valid = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            format!("This page ignores unknown parameters: {}{more}; valid: {valid}.", named.join(", "))
        });
    }

    /// The status and the text of an error that a page shows besides what it is about.
    pub(super) fn tell(&mut self, error: HttpError) -> (StatusCode, String) {
        let told = visit::told(error, &self.head);
        self.headers.extend(told.headers);
        (told.status, told.text)
    }

    /// What the page of this title has around it.
    pub(super) fn shell(&self, title: impl Into<String>) -> Shell {
        let path = match self.head.method {
            Method::GET | Method::HEAD => self.head.uri.path_and_query().map_or("/", |path| path.as_str()),
            _ => page_of_form(self.head.uri.path()),
        };
        let back = Query::default().and("next", path);
        let sign_in =
            if path.starts_with(SIGN_IN) || path.len() > NEXT_BYTES { SIGN_IN.to_owned() } else { back.at(SIGN_IN) };
        // The name of a window has no elements that would name what nobody sees.
        let title: String = title.into();
        let title = with_named(&title).map(|(one, is_named)| if is_named { char::REPLACEMENT_CHARACTER } else { one });
        Shell {
            title: title.collect(),
            email: self.visitor.user.as_ref().map(|user| user.email.clone()),
            token: self.visitor.session.as_ref().map(|id| forms::token(id, rand::random())).unwrap_or_default(),
            sign_in,
            ignored: self.ignored.as_deref().map(Sentence::new),
        }
    }

    /// The fields of a form of this site, whoever sends it, and the room that they have if they are many; 403 for a
    /// form of another site.
    pub(super) async fn fields_within(
        &self,
        body: Body,
        limit_bytes: usize,
    ) -> Result<(Vec<(String, String)>, Option<BodyRoom>), HttpError> {
        visit::check_origin(&self.app, &self.head)?;
        visit::form(&self.app, self.visitor.holder(), &self.head.headers, body, limit_bytes).await
    }

    /// Checks that a page of this session has made a form; 403 for any other.
    pub(super) fn check_token(&self, fields: &[(String, String)]) -> Result<(), HttpError> {
        match fields.iter().find(|(name, _)| name == forms::TOKEN) {
            Some((_, token)) if self.is_token(token) => Ok(()),
            _ => Err(CallError::ForgedForm.into()),
        }
    }

    /// Whether a page of this session has made a form with this token.
    pub(super) fn is_token(&self, token: &str) -> bool {
        self.visitor.session.as_ref().is_some_and(|session| forms::is_token(session, token))
    }

    pub(super) async fn respond(mut self, page: impl AsyncFnOnce(&mut Visit) -> Result<Reply, HttpError>) -> Response {
        let outcome = Box::pin(page(&mut self)).await;
        self.answer(outcome).await
    }

    /// As [`Visit::respond`], for a page that may be large or take long: on a thread of its own and within the
    /// visitor's share of memory.
    pub(super) async fn build(
        mut self,
        page: impl for<'a> FnOnce(&'a mut Visit) -> BoxFuture<'a, Result<Reply, HttpError>> + Send + 'static,
    ) -> Response {
        let reservation = match large_responses::reserve(&self.app, self.visitor.holder()).await {
            Ok(reservation) => reservation,
            Err(error) => return self.answer(Err(error)).await,
        };
        let app = self.app.clone();
        let head = self.head.clone();
        let visitor = self.visitor.clone();
        let work = async move {
            let outcome = page(&mut self).await;
            Ok(self.answer(outcome).await)
        };
        match large_responses::build(reservation, work).await {
            Ok(response) => response,
            Err(error) => Visit::new(app, head, visitor).answer(Err(error)).await,
        }
    }

    pub(super) async fn answer(self, outcome: Result<Reply, HttpError>) -> Response {
        let (reply, more) = match outcome {
            Ok(reply) => (reply, HeaderMap::new()),
            Err(error) => self.error_page(error),
        };
        let signed_in = self.visitor.user.is_some();
        let mut response = match reply {
            Reply::Page(status, html) => {
                let mut response = coded(&self.head.headers, html).await;
                *response.status_mut() = status;
                response
            }
            Reply::SeeOther(path) => {
                let mut response = StatusCode::SEE_OTHER.into_response();
                if let Ok(path) = HeaderValue::try_from(path) {
                    response.headers_mut().insert(LOCATION, path);
                }
                response
            }
            Reply::Other(response) => response,
        };
        let status = response.status();
        let headers = response.headers_mut();
        headers.extend(self.headers);
        headers.extend(more);
        guard(headers);
        // What a page shows depends on who looks, and on what was done meanwhile.
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
        // The others speak of operations.
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
        let status_code = status.as_u16();
        let is_refused = self.head.method == Method::POST && matches!(status_code, 403 | 409 | 413);
        let again = is_refused.then(|| page_of_form(self.head.uri.path())).filter(|page| *page != "/");
        let page =
            ErrorPage { shell, status: status_code, heading, text: &text, tells_what_there_is, typed, versions, again };
        (render(status, &page).unwrap_or(Reply::Page(status, String::new())), headers)
    }
}

/// Whether a page below `/ui/` that takes a session is for the owner of its dataset: one of an account is not, nor is
/// that of a clone, which every user makes.
fn is_of_owner(path: &str) -> bool {
    DatasetPlace::parse(path).is_ok() && path.split('/').nth(4) != Some("clone")
}

/// The page that has the form of this path, which is a part of the page's own unless both are one.
fn page_of_form(path: &str) -> &str {
    match path.rsplit_once('/') {
        _ if path == "/ui/new" || path.ends_with("/clone") => path,
        // There is no page of all of these: that of the dataset.
        Some((manage, _)) if manage.ends_with("/manage") => manage.strip_suffix("/manage").unwrap_or(manage),
        Some((page, _)) if page.starts_with("/ui/") && page != "/ui" => page,
        _ => "/",
    }
}

/// Most bytes of an address to which signing in leads back.
const NEXT_BYTES: usize = FORM_BYTES / 16;

pub(super) fn render(status: StatusCode, page: &impl Template) -> Result<Reply, HttpError> {
    match page.render() {
        Ok(html) => Ok(Reply::Page(status, html)),
        Err(error) => Err(HttpError::Panic(format!("failed to render a page: {error}"))),
    }
}

/// Bytes of a page that a thread that serves connections compresses.
const COMPRESSED_HERE: usize = 128 << 10;

/// A page, compressed as the browser likes it.
async fn coded(headers: &HeaderMap, html: String) -> Response {
    let coding = match html.len() < LEAST_COMPRESSED_BYTES {
        true => ContentCoding::Identity,
        false => content_encoding::negotiate(headers),
    };
    let plain = Bytes::from(html);
    let html = plain.clone();
    let coded = match coding {
        ContentCoding::Identity => None,
        coding if html.len() <= COMPRESSED_HERE || Priority::current() != Priority::Short => {
            compress(coding, &html).ok()
        }
        coding => blocking(move || compress(coding, &html)).await.ok().and_then(Result::ok),
    };
    let encoding = coded.as_ref().map(|_| (CONTENT_ENCODING, HeaderValue::from_static(coding.name())));
    let mut response = Response::new(Body::from(coded.unwrap_or(plain)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().extend(encoding);
    response
}

/// What every answer of the dashboard tells browsers.
///
/// With the policy `no-referrer`, browsers would send forms of our own pages with the `Origin` `null`.
pub(super) fn guard(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// The style sheet and the script; another name below `/ui/assets/` is no page.
pub(super) async fn asset(State(app): State<App>, head: Parts) -> Response {
    let Some(asset) = assets::find(head.uri.path()) else {
        return Visit::begin_and_answer(app, head, Err(HttpError::NoSuchPath)).await;
    };
    let mut response = asset.answer(&head.headers);
    guard(response.headers_mut());
    response
}

/// A path or a method that neither a page nor an operation has. Programs get a text there, so that caches keep both
/// apart. An address that takes only what a form sends leads to the page of the form: a browser keeps it where the
/// answer to the form was a page.
pub(super) async fn unknown(app: App, head: Parts, error: HttpError) -> Response {
    match Visit::begin(app, head).await {
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
