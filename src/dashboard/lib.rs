//! The dashboard: the pages at `/` and below `/ui/` (docs/guides/dashboard.md).
//!
//! The server renders all pages, which work without scripts. A page calls the same functions of `strata_service` as the
//! API and uses the same parsers: `/ui/3/x/v2/?filter=a:1` shows the response of `/api/3/x/v2/?filter=a:1`. Reads by
//! pages count toward the same limits and usage statistics. A private dataset returns 404 to everyone but its owner.

mod account;
mod alternates;
mod api_reference;
mod assets;
mod browse;
mod checks;
mod context;
mod dataset_list;
mod diff;
mod entity;
mod entity_diff;
mod entity_tree;
mod explain;
mod form_handling;
mod form_tokens;
mod format;
mod highlight;
mod histogram;
mod new_dataset;
mod page_request;
mod profile;
mod query_params;
mod refresh;
mod safe_text;
mod session;
mod settings;
mod unavailable;
mod urls;
mod usage;
mod versions;
mod webhook;

use axum::Router;
use axum::extract::State;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get, post};
use strata_http::error::HttpError;
use strata_http::router::DashboardPages;
use strata_http::{self as http, AppState, ServeError};
use tokio::net::TcpListener;

use self::page_request::{FormRequest, PageRequest, PageResponse, PageResult};

/// Returns a tower service for the API and, unless `server.dashboard` is false, for the dashboard pages.
pub fn router(services: AppState) -> Router {
    let pages = match services.config.server.dashboard {
        true => DashboardPages {
            routes: page_router(),
            error_page: Some(|services, head, error| {
                Box::pin(page_request::respond_unknown_route(services, head, error))
            }),
        },
        false => DashboardPages::default(),
    };
    http::router::router_with_pages(services, pages)
}

/// Like [`http::serve`], with the dashboard pages.
pub async fn serve(services: AppState, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    http::serve_app(services.clone(), router(services), listener, shutdown).await
}

type PageRoute = (&'static str, fn() -> MethodRouter<AppState>);

/// Creates the handlers of a path: GET returns a page, and POST, if there is a form, receives it.
macro_rules! page {
    ($page:path) => {
        || get(|req: PageRequest| req.respond($page))
    };
    ($page:path, $form:path) => {
        || get(|req: PageRequest| req.respond($page)).post(|form: FormRequest| form.respond($form))
    };
}

/// Creates the handler of a path that only receives a form.
macro_rules! form {
    ($form:path) => {
        || post(|form: FormRequest| form.respond($form))
    };
}

/// The routes of all dashboard pages. For other methods and paths, programs get the same response as without the
/// dashboard.
static PAGE_ROUTES: &[PageRoute] = &[
    ("/", || any(show_root)),
    ("/ui/assets/{name}", || get(page_request::serve_asset)),
    ("/ui/sign-in", || get(session::show_sign_in_form).post(|form: FormRequest| form.respond(session::sign_in))),
    ("/ui/sign-out", form!(session::sign_out)),
    ("/ui/account", page!(account::show_account)),
    ("/ui/account/delete-token", page!(account::show_token_deletion, account::handle_account_form)),
    ("/ui/account/{action}", form!(account::handle_account_form)),
    ("/ui/new", page!(new_dataset::show_new_dataset, new_dataset::handle_new_dataset_form)),
    ("/ui/api", page!(api_reference::show_api_index)),
    ("/ui/api/", page!(api_reference::show_api_index)),
    ("/ui/api/{resource}", page!(api_reference::show_api_resource)),
    ("/ui/api/{resource}/", page!(api_reference::show_api_resource)),
    ("/ui/api/{resource}/{*rest}", || any(respond_not_found)),
    ("/ui/{dataset_id}/{name_slug}", page!(browse::redirect_to_active_version)),
    ("/ui/{dataset_id}/{name_slug}/", page!(browse::redirect_to_active_version)),
    ("/ui/{dataset_id}/{name_slug}/versions", page!(versions::show_versions)),
    ("/ui/{dataset_id}/{name_slug}/diff", || {
        get(|req: PageRequest| req.respond_on_worker(|req| Box::pin(diff::show_diff(req))))
    }),
    ("/ui/{dataset_id}/{name_slug}/clone", page!(new_dataset::show_clone_form, new_dataset::handle_clone_form)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate", page!(alternates::show_alternate)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate/{action}", || {
        get(alternates::show_alternate_form).post(alternates::handle_alternate_form)
    }),
    ("/ui/{dataset_id}/{name_slug}/settings", page!(settings::show_settings)),
    ("/ui/{dataset_id}/{name_slug}/settings/{action}", form!(settings::handle_settings)),
    ("/ui/{dataset_id}/{name_slug}/settings/delete", page!(settings::show_dataset_deletion, settings::handle_settings)),
    ("/ui/{dataset_id}/{name_slug}/refresh", page!(refresh::show_refreshes)),
    ("/ui/{dataset_id}/{name_slug}/refresh/events", page!(refresh::events::stream_refresh_events)),
    ("/ui/{dataset_id}/{name_slug}/refresh/upload", form!(refresh::upload::handle_upload)),
    ("/ui/{dataset_id}/{name_slug}/refresh/{action}", form!(refresh::handle_refresh_form)),
    ("/ui/{dataset_id}/{name_slug}/webhook", page!(webhook::show_webhook)),
    ("/ui/{dataset_id}/{name_slug}/webhook/delete", page!(webhook::show_webhook_deletion, webhook::change_webhook)),
    ("/ui/{dataset_id}/{name_slug}/webhook/{action}", form!(webhook::change_webhook)),
    ("/ui/{dataset_id}/{name_slug}/usage", page!(usage::show_usage)),
    ("/ui/{dataset_id}/{name_slug}/manage/{action}", page!(versions::show_manage_page, versions::handle_manage_form)),
    ("/ui/{dataset_id}/{name_slug}/{version}", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/profile", || get(profile::show_profile)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/profile", || get(profile::show_profile)),
    ("/ui/{dataset_id}/{name_slug}/{version}/changes", || get(diff::show_version_changes)),
    ("/ui/{dataset_id}/{name_slug}/{version}/explain", || get(explain::show_explanation)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/explain", || get(explain::show_explanation)),
    ("/ui/{dataset_id}/{name_slug}/{version}/download", page!(browse::download)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/download", page!(browse::download)),
    ("/ui/{dataset_id}/{name_slug}/{version}/entity/{position}", || get(entity::show_entity)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/entity/{position}", || get(entity::show_entity)),
    ("/ui", || any(redirect_to_root)),
    ("/ui/", || any(redirect_to_root)),
    ("/ui/{dataset_id}", || any(respond_not_found)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}", || any(respond_not_found)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}/{of}", || any(respond_not_found)),
    ("/ui/{dataset_id}/{name_slug}/{version}/{page}/{of}/{*rest}", || any(respond_not_found)),
];

fn page_router() -> Router<AppState> {
    PAGE_ROUTES.iter().fold(Router::new(), |routes, (path, handlers)| routes.route(path, handlers()))
}

/// Returns the path patterns of all pages, such as `/ui/{dataset_id}/{name_slug}`.
pub fn page_paths() -> impl Iterator<Item = &'static str> {
    PAGE_ROUTES.iter().map(|(path, _)| *path)
}

async fn show_root(State(services): State<AppState>, head: Parts) -> Response {
    respond_get_only(services, head, dataset_list::show_dataset_list).await
}

async fn respond_not_found(State(services): State<AppState>, head: Parts) -> Response {
    respond_get_only(services, head, async |_: &mut PageRequest| Err(HttpError::PathNotFound)).await
}

/// Responds with a page to GET and HEAD, and with 404 to other methods. A route for GET only would return 405 with
/// `Allow: GET`, unlike a server without pages.
async fn respond_get_only(
    services: AppState,
    head: Parts,
    page: impl AsyncFnOnce(&mut PageRequest) -> PageResult,
) -> Response {
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return HttpError::PathNotFound.into_response();
    }
    match PageRequest::load(services, head).await {
        Ok(req) => req.respond(page).await,
        Err(response) => *response,
    }
}

async fn redirect_to_root(State(services): State<AppState>, head: Parts) -> Response {
    respond_get_only(services, head, async |_: &mut PageRequest| Ok(PageResponse::SeeOther("/".to_owned()))).await
}
