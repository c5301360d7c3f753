//! `/ui/sign-in` and `/ui/sign-out`: the forms that create and end sessions, like the API's `/session/login`.

use askama::Template;
use axum::body::Body;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use strata_http::error::HttpError;
use strata_http::page_support::{self, LoginCredentials};
use strata_service::ManageError;
use strata_types::limits::MAX_SMALL_FORM_BYTES;

use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;

const NEXT_PARAM: &str = "next";

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    layout: PageLayout,
    email: String,
    next: String,
    problem: Option<String>,
}

/// Returns the requested path if it is a page of this server, so that signing in cannot redirect to another site.
fn safe_next_path(next: Option<&str>) -> String {
    let ours = |path: &&str| {
        let below = *path == "/" || path.starts_with("/?") || path.starts_with("/ui/");
        below && path.is_ascii() && !path.contains(|character: char| character.is_ascii_control() || character == '\\')
    };
    next.filter(ours).unwrap_or("/").to_owned()
}

pub(super) async fn show_sign_in_form(req: PageRequest) -> Response {
    let page = async |req: &mut PageRequest| {
        let next = safe_next_path(req.parse_query(&[NEXT_PARAM])?.first(NEXT_PARAM));
        render(StatusCode::OK, &SignInPage { layout: req.layout("Sign in"), email: String::new(), next, problem: None })
    };
    let mut response = req.respond(page).await;
    // The sign-in page must not be cached, because browsers can fill in the password.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

pub(super) async fn sign_in(req: &mut PageRequest, body: Body) -> PageResult {
    // The form's origin is checked, because a site could sign a visitor in to another account to observe the visitor.
    let (fields, _) = req.read_form_fields(body, MAX_SMALL_FORM_BYTES).await?;
    let fields = QueryParams::from_iter(fields);
    let field = |name| fields.first(name).unwrap_or_default();
    let next = safe_next_path(fields.first(NEXT_PARAM));
    let credentials = LoginCredentials { email: field("email"), password: field("password") };
    match page_support::sign_in(&req.services, &req.head, credentials, &mut req.response_headers).await {
        Ok(_) => Ok(PageResponse::SeeOther(next)),
        Err(
            error @ HttpError::Manage(
                ManageError::WrongCredentials | ManageError::TooManyLogins { .. } | ManageError::LoginsBusy,
            ),
        ) => {
            let (status, problem) = req.log_and_render(error);
            let email = field("email").to_owned();
            render(status, &SignInPage { layout: req.layout("Sign in"), email, next, problem: Some(problem) })
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn sign_out(req: &mut PageRequest, body: Body) -> PageResult {
    if req.current_user.user.is_some() {
        let (fields, _) = req.read_form_fields(body, MAX_SMALL_FORM_BYTES).await?;
        req.check_form_token(&fields)?;
    }
    page_support::sign_out(&req.services, &req.head, &req.current_user, &mut req.response_headers).await?;
    Ok(PageResponse::SeeOther("/".to_owned()))
}
