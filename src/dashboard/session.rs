//! `/ui/sign-in` and `/ui/sign-out`: the forms for the sessions of `/session/login`.

use askama::Template;
use axum::body::Body;
use axum::http::header::CACHE_CONTROL;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use strata_http::error::HttpError;
use strata_http::visit;
use strata_service::ManageError;
use strata_types::limits::FORM_BYTES;

use super::query::Query;
use super::visit::{PageResult, Reply, Shell, Visit, render};

/// The page to which signing in redirects.
const NEXT: &str = "next";

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    shell: Shell,
    email: String,
    next: String,
    problem: Option<String>,
}

/// The requested page if it is one of ours: signing in must not redirect to another site.
fn next(asked: Option<&str>) -> String {
    let ours = |path: &&str| {
        let below = *path == "/" || path.starts_with("/?") || path.starts_with("/ui/");
        below && path.is_ascii() && !path.contains(|character: char| character.is_ascii_control() || character == '\\')
    };
    asked.filter(ours).unwrap_or("/").to_owned()
}

pub(super) async fn form(visit: Visit) -> Response {
    let page = async |visit: &mut Visit| {
        let next = next(visit.query(&[NEXT])?.first(NEXT));
        let page = SignInPage { shell: visit.shell("Sign in"), email: String::new(), next, problem: None };
        render(StatusCode::OK, &page)
    };
    let mut response = visit.respond(page).await;
    // Browsers fill in the password.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

pub(super) async fn sign_in(visit: &mut Visit, body: Body) -> PageResult {
    // Checks the origin: another site that signs a visitor in as another user would see what the visitor does.
    let (fields, _) = visit.fields_within(body, FORM_BYTES).await?;
    let fields = Query::from_iter(fields);
    let field = |name| fields.first(name).unwrap_or_default();
    let next = next(fields.first(NEXT));
    let credentials = (field("email"), field("password"));
    match visit::sign_in(&visit.services, &visit.head, credentials, &mut visit.headers).await {
        Ok(_) => Ok(Reply::SeeOther(next)),
        Err(
            error @ HttpError::Manage(
                ManageError::WrongCredentials | ManageError::TooManyLogins { .. } | ManageError::LoginsBusy,
            ),
        ) => {
            let (status, problem) = visit.tell(error);
            let email = field("email").to_owned();
            render(status, &SignInPage { shell: visit.shell("Sign in"), email, next, problem: Some(problem) })
        }
        Err(error) => Err(error),
    }
}

pub(super) async fn sign_out(visit: &mut Visit, body: Body) -> PageResult {
    if visit.visitor.user.is_some() {
        let (fields, _) = visit.fields_within(body, FORM_BYTES).await?;
        visit.check_token(&fields)?;
    }
    visit::sign_out(&visit.services, &visit.head, &visit.visitor, &mut visit.headers).await?;
    Ok(Reply::SeeOther("/".to_owned()))
}
