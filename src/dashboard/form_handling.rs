//! Helpers for form handlers: receive a form, check its fields, and turn errors into problems shown next to a field.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use strata_catalog::DatasetView;
use strata_http::error::{CallError, HttpError};
use strata_http::page_support::quote_for_page;
use strata_service::{BodyReservation, ManageError, ReadError};
use strata_types::invisible_text::format_escapes_as_code_points;
use strata_types::limits::{MAX_SMALL_FORM_BYTES, MAX_USER_FORM_BYTES};

use super::context::{DatasetHeading, DatasetTab};
use super::form_tokens;
use super::page_request::{PageLayout, PageRequest, PageResult, render};
use super::query_params::{QueryParams, parse_whole_number};
use super::urls::DatasetUrls;

/// A submitted form with a valid form token of the visitor's session.
pub(super) struct SubmittedForm {
    pub(super) action: String,
    pub(super) fields: QueryParams,
    /// The memory reservation of a large form; `None` for a small form.
    pub(super) body_reservation: Option<BodyReservation>,
}

impl SubmittedForm {
    pub(super) fn trimmed_value(&self, name: &str) -> &str {
        self.fields.first(name).unwrap_or_default().trim()
    }

    /// Returns the value of a field if it is one of `choices`; 400 otherwise.
    pub(super) fn validated_choice(&self, name: &str, choices: &[&str]) -> Result<&str, HttpError> {
        let value = self.fields.first(name).unwrap_or_default();
        if choices.contains(&value) {
            return Ok(value);
        }
        let [field, value] = [name, value].map(quote_for_page);
        let valid = choices.join(", ");
        Err(form_mismatch_error(&format!("the field {field} has the invalid value {value}; valid: {valid}")))
    }

    pub(super) fn check_optional_choice(&self, name: &str, choices: &[&str]) -> Result<(), HttpError> {
        self.fields.first(name).map_or(Ok(()), |_| self.validated_choice(name, choices).map(|_| ()))
    }

    pub(super) fn parse_number(&self, name: &str) -> Result<u64, HttpError> {
        let value = self.fields.first(name).unwrap_or_default();
        let wrong =
            || format!("the field {} must be a whole number, but is {}", quote_for_page(name), quote_for_page(value));
        parse_whole_number(value).and_then(|_| value.parse().ok()).ok_or_else(|| form_mismatch_error(&wrong()))
    }

    /// Returns 400 unless the form has each text field of `texts` once, each checkbox of `boxes` at most once, and no
    /// other field. A missing text field would otherwise clear a setting.
    pub(super) fn check_fields(&self, texts: &[&str], boxes: &[&str]) -> Result<(), HttpError> {
        let pairs = self.fields.pairs();
        let known = || [form_tokens::TOKEN_FIELD].into_iter().chain(texts.iter().chain(boxes).copied());
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known().any(|known| known == name) {
                let valid = known().collect::<Vec<_>>().join(", ");
                return Err(form_mismatch_error(&format!("unknown field {}; valid: {valid}", quote_for_page(name))));
            }
            if pairs[..index].iter().any(|(before, _)| before == name) {
                return Err(form_mismatch_error(&format!("the field {} appears more than once", quote_for_page(name))));
            }
        }
        let missing: Vec<&str> = texts.iter().copied().filter(|text| self.fields.first(text).is_none()).collect();
        let plural = if missing.len() > 1 { "s" } else { "" };
        match missing.is_empty() {
            true => Ok(()),
            false => Err(form_mismatch_error(&format!("missing field{plural}: {}", missing.join(", ")))),
        }
    }

    pub(super) fn is_checked(&self, name: &str) -> bool {
        self.fields.first(name).is_some()
    }
}

/// Returns the 400 error for a form with fields that no page of the dashboard sends.
pub(super) fn form_mismatch_error(problem: &str) -> HttpError {
    let text = format!("The request does not match the form on this page: {problem}.");
    HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text }
}

pub(super) fn invalid_field_error(field: &'static str, problem: impl Into<String>) -> HttpError {
    ManageError::InvalidField { field, problem: problem.into() }.into()
}

#[derive(Default)]
pub(super) struct ConfirmationPrompt {
    pub(super) title: String,
    pub(super) effects: Vec<String>,
    pub(super) action: String,
    pub(super) version: Option<u64>,
    pub(super) etag: Option<String>,
    pub(super) name: Option<String>,
    pub(super) button: String,
    pub(super) is_dangerous: bool,
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    layout: PageLayout,
    heading: Option<DatasetHeading>,
    prompt: ConfirmationPrompt,
}

impl ConfirmationPrompt {
    pub(super) fn render_page(
        self,
        req: &PageRequest,
        heading: impl Into<Option<DatasetHeading>>,
        status: StatusCode,
    ) -> PageResult {
        let layout = req.layout(self.title.clone());
        render(status, &ConfirmPage { layout, heading: heading.into(), prompt: self })
    }
}

pub(super) struct OwnerContext {
    pub(super) urls: DatasetUrls,
    pub(super) view: DatasetView,
}

impl OwnerContext {
    pub(super) fn heading(&self, req: &PageRequest, tab: DatasetTab) -> DatasetHeading {
        DatasetHeading::for_dataset(req, &self.view.dataset, &self.urls.active_version(), tab)
    }
}

pub(super) async fn load_confirmation_context(req: &mut PageRequest) -> Result<OwnerContext, HttpError> {
    req.parse_query(&[])?;
    let own = load_owner_context(req).await?;
    req.dataset_urls = Some(own.urls.clone());
    Ok(own)
}

/// Receives a user's form. The body is read before the session is checked, so that error pages can show typed text.
pub(super) async fn receive_form(req: &mut PageRequest, body: Body) -> Result<SubmittedForm, HttpError> {
    let limit_bytes = if req.current_user.user.is_some() { MAX_USER_FORM_BYTES } else { MAX_SMALL_FORM_BYTES };
    let received = req.read_form_fields(body, limit_bytes).await;
    let user = req.require_user();
    let (fields, body_reservation) = match (received, &user) {
        (Ok(received), _) => received,
        (Err(HttpError::Call(CallError::BodyTooLarge { .. })), Err(_)) => (Vec::new(), None),
        (Err(error), _) => return Err(error),
    };
    req.typed_text = collect_typed_text(&fields);
    user?;
    req.check_form_token(&fields)?;
    req.typed_text = None;
    let action = req.head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(SubmittedForm { action, fields: fields.into_iter().collect(), body_reservation })
}

fn collect_typed_text(fields: &[(String, String)]) -> Option<String> {
    const TEXT_FIELDS: [&str; 10] =
        ["name", "description", "licence", "source", "records_path", "always", "never", "schedule", "url", "positions"];
    let texts = fields.iter().filter(|(name, text)| TEXT_FIELDS.contains(&name.as_str()) && !text.trim().is_empty());
    let texts: Vec<String> = texts.map(|(name, text)| format!("{name}: {text}")).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

pub(super) async fn receive_owner_form(
    req: &mut PageRequest,
    body: Body,
) -> Result<(OwnerContext, SubmittedForm), HttpError> {
    let form = receive_form(req, body).await?;
    let own = load_owner_context(req).await?;
    req.dataset_urls = Some(own.urls.clone());
    Ok((own, form))
}

/// Returns the visitor's dataset at the request path; 404 if another user owns it.
pub(super) async fn load_owner_context(req: &PageRequest) -> Result<OwnerContext, HttpError> {
    let urls = DatasetUrls::parse(req.head.uri.path())?;
    let view = req.services.datasets.find_owned_view(&req.require_user()?, urls.id).await?;
    match view.dataset.name.slug() == urls.slug {
        true => Ok(OwnerContext { urls, view }),
        false => Err(ReadError::DatasetNotFound.into()),
    }
}

/// The reason for rejecting a form. Pages show it next to the rejected field or, without such a field, above all forms.
#[derive(Debug, Default)]
pub(super) struct FormProblem {
    pub(super) status: StatusCode,
    field: Option<&'static str>,
    text: Option<String>,
}

impl FormProblem {
    pub(super) fn for_field(status: StatusCode, field: &'static str, text: &str) -> FormProblem {
        FormProblem { status, field: Some(field), text: Some(to_sentence(&format_escapes_as_code_points(text))) }
    }

    pub(super) fn text_for(&self, field: &str) -> Option<&str> {
        self.text.as_deref().filter(|_| self.field == Some(field))
    }

    pub(super) fn general_text(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.field.is_none())
    }

    pub(super) fn without_field(self) -> FormProblem {
        FormProblem { field: None, ..self }
    }

    pub(super) fn prefix_title(&self, title: String) -> String {
        if self.text.is_some() { format!("Error: {title}") } else { title }
    }
}

/// Converts an error that the user can correct to a problem that the page shows. Returns other errors as errors.
pub(super) fn to_form_problem(
    req: &mut PageRequest,
    error: HttpError,
    fields: &[&'static str],
) -> Result<FormProblem, HttpError> {
    match error {
        HttpError::Manage(ManageError::InvalidField { field, problem }) if fields.contains(&field) => {
            Ok(FormProblem::for_field(StatusCode::BAD_REQUEST, field, &problem))
        }
        // The message of the error `HasVersions` names API operations, so the page shows another text.
        HttpError::Manage(ManageError::HasVersions) => {
            let text = "You cannot delete a dataset that has versions. To take the dataset offline, freeze it.";
            Ok(FormProblem { status: StatusCode::CONFLICT, field: None, text: Some(text.to_owned()) })
        }
        HttpError::Refresh(_)
        | HttpError::Manage(
            ManageError::InvalidField { .. }
            | ManageError::NameTaken
            | ManageError::PlanLimit { .. }
            | ManageError::PlanWebhooks
            | ManageError::WebhookNotFound
            | ManageError::RefreshRunning
            | ManageError::NotPrivate
            | ManageError::WrongPassword
            | ManageError::TooManyLogins { .. }
            | ManageError::LoginsBusy
            | ManageError::TokenNameTaken
            | ManageError::TooManyTokens { .. }
            | ManageError::TokenNotFound
            | ManageError::SessionNotFound,
        ) => {
            let is_name = matches!(error, HttpError::Manage(ManageError::NameTaken | ManageError::TokenNameTaken));
            let field = Some("name").filter(|name| is_name && fields.contains(name));
            let (status, text) = req.log_and_render(error);
            Ok(FormProblem { status, field, text: Some(text) })
        }
        error => Err(error),
    }
}

fn to_sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", characters.as_str())
}
