//! The dashboard: pages for people, at `/` and below `/ui/` (docs/guides/dashboard.md).
//!
//! The server renders the pages, which work without scripts. Their handlers call the same functions of `service` as the
//! operations do, and share the parsers of `http`: the query string of a page of entities is that of a read. Reads by
//! pages are counted and admitted as reads are. Only its owner can tell a private dataset from a missing one.
//!
//! Each file of this folder is a page, or what pages share: `visit` is a request for a page and its response,
//! `form_handling` a form that was sent, `safe_text` and `highlight` are texts as HTML.

mod account;
mod alternates;
mod api;
mod assets;
mod browse;
mod catalogue;
mod context;
mod diff;
mod entity;
mod entity_diff;
mod explain;
mod form_handling;
mod form_tokens;
mod format;
mod highlight;
mod histogram;
mod new_dataset;
mod profile;
mod query;
mod refresh;
mod safe_text;
mod session;
mod settings;
mod tree;
mod unavailable;
mod urls;
mod usage;
mod versions;
mod visit;
mod webhook;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use strata_http::error::HttpError;
use strata_http::router::Pages;
use strata_http::{self as http, AppState, ServeError};
use tokio::net::TcpListener;

use self::visit::{PageResult, Posted, Reply, Visit};

/// The operations and, unless the configuration says otherwise, the pages, as one tower service.
pub fn router(services: AppState) -> Router {
    let pages = match services.config.server.dashboard {
        true => Pages {
            routes: pages(),
            unknown: Some(|services, head, error| Box::pin(visit::unknown(services, head, error))),
        },
        false => Pages::default(),
    };
    http::router::with_pages(services, pages)
}

/// As [`http::serve`], with the pages.
pub async fn serve(services: AppState, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let router = router(services.clone());
    http::serve_app(services, router, listener, shutdown).await
}

/// The path of a page, and what answers there.
type Page = (&'static str, fn() -> MethodRouter<AppState>);

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
    ("/ui/new", || {
        get(|visit: Visit| visit.respond(new_dataset::show)).post(|form: Posted| form.respond(new_dataset::act))
    }),
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
        get(|visit: Visit| visit.respond(new_dataset::show_clone))
            .post(|form: Posted| form.respond(new_dataset::act_clone))
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

fn pages() -> Router<AppState> {
    PAGES.iter().fold(Router::new(), |routes, (path, handlers)| routes.route(path, handlers()))
}

/// The patterns of the paths of all pages, such as `/ui/{dataset_id}/{name_slug}`.
pub fn page_paths() -> impl Iterator<Item = &'static str> {
    PAGES.iter().map(|(path, _)| *path)
}

async fn root(State(services): State<AppState>, head: Parts) -> Response {
    read_page(services, head, catalogue::show).await
}

/// A path below `/ui/` that no page has.
async fn no_page(State(services): State<AppState>, head: Parts) -> Response {
    read_page(services, head, async |_: &mut Visit| Err(HttpError::NoSuchPath)).await
}

/// A page of a route that takes all methods, since a route for GET would name GET in `Allow`. Other methods than GET
/// and HEAD get the response that they get without pages.
async fn read_page(services: AppState, head: Parts, page: impl AsyncFnOnce(&mut Visit) -> PageResult) -> Response {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return HttpError::NoSuchPath.into_response();
    }
    match Visit::begin(services, head).await {
        Ok(visit) => visit.respond(page).await,
        Err(response) => *response,
    }
}

/// The path above all pages leads to the first one.
async fn above(State(services): State<AppState>, head: Parts) -> Response {
    read_page(services, head, async |_: &mut Visit| Ok(Reply::SeeOther("/".to_owned()))).await
}
