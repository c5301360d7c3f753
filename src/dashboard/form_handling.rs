//! What the handlers of forms have in common: the form of a page of the session, the owner's dataset, and the problem
//! that is shown next to a field.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use strata_catalog::DatasetView;
use strata_http::error::{CallError, HttpError};
use strata_http::visit::quoted;
use strata_service::{BodyRoom, ManageError, ReadError};
use strata_types::limits::{FORM_BYTES, USER_FORM_BYTES};
use strata_types::text::with_names;
use strata_types::version::VersionSelector;

use super::context::{Heading, Tab};
use super::form_tokens;
use super::query::{Query, whole_number};
use super::urls::{DatasetPlace, Place};
use super::visit::{PageResult, Shell, Visit, render};

/// A form that a page of the session has made.
pub(super) struct SubmittedForm {
    /// The last part of its path.
    pub(super) action: String,
    pub(super) fields: Query,
    /// The memory of a large form.
    pub(super) room: Option<BodyRoom>,
}

impl SubmittedForm {
    pub(super) fn trimmed(&self, name: &str) -> &str {
        self.fields.first(name).unwrap_or_default().trim()
    }

    /// The value of a field that must have one of these values; 400 for any other.
    pub(super) fn chosen(&self, name: &str, of: &[&str]) -> Result<&str, HttpError> {
        let value = self.fields.first(name).unwrap_or_default();
        if of.contains(&value) {
            return Ok(value);
        }
        let valid = of.join(", ");
        let wrong = format!("the field {} has the invalid value {}; valid: {valid}", quoted(name), quoted(value));
        Err(not_the_form(&wrong))
    }

    /// Checks that a button that was pressed is one of the form; 400 for any other.
    pub(super) fn check_pressed(&self, name: &str, of: &[&str]) -> Result<(), HttpError> {
        self.fields.first(name).map_or(Ok(()), |_| self.chosen(name, of).map(|_| ()))
    }

    /// A number that the page has put into its form; 400 for anything else.
    pub(super) fn number(&self, name: &str) -> Result<u64, HttpError> {
        let value = self.fields.first(name).unwrap_or_default();
        let wrong = || format!("the field {} must be a whole number, but is {}", quoted(name), quoted(value));
        whole_number(value).and_then(|_| value.parse().ok()).ok_or_else(|| not_the_form(&wrong()))
    }

    /// Checks that the form has each of `texts` once, each of `boxes` at most once, and no other field. An absent text
    /// would otherwise clear a setting.
    pub(super) fn check(&self, texts: &[&str], boxes: &[&str]) -> Result<(), HttpError> {
        let pairs = self.fields.pairs();
        let known = || [form_tokens::TOKEN].into_iter().chain(texts.iter().chain(boxes).copied());
        for (place, (name, _)) in pairs.iter().enumerate() {
            if !known().any(|known| known == name) {
                let valid = known().collect::<Vec<_>>().join(", ");
                return Err(not_the_form(&format!("unknown field {}; valid: {valid}", quoted(name))));
            }
            if pairs[..place].iter().any(|(before, _)| before == name) {
                return Err(not_the_form(&format!("the field {} appears more than once", quoted(name))));
            }
        }
        let lacking: Vec<&str> = texts.iter().copied().filter(|text| self.fields.first(text).is_none()).collect();
        let plural = if lacking.len() > 1 { "s" } else { "" };
        match lacking.is_empty() {
            true => Ok(()),
            false => Err(not_the_form(&format!("missing field{plural}: {}", lacking.join(", ")))),
        }
    }

    pub(super) fn ticked(&self, name: &str) -> bool {
        self.fields.first(name).is_some()
    }
}

/// 400 for a request that no page sends.
pub(super) fn not_the_form(problem: &str) -> HttpError {
    let text = format!("The request does not match the form on this page: {problem}.");
    HttpError::Invalid { status: StatusCode::BAD_REQUEST, text }
}

pub(super) fn invalid_field(field: &'static str, problem: impl Into<String>) -> HttpError {
    ManageError::Invalid { field, problem: problem.into() }.into()
}

/// The page that lists the effects of an action and asks for a confirmation.
#[derive(Default)]
pub(super) struct Question {
    pub(super) title: String,
    pub(super) effects: Vec<String>,
    pub(super) action: String,
    pub(super) version: Option<u64>,
    pub(super) etag: Option<String>,
    pub(super) name: Option<String>,
    pub(super) button: String,
    pub(super) danger: bool,
    pub(super) back: String,
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    shell: Shell,
    /// `None` on the account page.
    heading: Option<Heading>,
    question: Question,
}

impl Question {
    pub(super) fn page(self, visit: &Visit, heading: impl Into<Option<Heading>>, status: StatusCode) -> PageResult {
        let shell = visit.shell(self.title.clone());
        render(status, &ConfirmPage { shell, heading: heading.into(), question: self })
    }
}

pub(super) struct OwnerContext {
    pub(super) place: DatasetPlace,
    pub(super) view: DatasetView,
}

impl OwnerContext {
    pub(super) fn heading(&self, visit: &Visit, tab: Tab) -> Heading {
        Heading::for_dataset(visit, &self.view.dataset, &self.active(), tab)
    }

    pub(super) fn active(&self) -> Place {
        self.place.version(VersionSelector::Active, false)
    }
}

/// The dataset of a confirmation page, which has no parameters.
pub(super) async fn asked(visit: &mut Visit) -> Result<OwnerContext, HttpError> {
    visit.query(&[])?;
    let own = own(visit).await?;
    visit.dataset = Some(own.place.clone());
    Ok(own)
}

/// The form of a user. The form is read before the session is checked: if the session has ended, the error page shows
/// the typed text again.
pub(super) async fn received(visit: &mut Visit, body: Body) -> Result<SubmittedForm, HttpError> {
    let limit_bytes = if visit.visitor.user.is_some() { USER_FORM_BYTES } else { FORM_BYTES };
    let received = visit.fields_within(body, limit_bytes).await;
    let user = visit.user();
    let (fields, room) = match (received, &user) {
        (Ok(received), _) => received,
        (Err(HttpError::Call(CallError::TooLarge { .. })), Err(_)) => (Vec::new(), None),
        (Err(error), _) => return Err(error),
    };
    visit.typed = typed(&fields);
    user?;
    visit.check_token(&fields)?;
    visit.typed = None;
    let action = visit.head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(SubmittedForm { action, fields: fields.into_iter().collect(), room })
}

/// The texts of a form without secrets.
fn typed(fields: &[(String, String)]) -> Option<String> {
    const TYPED: [&str; 10] =
        ["name", "description", "licence", "source", "records_path", "always", "never", "schedule", "url", "positions"];
    let texts = fields.iter().filter(|(name, text)| TYPED.contains(&name.as_str()) && !text.trim().is_empty());
    let texts: Vec<String> = texts.map(|(name, text)| format!("{name}: {text}")).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

pub(super) async fn received_of_owner(
    visit: &mut Visit,
    body: Body,
) -> Result<(OwnerContext, SubmittedForm), HttpError> {
    let sent = received(visit, body).await?;
    let own = own(visit).await?;
    visit.dataset = Some(own.place.clone());
    Ok((own, sent))
}

/// The visitor's dataset that the path names; 404 for a dataset of another user.
pub(super) async fn own(visit: &Visit) -> Result<OwnerContext, HttpError> {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let view = visit.services.datasets.view(&visit.user()?, place.id).await?;
    match view.dataset.name.slug() == place.slug {
        true => Ok(OwnerContext { place, view }),
        false => Err(ReadError::DatasetNotFound.into()),
    }
}

/// Why a form was refused: shown next to its field, or above all forms if there is none.
#[derive(Debug, Default)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    field: Option<&'static str>,
    text: Option<String>,
}

impl Problem {
    pub(super) fn at(status: StatusCode, field: &'static str, text: &str) -> Problem {
        Problem { status, field: Some(field), text: Some(sentence(&with_names(text))) }
    }

    pub(super) fn of(&self, field: &str) -> Option<&str> {
        self.text.as_deref().filter(|_| self.field == Some(field))
    }

    pub(super) fn general(&self) -> Option<&str> {
        self.text.as_deref().filter(|_| self.field.is_none())
    }

    /// The same above all forms, because the page does not have the field.
    pub(super) fn above(self) -> Problem {
        Problem { field: None, ..self }
    }

    pub(super) fn title(&self, title: String) -> String {
        if self.text.is_some() { format!("Error: {title}") } else { title }
    }
}

/// The problem that an error of the visitor is, next to its field if the page has it among `fields`. Other errors are
/// returned as they are.
pub(super) fn problem(visit: &mut Visit, error: HttpError, fields: &[&'static str]) -> Result<Problem, HttpError> {
    match error {
        HttpError::Manage(ManageError::Invalid { field, problem }) if fields.contains(&field) => {
            Ok(Problem::at(StatusCode::BAD_REQUEST, field, &problem))
        }
        // The text of this error names operations.
        HttpError::Manage(ManageError::HasVersions) => {
            let text = "You cannot delete a dataset that has versions. To take the dataset offline, freeze it.";
            Ok(Problem { status: StatusCode::CONFLICT, field: None, text: Some(text.to_owned()) })
        }
        HttpError::Refresh(_)
        | HttpError::Manage(
            ManageError::Invalid { .. }
            | ManageError::NameTaken
            | ManageError::PlanLimit { .. }
            | ManageError::PlanWebhooks
            | ManageError::WebhookNotFound
            | ManageError::Busy
            | ManageError::Public
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
            let (status, text) = visit.tell(error);
            Ok(Problem { status, field, text: Some(text) })
        }
        error => Err(error),
    }
}

/// A text with a capital at its beginning and a full stop at its end.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if text.ends_with(['.', '?', '!']) { "" } else { "." };
    format!("{first}{}{end}", characters.as_str())
}
