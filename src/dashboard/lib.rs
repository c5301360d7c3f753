//! The dashboard: pages for people, at `/` and below `/ui/` (docs/guides/dashboard.md).
//!
//! Pages are made on the server and work without scripts. Their handlers call the same functions of `service` as the
//! operations do, and share the parsers of `http`: the query string of a page of entities is that of a read. Reads by
//! pages are counted and admitted as reads are. A private dataset is to all but its owner what a missing one is.
//!
//! | Module | Holds |
//! |---|---|
//! | `catalogue` | `/`: the datasets that owners list, and the visitor's own |
//! | `session` | signing in and out |
//! | `account` | the visitor's sessions, tokens and password |
//! | `diff/` | what two versions, or a version and its alternate, differ in |
//! | `alternates/` | the alternate of a version, edited by its owner |
//! | `created` | a new dataset, and one that begins with another's newest version |
//! | `settings` | what an owner says of a dataset, its source, its index, its private key |
//! | `refresh/` | refreshes: now, by a file, by schedule, by ping; how far one is, and those before |
//! | `webhook/` | the webhook of a dataset, what was sent, how a signature is checked |
//! | `usage` | how much a dataset is read |
//! | `browse/` | a version's entities: table, JSON, form, fields, file, the same query for other tools |
//! | `entity` | one entity as a tree |
//! | `explain` | what the service does for a read, for the owner |
//! | `profile`, `histogram` | what the paths of a version hold, and how their numbers are spread |
//! | `closed` | why a version cannot be shown, for the owner |
//! | `versions` | the versions of a dataset, and what its owner does with them |
//! | `compared/` | two entities side by side |
//! | `opened` | the dataset and the version that a page is about |
//! | `api` | the API reference |
//! | `acting` | what the handlers of forms have in common |
//! | `visit` | a request for a page, and its answer: shell, headers, errors |
//! | `forms` | the tokens of forms |
//! | `assets` | the style sheet, and the script of the island |
//! | `island/` | the source of that script, in TypeScript |
//! | `place`, `query` | where pages are, positions of entities, and query strings |
//! | `tree`, `shown`, `marks`, `figures` | values, texts, hits of keywords and numbers for people |
//!
//! Each uses only what stands below it.

mod account;
mod acting;
mod alternates;
mod api;
mod assets;
mod browse;
mod catalogue;
mod closed;
mod compared;
mod created;
mod diff;
mod entity;
mod explain;
mod figures;
mod forms;
mod histogram;
mod marks;
mod opened;
mod place;
mod profile;
mod query;
mod refresh;
mod session;
mod settings;
mod shown;
mod tree;
mod usage;
mod versions;
mod visit;
mod webhook;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Method;
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use strata_http::error::HttpError;
use strata_http::router::Pages;
use strata_http::{self as http, ServeError};
use strata_service::App;
use tokio::net::TcpListener;

use self::visit::{Posted, Reply, Visit};

/// The operations and, unless the configuration says otherwise, the pages, as one tower service.
pub fn router(app: App) -> Router {
    let pages = match app.config().server.dashboard {
        true => Pages { routes: pages(), unknown: Some(|app, head, error| Box::pin(unknown(app, head, error))) },
        false => Pages::default(),
    };
    http::router::with_pages(app, pages)
}

/// As [`http::serve`], with the pages.
pub async fn serve(app: App, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let router = router(app.clone());
    http::serve_app(app, router, listener, shutdown).await
}

/// The path of a page, and what answers there.
type Page = (&'static str, fn() -> MethodRouter<App>);

/// Every page. For other methods and paths, programs get the response that they get without the dashboard.
static PAGES: &[Page] = &[
    ("/", || any(root)),
    ("/ui/assets/{name}", || get(visit::asset)),
    ("/ui/sign-in", || get(session::form).post(|form: Posted| form.respond(session::sign_in))),
    ("/ui/sign-out", || post(|form: Posted| form.respond(session::sign_out))),
    ("/ui/account", || get(|visit: Visit| visit.respond(account::show))),
    ("/ui/account/delete-token", || {
        get(|visit: Visit| visit.respond(account::confirm)).post(|form: Posted| form.respond(account::act))
    }),
    ("/ui/account/{action}", || post(|form: Posted| form.respond(account::act))),
    ("/ui/new", || get(|visit: Visit| visit.respond(created::show)).post(|form: Posted| form.respond(created::act))),
    ("/ui/api", || get(|visit: Visit| visit.respond(api::index))),
    ("/ui/api/", || get(|visit: Visit| visit.respond(api::index))),
    ("/ui/api/{resource}", || get(|visit: Visit| visit.respond(api::show))),
    ("/ui/api/{resource}/", || get(|visit: Visit| visit.respond(api::show))),
    ("/ui/api/{resource}/{*rest}", || any(no_page)),
    ("/ui/{dataset_id}/{name_slug}", || get(|visit: Visit| visit.respond(browse::active))),
    ("/ui/{dataset_id}/{name_slug}/", || get(|visit: Visit| visit.respond(browse::active))),
    ("/ui/{dataset_id}/{name_slug}/versions", || get(|visit: Visit| visit.respond(versions::show))),
    ("/ui/{dataset_id}/{name_slug}/diff", || get(|visit: Visit| visit.build(|visit| Box::pin(diff::show(visit))))),
    ("/ui/{dataset_id}/{name_slug}/clone", || {
        get(|visit: Visit| visit.respond(created::show_clone)).post(|form: Posted| form.respond(created::act_clone))
    }),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate", || get(|visit: Visit| visit.respond(alternates::show))),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate/{action}", || get(alternates::form).post(alternates::act)),
    ("/ui/{dataset_id}/{name_slug}/settings", || get(|visit: Visit| visit.respond(settings::show))),
    ("/ui/{dataset_id}/{name_slug}/settings/{action}", || post(|form: Posted| form.respond(settings::act))),
    ("/ui/{dataset_id}/{name_slug}/settings/delete", || {
        get(|visit: Visit| visit.respond(settings::confirm)).post(|form: Posted| form.respond(settings::act))
    }),
    ("/ui/{dataset_id}/{name_slug}/refresh", || get(|visit: Visit| visit.respond(refresh::show))),
    ("/ui/{dataset_id}/{name_slug}/refresh/events", || get(|visit: Visit| visit.respond(refresh::events::show))),
    ("/ui/{dataset_id}/{name_slug}/refresh/upload", || post(|form: Posted| form.respond(refresh::upload::act))),
    ("/ui/{dataset_id}/{name_slug}/refresh/{action}", || post(|form: Posted| form.respond(refresh::act))),
    ("/ui/{dataset_id}/{name_slug}/webhook", || get(|visit: Visit| visit.respond(webhook::show))),
    ("/ui/{dataset_id}/{name_slug}/webhook/delete", || {
        get(|visit: Visit| visit.respond(webhook::confirm)).post(|form: Posted| form.respond(webhook::act))
    }),
    ("/ui/{dataset_id}/{name_slug}/webhook/{action}", || post(|form: Posted| form.respond(webhook::act))),
    ("/ui/{dataset_id}/{name_slug}/usage", || get(|visit: Visit| visit.respond(usage::show))),
    ("/ui/{dataset_id}/{name_slug}/manage/{action}", || {
        get(|visit: Visit| visit.respond(versions::confirm)).post(|form: Posted| form.respond(versions::act))
    }),
    ("/ui/{dataset_id}/{name_slug}/{version}", || get(browse::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/", || get(browse::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt", || get(browse::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/", || get(browse::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/profile", || get(profile::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/profile", || get(profile::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/explain", || get(explain::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/explain", || get(explain::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/download", || get(|visit: Visit| visit.respond(browse::download))),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/download", || get(|visit: Visit| visit.respond(browse::download))),
    ("/ui/{dataset_id}/{name_slug}/{version}/entity/{position}", || get(entity::show)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/entity/{position}", || get(entity::show)),
    ("/ui", || any(above)),
    ("/ui/", || any(above)),
    ("/ui/{dataset_id}", || any(no_page)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}", || any(no_page)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}/{of}", || any(no_page)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}/{of}/{*rest}", || any(no_page)),
];

fn pages() -> Router<App> {
    PAGES.iter().fold(Router::new(), |routes, (path, handlers)| routes.route(path, handlers()))
}

/// The patterns of the paths of all pages, such as `/ui/{dataset_id}/{name_slug}`.
pub fn page_paths() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|(path, _)| *path)
}

async fn root(State(app): State<App>, head: Parts) -> Response {
    read_page(app, head, catalogue::show).await
}

/// A path below `/ui/` that no page has.
async fn no_page(State(app): State<App>, head: Parts) -> Response {
    read_page(app, head, async |_: &mut Visit| Err(HttpError::NoSuchPath)).await
}

/// A page of a route that takes all methods. Those that do not read find what they find without pages: a path that does
/// not exist.
async fn read_page(app: App, head: Parts, page: impl AsyncFnOnce(&mut Visit) -> Result<Reply, HttpError>) -> Response {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return HttpError::NoSuchPath.into_response();
    }
    let is_head = head.method == Method::HEAD;
    let response = match Visit::begin(app, head).await {
        Ok(visit) => visit.respond(page).await,
        Err(response) => *response,
    };
    if is_head { without_body(response) } else { response }
}

/// What lies above all pages leads to the first one.
async fn above(State(app): State<App>, head: Parts) -> Response {
    match head.method {
        Method::GET | Method::HEAD => Visit::begin_and_answer(app, head, Ok(Reply::SeeOther("/".to_owned()))).await,
        _ => HttpError::NoSuchPath.into_response(),
    }
}

/// A path or a method that neither a page nor an operation has, for who asks for HTML.
async fn unknown(app: App, head: Parts, error: HttpError) -> Response {
    match head.method {
        Method::HEAD => without_body(visit::unknown(app, head, error).await),
        _ => visit::unknown(app, head, error).await,
    }
}

/// As the router answers HEAD where a route takes GET alone. Such a route would name GET in `Allow` to all others.
fn without_body(mut response: Response) -> Response {
    if let Some(length) = http_body::Body::size_hint(response.body()).exact() {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response.map(|_| Body::empty())
}
