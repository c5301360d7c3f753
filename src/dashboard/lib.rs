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

/// Returns the API and, unless `server.dashboard` is false, the pages as a tower service.
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

/// Like [`http::serve`], with the pages.
pub async fn serve(services: AppState, listener: TcpListener, shutdown: impl Future) -> Result<(), ServeError> {
    let router = router(services.clone());
    http::serve_app(services, router, listener, shutdown).await
}

type PageRoute = (&'static str, fn() -> MethodRouter<AppState>);

/// All pages. For other methods and paths, programs get the same response as without the dashboard.
static PAGE_ROUTES: &[PageRoute] = &[
    ("/", || any(show_root)),
    ("/ui/assets/{name}", || get(page_request::serve_asset)),
    ("/ui/sign-in", || get(session::show_sign_in_form).post(|form: FormRequest| form.respond(session::sign_in))),
    ("/ui/sign-out", || post(|form: FormRequest| form.respond(session::sign_out))),
    ("/ui/account", || get(|req: PageRequest| req.respond(account::show_account))),
    ("/ui/account/delete-token", || {
        get(|req: PageRequest| req.respond(account::show_confirmation))
            .post(|form: FormRequest| form.respond(account::handle_form))
    }),
    ("/ui/account/{action}", || post(|form: FormRequest| form.respond(account::handle_form))),
    ("/ui/new", || {
        get(|req: PageRequest| req.respond(new_dataset::show_new_dataset))
            .post(|form: FormRequest| form.respond(new_dataset::handle_form))
    }),
    ("/ui/api", || get(|req: PageRequest| req.respond(api_reference::show_index))),
    ("/ui/api/", || get(|req: PageRequest| req.respond(api_reference::show_index))),
    ("/ui/api/{resource}", || get(|req: PageRequest| req.respond(api_reference::show_resource))),
    ("/ui/api/{resource}/", || get(|req: PageRequest| req.respond(api_reference::show_resource))),
    ("/ui/api/{resource}/{*rest}", || any(respond_not_found)),
    ("/ui/{dataset_id}/{name_slug}", || get(|req: PageRequest| req.respond(browse::redirect_to_active))),
    ("/ui/{dataset_id}/{name_slug}/", || get(|req: PageRequest| req.respond(browse::redirect_to_active))),
    ("/ui/{dataset_id}/{name_slug}/versions", || get(|req: PageRequest| req.respond(versions::show_versions))),
    ("/ui/{dataset_id}/{name_slug}/diff", || {
        get(|req: PageRequest| req.respond_on_worker(|req| Box::pin(diff::show_diff(req))))
    }),
    ("/ui/{dataset_id}/{name_slug}/clone", || {
        get(|req: PageRequest| req.respond(new_dataset::show_clone_form))
            .post(|form: FormRequest| form.respond(new_dataset::handle_clone_form))
    }),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate", || {
        get(|req: PageRequest| req.respond(alternates::show_alternate))
    }),
    ("/ui/{dataset_id}/{name_slug}/{version}/alternate/{action}", || {
        get(alternates::show_form).post(alternates::handle_form)
    }),
    ("/ui/{dataset_id}/{name_slug}/settings", || get(|req: PageRequest| req.respond(settings::show_settings))),
    ("/ui/{dataset_id}/{name_slug}/settings/{action}", || {
        post(|form: FormRequest| form.respond(settings::handle_form))
    }),
    ("/ui/{dataset_id}/{name_slug}/settings/delete", || {
        get(|req: PageRequest| req.respond(settings::show_confirmation))
            .post(|form: FormRequest| form.respond(settings::handle_form))
    }),
    ("/ui/{dataset_id}/{name_slug}/refresh", || get(|req: PageRequest| req.respond(refresh::show_refreshes))),
    ("/ui/{dataset_id}/{name_slug}/refresh/events", || {
        get(|req: PageRequest| req.respond(refresh::events::show_events))
    }),
    ("/ui/{dataset_id}/{name_slug}/refresh/upload", || {
        post(|form: FormRequest| form.respond(refresh::upload::handle_upload))
    }),
    ("/ui/{dataset_id}/{name_slug}/refresh/{action}", || post(|form: FormRequest| form.respond(refresh::handle_form))),
    ("/ui/{dataset_id}/{name_slug}/webhook", || get(|req: PageRequest| req.respond(webhook::show_webhook))),
    ("/ui/{dataset_id}/{name_slug}/webhook/delete", || {
        get(|req: PageRequest| req.respond(webhook::show_confirmation))
            .post(|form: FormRequest| form.respond(webhook::handle_form))
    }),
    ("/ui/{dataset_id}/{name_slug}/webhook/{action}", || post(|form: FormRequest| form.respond(webhook::handle_form))),
    ("/ui/{dataset_id}/{name_slug}/usage", || get(|req: PageRequest| req.respond(usage::show_usage))),
    ("/ui/{dataset_id}/{name_slug}/manage/{action}", || {
        get(|req: PageRequest| req.respond(versions::show_confirmation))
            .post(|form: FormRequest| form.respond(versions::handle_form))
    }),
    ("/ui/{dataset_id}/{name_slug}/{version}", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/", || get(browse::show_entities)),
    ("/ui/{dataset_id}/{name_slug}/{version}/profile", || get(profile::show_profile)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/profile", || get(profile::show_profile)),
    ("/ui/{dataset_id}/{name_slug}/{version}/explain", || get(explain::show_explanation)),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/explain", || get(explain::show_explanation)),
    ("/ui/{dataset_id}/{name_slug}/{version}/download", || get(|req: PageRequest| req.respond(browse::download))),
    ("/ui/{dataset_id}/{name_slug}/{version}/alt/download", || get(|req: PageRequest| req.respond(browse::download))),
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
