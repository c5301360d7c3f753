//! `/ui/account`: the visitor's sessions, API tokens and password.

use askama::Template;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use chrono::Utc;

use super::figures::{Moment, Time};
use super::query::Query;
use super::visit::{Reply, Shell, Visit, render};
use crate::http::error::HttpError;
use crate::http::visit;
use crate::model::scope::Scope;
use crate::service::{App, ManageError};

/// The path of the page, and of its forms below it.
pub(super) const ACCOUNT: &str = "/ui/account";

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    shell: Shell,
    email: String,
    plan: &'static str,
    since: Time,
    notice: Option<&'static str>,
    problem: Option<String>,
    /// A token that was just made: its name and itself. It is shown this once.
    made: Option<(String, String)>,
    sessions: Vec<SessionRow>,
    tokens: Vec<TokenRow>,
}

struct SessionRow {
    id: String,
    began: Time,
    used: Time,
    current: bool,
}

struct TokenRow {
    name: String,
    scope: &'static str,
    made: Time,
    used: Option<Time>,
    expires: Option<Moment>,
}

/// The forms of the page, by their names in its path, and what is said when each is done.
const DONE: [(&str, &str); 3] = [
    ("end-session", "The session has ended."),
    ("delete-token", "The token is deleted. It opens nothing any more."),
    ("password", "The password is changed, and all your other sessions have ended."),
];

/// The handler of the page.
pub(super) async fn show(State(app): State<App>, head: Parts) -> Response {
    let visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let done = Query::parse(visit.head.uri.query()).first("done").map(str::to_owned);
    let notice = DONE.into_iter().find(|(name, _)| Some(*name) == done.as_deref()).map(|(_, said)| said);
    let outcome = account(&visit, StatusCode::OK, notice, None, None).await;
    visit.answer(outcome).await
}

async fn account(
    visit: &Visit,
    status: StatusCode,
    notice: Option<&'static str>,
    problem: Option<String>,
    made: Option<(String, String)>,
) -> Result<Reply, HttpError> {
    let (app, user, now) = (&visit.app, visit.user()?, Utc::now());
    let current = visit.visitor.session().map(|id| id.expose());
    let sessions = app.sessions().list(&user, current).await?;
    let tokens = app.accounts().tokens(&user).await?;
    let page = AccountPage {
        shell: visit.shell("Your account"),
        email: user.email.clone(),
        plan: user.plan.name(),
        since: Time::new(user.created_at, now),
        notice,
        problem,
        made,
        sessions: sessions
            .into_iter()
            .map(|session| SessionRow {
                id: session.id,
                began: Time::new(session.created_at, now),
                used: Time::new(session.last_used_at, now),
                current: session.is_current,
            })
            .collect(),
        tokens: tokens
            .into_iter()
            .map(|token| TokenRow {
                name: token.name,
                scope: token.grant.scope.name(),
                made: Time::new(token.created_at, now),
                used: token.last_used_at.map(|used| Time::new(used, now)),
                expires: token.grant.expires_at.map(Moment::new),
            })
            .collect(),
    };
    render(status, &page)
}

/// The handler of its forms.
pub(super) async fn act(State(app): State<App>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let mut visit = match Visit::begin(app, head).await {
        Ok(visit) => visit,
        Err(response) => return *response,
    };
    let outcome = async {
        visit.user()?;
        let fields = Query::from_iter(visit.form(body).await?);
        let name = visit.head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        match done(&visit, &name, &fields).await {
            Ok(Some(made)) => account(&visit, StatusCode::OK, None, None, Some(made)).await,
            Ok(None) => Ok(Reply::SeeOther(Query::default().and("done", name).at(ACCOUNT))),
            // What is wrong with what was filled in is said on the page.
            Err(HttpError::Manage(error)) if is_the_visitors(&error) => {
                let told = visit::told(error.into(), &visit.head);
                visit.headers.extend(told.headers);
                account(&visit, told.status, None, Some(told.text), None).await
            }
            Err(error) => Err(error),
        }
    };
    let outcome = outcome.await;
    visit.answer(outcome).await
}

fn is_the_visitors(error: &ManageError) -> bool {
    matches!(
        error,
        ManageError::Invalid { .. }
            | ManageError::WrongPassword
            | ManageError::TooManyLogins { .. }
            | ManageError::LoginsBusy
            | ManageError::TokenNameTaken
            | ManageError::TooManyTokens { .. }
            | ManageError::TokenNotFound
            | ManageError::SessionNotFound
    )
}

/// Does what a form asks for; a new token and its name, if it asks for one.
async fn done(visit: &Visit, name: &str, fields: &Query) -> Result<Option<(String, String)>, HttpError> {
    let (app, user) = (&visit.app, visit.user()?);
    let field = |name| fields.first(name).unwrap_or_default();
    match name {
        "end-session" => app.sessions().end_listed(&user, field("id")).await?,
        "delete-token" => app.accounts().delete_token(&user, field("name")).await?,
        "create-token" => {
            let scope = if field("scope") == Scope::Write.name() { Scope::Write } else { Scope::Read };
            let (token, _) = app.accounts().create_token(&user, field("name"), scope, None).await?;
            return Ok(Some((field("name").to_owned(), token.expose().to_owned())));
        }
        "password" => {
            let current = visit.visitor.session().map(|id| id.expose());
            let (client, old, new) = (visit.visitor.client, field("old"), field("new"));
            app.logins().change_password(client, &user, old, new, current).await?;
        }
        _ => return Err(HttpError::NoSuchPath),
    }
    Ok(None)
}
