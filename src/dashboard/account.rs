//! `/ui/account`: the user's plan, usage, sessions, API tokens, and password.

use std::cmp::Reverse;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use strata_catalog::{ApiToken, UsageCounts};
use strata_config::Config;
use strata_http::error::HttpError;
use strata_http::page_support::quote_for_page;
use strata_service::{ManageError, OwnedSession, Services, SessionOrigin};
use strata_types::dataset::Dataset;
use strata_types::limits;
use strata_types::token_scope::TokenScope;
use strata_types::user::User;

use super::context::DatasetHeading;
use super::form_handling::{
    ConfirmationPrompt, FormProblem, SubmittedForm, invalid_field_error, receive_form, to_form_problem,
};
use super::format::{self, FormattedTime};
use super::page_request::{PageLayout, PageRequest, PageResponse, PageResult, render};
use super::query_params::QueryParams;
use super::safe_text::SafeText;
use super::urls::DatasetUrls;

pub(super) const ACCOUNT_PATH: &str = "/ui/account";

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage<'a> {
    layout: PageLayout,
    config: &'a Config,
    user: User,
    flash: AccountFlash,
    account_usage: AccountUsage,
    now: DateTime<Utc>,
    sessions: Vec<OwnedSession>,
    tokens: Vec<ApiToken>,
}

/// The lifetimes that the token form offers, in days; an empty string for tokens that never expire.
const TOKEN_LIFETIMES_DAYS: [(&str, &str); 5] =
    [("7", "in 7 days"), ("30", "in 30 days"), ("90", "in 90 days"), ("365", "in a year"), ("", "never")];

#[derive(Default)]
struct TokenForm {
    name: String,
    can_write: bool,
    days: String,
}

impl TokenForm {
    fn from_form(form: &SubmittedForm) -> TokenForm {
        TokenForm {
            name: form.trimmed_value("name").to_owned(),
            can_write: form.fields.first("scope") == Some(TokenScope::Write.name()),
            days: form.trimmed_value("days").to_owned(),
        }
    }

    fn lifetime_s(&self) -> Result<Option<u64>, HttpError> {
        if self.days.is_empty() {
            return Ok(None);
        }
        let days = self.days.parse().ok().and_then(|days: u64| days.checked_mul(SECONDS_PER_DAY));
        let invalid = || {
            invalid_field_error(EXPIRY_FIELD, format!("{} is not a valid number of days", quote_for_page(&self.days)))
        };
        days.map(Some).ok_or_else(invalid)
    }
}

struct AccountUsage {
    active_datasets: u64,
    datasets: Vec<(Dataset, UsageCounts)>,
    omitted_datasets: usize,
}

const MAX_SHOWN_DATASETS: usize = 50;
const SECONDS_PER_DAY: u64 = 86_400;
const USAGE_PERIOD_DAYS: u64 = 30;
const PROBLEM_FIELDS: [&str; 5] = ["name", EXPIRY_FIELD, "old", "new", "again"];
const EXPIRY_FIELD: &str = "expires_in_s";

const DONE_NOTICES: [(&str, &str); 3] = [
    ("end-session", "The session was ended."),
    ("delete-token", "The token was deleted. Requests that use it now return 401."),
    ("password", "Your password was changed, and all your other sessions were ended."),
];

pub(super) async fn show_account(req: &mut PageRequest) -> PageResult {
    let query = req.parse_query(&["done"])?;
    let done = query.parse_choice("done", &DONE_NOTICES.map(|(name, _)| name))?;
    let notice = DONE_NOTICES.into_iter().find(|(name, _)| Some(*name) == done).map(|(_, notice)| notice);
    render_account(req, AccountFlash { notice, ..AccountFlash::default() }).await
}

#[derive(Default)]
struct AccountFlash {
    notice: Option<&'static str>,
    problem: FormProblem,
    created_token: Option<CreatedToken>,
    typed_form: TokenForm,
}

struct CreatedToken {
    name: String,
    token: String,
}

async fn render_account(req: &PageRequest, flash: AccountFlash) -> PageResult {
    let services = &req.services;
    let user = req.require_user()?;
    let current = req.current_user.session.as_ref().map(|id| id.expose());
    let page = AccountPage {
        layout: req.layout(flash.problem.prefix_title("Your account".to_owned())),
        config: &services.config,
        sessions: services.sessions.list_sessions(&user, current).await?,
        tokens: services.accounts.tokens(&user).await?,
        account_usage: load_account_usage(services, &user).await?,
        flash,
        now: Utc::now(),
        user,
    };
    render(page.flash.problem.status, &page)
}

fn describe_session_origin(origin: &SessionOrigin) -> String {
    let address = origin.address.map(|address| address.to_string());
    let parts: Vec<String> = origin.browser_label().into_iter().chain(address).collect();
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

async fn load_account_usage(services: &Services, user: &User) -> Result<AccountUsage, HttpError> {
    let datasets = &services.datasets;
    let (all, active) = datasets.count_all_and_active_datasets(user).await?;
    let mut own = datasets.list_without_attempts(user, None, limits::MAX_OWNED_DATASETS_PER_PAGE as u32).await?;
    let totals = services.usage.total_usage(user, &own, USAGE_PERIOD_DAYS).await?;
    // If the user has more datasets than one query returns, the others with the most requests are added.
    if own.len() as u64 != all {
        let mut others: Vec<_> = totals.iter().collect();
        others.sort_by_key(|(_, counts)| Reverse(counts.requests));
        others.truncate(MAX_SHOWN_DATASETS);
        others.retain(|(id, _)| own.iter().all(|dataset| dataset.id != **id));
        for (id, _) in others {
            match datasets.find_owned(user, *id).await {
                Ok(dataset) => own.push(dataset),
                Err(ManageError::DatasetNotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let counts = |dataset: &Dataset| totals.get(&dataset.id).copied().unwrap_or_default();
    own.sort_by_key(|dataset| Reverse(counts(dataset).requests));
    own.truncate(MAX_SHOWN_DATASETS);
    Ok(AccountUsage {
        active_datasets: active,
        datasets: own.iter().map(|dataset| (dataset.clone(), counts(dataset))).collect(),
        omitted_datasets: usize::try_from(all).unwrap_or(usize::MAX).saturating_sub(MAX_SHOWN_DATASETS),
    })
}

pub(super) async fn show_token_deletion(req: &mut PageRequest) -> PageResult {
    let name = req.parse_query(&["name"])?.first("name").unwrap_or_default().to_owned();
    let tokens = req.services.accounts.tokens(&req.require_user()?).await?;
    if !tokens.iter().any(|token| token.name == name) {
        return Err(ManageError::TokenNotFound.into());
    }
    let question = ConfirmationPrompt {
        title: format!("Delete the token {}?", quote_for_page(&name)),
        effects: vec![
            "Requests that use this token will return 401.".to_owned(),
            "This cannot be undone. If you create a token with the same name, the new token will get a different value."
                .to_owned(),
        ],
        action: format!("{ACCOUNT_PATH}/delete-token"),
        name: Some(name),
        button: "Delete token".to_owned(),
        is_dangerous: true,
        back: ACCOUNT_PATH.to_owned(),
        ..ConfirmationPrompt::default()
    };
    question.render_page(req, None::<DatasetHeading>, StatusCode::OK)
}

pub(super) async fn handle_account_form(req: &mut PageRequest, body: Body) -> PageResult {
    let form = receive_form(req, body).await?;
    match apply_account_form(req, &form).await {
        Ok(Some(created_token)) => {
            render_account(req, AccountFlash { created_token: Some(created_token), ..AccountFlash::default() }).await
        }
        Ok(None) => Ok(PageResponse::redirect_with_notice(&form.action, ACCOUNT_PATH)),
        Err(error) => {
            let is_wrong = matches!(error, HttpError::Manage(ManageError::WrongPassword));
            let problem = to_form_problem(req, error, &PROBLEM_FIELDS)?;
            let wrong = "this is not your current password. Your password was not changed.";
            let problem = match problem.general_text() {
                _ if is_wrong => FormProblem::for_field(problem.status, "old", wrong),
                Some(text) if form.action == "password" => FormProblem::for_field(problem.status, "old", text),
                _ => problem,
            };
            let typed = if form.action == "create-token" { TokenForm::from_form(&form) } else { TokenForm::default() };
            render_account(req, AccountFlash { problem, typed_form: typed, ..AccountFlash::default() }).await
        }
    }
}

async fn apply_account_form(req: &PageRequest, form: &SubmittedForm) -> Result<Option<CreatedToken>, HttpError> {
    let services = &req.services;
    let user = req.require_user()?;
    let field = |name| form.fields.first(name).unwrap_or_default();
    match form.action.as_str() {
        "end-session" => {
            form.check_fields(&["id"], &[])?;
            services.sessions.end_session_by_public_id(&user, field("id")).await?;
        }
        "delete-token" => {
            form.check_fields(&["name"], &[])?;
            services.accounts.delete_token(&user, field("name")).await?;
        }
        "create-token" => {
            form.check_fields(&["name", "scope", "days"], &[])?;
            form.validated_choice("scope", &[TokenScope::Read.name(), TokenScope::Write.name()])?;
            let token_form = TokenForm::from_form(form);
            let scope = if token_form.can_write { TokenScope::Write } else { TokenScope::Read };
            let (token, _) =
                services.accounts.create_token(&user, &token_form.name, scope, token_form.lifetime_s()?).await?;
            return Ok(Some(CreatedToken { name: token_form.name, token: token.expose().to_owned() }));
        }
        "password" => {
            form.check_fields(&["old", "new", "again"], &[])?;
            if field("again") != field("new") {
                let problem = "the new passwords do not match. Your password was not changed";
                return Err(invalid_field_error("again", problem));
            }
            let current = req.current_user.session.as_ref().map(|id| id.expose());
            let client = req.current_user.client;
            services.logins.change_password(client, &user, field("old"), field("new"), current).await?;
        }
        _ => return Err(HttpError::PathNotFound),
    }
    Ok(None)
}
