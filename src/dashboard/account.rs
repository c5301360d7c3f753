//! `/ui/account`: the visitor's plan and what of it is used, sessions, API tokens and password.

use std::cmp::Reverse;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{ApiToken, UsageCounts};
use strata_config::Config;
use strata_http::error::HttpError;
use strata_http::visit::quoted;
use strata_service::{ManageError, OwnedSession, Services, SessionOrigin};
use strata_types::dataset::Dataset;
use strata_types::limits;
use strata_types::scope::Scope;
use strata_types::user::User;

use super::context::Heading;
use super::form_handling::{Problem, Question, SubmittedForm, invalid_field, problem, received};
use super::format::{self, Time};
use super::query::Query;
use super::safe_text::SafeText;
use super::urls::DatasetPlace;
use super::visit::{PageResult, Reply, Shell, Visit, render};

pub(super) const ACCOUNT: &str = "/ui/account";

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    shell: Shell,
    config: &'a Config,
    user: User,
    said: Flash,
    used: Used,
    now: DateTime<Utc>,
    sessions: Vec<OwnedSession>,
    tokens: Vec<ApiToken>,
}

/// Days until a token expires; empty if it never does.
const LIFETIMES: [(&str, &str); 5] =
    [("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year"), ("", "never")];

#[derive(Default)]
struct TokenForm {
    name: String,
    writes: bool,
    days: String,
}

impl TokenForm {
    fn sent(sent: &SubmittedForm) -> TokenForm {
        TokenForm {
            name: sent.trimmed("name").to_owned(),
            writes: sent.fields.first("scope") == Some(Scope::Write.name()),
            days: sent.trimmed("days").to_owned(),
        }
    }

    fn lifetime_s(&self) -> Result<Option<u64>, HttpError> {
        if self.days.is_empty() {
            return Ok(None);
        }
        let days = self.days.parse().ok().and_then(|days: u64| days.checked_mul(DAY_S));
        let invalid = || invalid_field(EXPIRES, format!("{} is not a valid number of days", quoted(&self.days)));
        days.map(Some).ok_or_else(invalid)
    }
}

struct Used {
    active: u64,
    datasets: Vec<(Dataset, UsageCounts)>,
    left_out: usize,
}

const DATASETS: usize = 50;

const DAY_S: u64 = 86_400;

/// Days over which requests are counted.
const DAYS: u64 = 30;

const FIELDS: [&str; 5] = ["name", EXPIRES, "old", "new", "again"];

/// The name that the operation has for the field `days`.
const EXPIRES: &str = "expires_in_s";

/// The forms by their names in the path, with the notice after each.
const DONE: [(&str, &str); 3] = [
    ("end-session", "The session was ended."),
    ("delete-token", "The token was deleted. Requests that use it now return 401."),
    ("password", "Your password was changed, and all your other sessions were ended."),
];

pub(super) async fn show(visit: &mut Visit) -> PageResult {
    let query = visit.query(&["done"])?;
    let done = query.one_of("done", &DONE.map(|(name, _)| name))?;
    let notice = DONE.into_iter().find(|(name, _)| Some(*name) == done).map(|(_, said)| said);
    account(visit, Flash { notice, ..Flash::default() }).await
}

#[derive(Default)]
struct Flash {
    notice: Option<&'static str>,
    problem: Problem,
    /// The name of a new token, and the token.
    made: Option<(String, String)>,
    /// The token form that was refused.
    typed: TokenForm,
}

async fn account(visit: &Visit, said: Flash) -> PageResult {
    let services = &visit.services;
    let user = visit.user()?;
    let current = visit.visitor.session.as_ref().map(|id| id.expose());
    let sessions = services.sessions.list(&user, current).await?;
    let tokens = services.accounts.tokens(&user).await?;
    let page = AccountPage {
        shell: visit.shell(said.problem.title("Your account".to_owned())),
        config: &services.config,
        used: used(services, &user).await?,
        said,
        now: Utc::now(),
        sessions,
        tokens,
        user,
    };
    render(page.said.problem.status, &page)
}

fn from(origin: &SessionOrigin) -> String {
    let address = origin.address.map(|address| address.to_string());
    let parts: Vec<String> = origin.program_in_words().into_iter().chain(address).collect();
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

async fn used(services: &Services, user: &User) -> Result<Used, HttpError> {
    let datasets = &services.datasets;
    let (all, active) = datasets.count(user).await?;
    let mut own = datasets.list_bare(user, None, limits::LISTED_DATASETS as u32).await?;
    let totals = services.usage.totals(user, &own, DAYS).await?;
    // One look-up does not return all datasets of a user who has many: add the others with the most requests.
    if own.len() as u64 != all {
        let mut others: Vec<_> = totals.iter().collect();
        others.sort_by_key(|(_, counts)| Reverse(counts.requests));
        others.truncate(DATASETS);
        others.retain(|(id, _)| own.iter().all(|dataset| dataset.id != **id));
        for (id, _) in others {
            match datasets.owned(user, *id).await {
                Ok(dataset) => own.push(dataset),
                Err(ManageError::DatasetNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let counts = |dataset: &Dataset| totals.get(&dataset.id).copied().unwrap_or_default();
    own.sort_by_key(|dataset| Reverse(counts(dataset).requests));
    own.truncate(DATASETS);
    Ok(Used {
        active,
        datasets: own.iter().map(|dataset| (dataset.clone(), counts(dataset))).collect(),
        left_out: usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(DATASETS),
    })
}

pub(super) async fn confirm(visit: &mut Visit) -> PageResult {
    let name = visit.query(&["name"])?.first("name").unwrap_or_default().to_owned();
    let tokens = visit.services.accounts.tokens(&visit.user()?).await?;
    if !tokens.iter().any(|token| token.name == name) {
        return Err(ManageError::TokenNotFound.into());
    }
    let question = Question {
        title: format!("Delete the token {}?", quoted(&name)),
        effects: vec![
            "Requests that use this token will return 401.".to_owned(),
            "This cannot be undone. If you create a token with the same name, the new token will get a different value."
                .to_owned(),
        ],
        action: format!("{ACCOUNT}/delete-token"),
        name: Some(name),
        button: "Delete token".to_owned(),
        danger: true,
        back: ACCOUNT.to_owned(),
        ..Question::default()
    };
    question.page(visit, None::<Heading>, StatusCode::OK)
}

pub(super) async fn act(visit: &mut Visit, body: Body) -> PageResult {
    let sent = received(visit, body).await?;
    match done(visit, &sent).await {
        Ok(Some(made)) => account(visit, Flash { made: Some(made), ..Flash::default() }).await,
        Ok(None) => Ok(Reply::done(&sent.action, ACCOUNT)),
        Err(error) => {
            let is_wrong = matches!(error, HttpError::Manage(ManageError::WrongPassword));
            let problem = problem(visit, error, &FIELDS)?;
            let wrong = "this is not your current password. Your password was not changed.";
            let problem = match problem.general() {
                _ if is_wrong => Problem::at(problem.status, "old", wrong),
                Some(text) if sent.action == "password" => Problem::at(problem.status, "old", text),
                _ => problem,
            };
            let typed = if sent.action == "create-token" { TokenForm::sent(&sent) } else { TokenForm::default() };
            account(visit, Flash { problem, typed, ..Flash::default() }).await
        }
    }
}

/// Returns the name of a new token and the token if the form creates one.
async fn done(visit: &Visit, sent: &SubmittedForm) -> Result<Option<(String, String)>, HttpError> {
    let services = &visit.services;
    let user = visit.user()?;
    let field = |name| sent.fields.first(name).unwrap_or_default();
    match sent.action.as_str() {
        "end-session" => {
            sent.check(&["id"], &[])?;
            services.sessions.end_listed(&user, field("id")).await?;
        }
        "delete-token" => {
            sent.check(&["name"], &[])?;
            services.accounts.delete_token(&user, field("name")).await?;
        }
        "create-token" => {
            sent.check(&["name", "scope", "days"], &[])?;
            sent.chosen("scope", &[Scope::Read.name(), Scope::Write.name()])?;
            let form = TokenForm::sent(sent);
            let scope = if form.writes { Scope::Write } else { Scope::Read };
            let (token, _) = services.accounts.create_token(&user, &form.name, scope, form.lifetime_s()?).await?;
            return Ok(Some((form.name, token.expose().to_owned())));
        }
        "password" => {
            sent.check(&["old", "new", "again"], &[])?;
            if field("again") != field("new") {
                return Err(invalid_field("again", "the new passwords do not match. Your password was not changed"));
            }
            let current = visit.visitor.session.as_ref().map(|id| id.expose());
            let client = visit.visitor.client;
            services.logins.change_password(client, &user, field("old"), field("new"), current).await?;
        }
        _ => return Err(HttpError::NoSuchPath),
    }
    Ok(None)
}
