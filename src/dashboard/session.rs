//! `/ui/sign-in` and `/ui/sign-out`: the sessions of `/session/login`, by forms.

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
use super::visit::{Reply, Shell, Visit, render};

/// The field that says where to go then.
const NEXT: &str = "next";

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    shell: Shell,
    email: String,
    next: String,
    problem: Option<String>,
}

/// A page of ours, whatever was asked for: no link may lead from here to another site.
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
    // It is filled in with what nobody else may see.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-store"));
    response
}

pub(super) async fn sign_in(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    // A page that signs its visitor in as somebody else would see what the visitor does.
    let (fields, _) = visit.fields_within(body, FORM_BYTES).await?;
    let fields = Query::from_iter(fields);
    let field = |name| fields.first(name).unwrap_or_default();
    let next = next(fields.first(NEXT));
    let credentials = (field("email"), field("password"));
    match visit::sign_in(&visit.app, &visit.head, credentials, &mut visit.headers).await {
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

pub(super) async fn sign_out(visit: &mut Visit, body: Body) -> Result<Reply, HttpError> {
    // Whoever has no session any more is out already.
    if visit.visitor.user.is_some() {
        let (fields, _) = visit.fields_within(body, FORM_BYTES).await?;
        visit.check_token(&fields)?;
    }
    visit::sign_out(&visit.app, &visit.head, &visit.visitor, &mut visit.headers).await?;
    Ok(Reply::SeeOther("/".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_pages_of_ours_alone() {
        for path in ["/", "/?q=a", "/ui/1/x/active/?filter=a:b"] {
            assert_eq!(next(Some(path)), path);
        }
        for path in [
            "",
            "//evil.test",
            "/\\evil.test",
            "https://evil.test",
            "/api/1/x/v1",
            "/ui/\r\nx: y",
            "/ui/é",
            "javascript:x",
            "/ui/\\\\",
        ] {
            assert_eq!(next(Some(path)), "/", "{path:?}");
        }
        assert_eq!(next(None), "/");
    }
}
