//! What the handlers of forms have in common: the form of a page of the session, the owner's dataset, and what is said
//! of a wrong field, beside it.

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use strata_catalog::DatasetView;
use strata_http::error::{CallError, HttpError};
use strata_http::visit::{self, quoted};
use strata_service::{BodyRoom, ManageError, ReadError};
use strata_types::limits::{FORM_BYTES, USER_FORM_BYTES};
use strata_types::text::with_names;
use strata_types::version::VersionSelector;

use super::forms;
use super::opened::{Heading, Tab};
use super::place::{DatasetPlace, Place};
use super::query::{Query, whole_number};
use super::visit::{Reply, Shell, Visit, render};

/// A form that a page of the session has made.
pub(super) struct Sent {
    /// The last name of its path.
    pub(super) action: String,
    pub(super) fields: Query,
    /// Of a large one, until it is dealt with.
    pub(super) _room: Option<BodyRoom>,
}

impl Sent {
    /// The value of a field, without the blanks around it; nothing where it is not there.
    pub(super) fn trimmed(&self, name: &str) -> &str {
        self.fields.first(name).unwrap_or_default().trim()
    }

    /// The same; `None` where it is empty.
    pub(super) fn optional(&self, name: &str) -> Option<&str> {
        Some(self.trimmed(name)).filter(|text| !text.is_empty())
    }

    /// The value of a field whose page offers these; 400 for any other.
    pub(super) fn chosen(&self, name: &str, of: &[&str]) -> Result<&str, HttpError> {
        let value = self.fields.first(name).unwrap_or_default();
        let wrong =
            || format!("the field {} has the invalid value {}; valid: {}", quoted(name), quoted(value), of.join(", "));
        if of.contains(&value) { Ok(value) } else { Err(not_the_form(&wrong())) }
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

    /// Checks that the fields are those that the form of the page sends: each of `texts` once, and each of `boxes` once
    /// where it is ticked. What is absent would be taken for empty, and a setting be cleared that nobody has cleared.
    pub(super) fn check(&self, texts: &[&str], boxes: &[&str]) -> Result<(), HttpError> {
        let pairs = self.fields.pairs();
        let known = || [forms::TOKEN].into_iter().chain(texts.iter().chain(boxes).copied());
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
        match lacking.as_slice() {
            [] => Ok(()),
            [field] => Err(not_the_form(&format!("missing field: {field}"))),
            fields => Err(not_the_form(&format!("missing fields: {}", fields.join(", ")))),
        }
    }

    pub(super) fn ticked(&self, name: &str) -> bool {
        self.fields.first(name).is_some()
    }
}

/// 400 for what a page of ours does not send.
pub(super) fn not_the_form(problem: &str) -> HttpError {
    let text = format!("The request does not match the form on this page: {problem}.");
    HttpError::Invalid { status: StatusCode::BAD_REQUEST, text }
}

/// 400 for what was filled into a field.
pub(super) fn invalid_field(field: &'static str, problem: impl Into<String>) -> HttpError {
    ManageError::Invalid { field, problem: problem.into() }.into()
}

/// What a form will do, as its page asks before it is done.
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
    /// `None` where it is about no dataset.
    heading: Option<Heading>,
    question: Question,
}

impl Question {
    pub(super) fn page(
        self,
        visit: &Visit,
        heading: impl Into<Option<Heading>>,
        status: StatusCode,
    ) -> Result<Reply, HttpError> {
        let heading = heading.into();
        render(status, &ConfirmPage { shell: visit.shell(self.title.clone()), heading, question: self })
    }
}

pub(super) struct Own {
    pub(super) place: DatasetPlace,
    pub(super) view: DatasetView,
}

impl Own {
    pub(super) fn heading(&self, visit: &Visit, tab: Tab) -> Heading {
        Heading::around(visit, &self.view.dataset, &self.active(), tab)
    }

    pub(super) fn active(&self) -> Place {
        self.place.version(VersionSelector::Active, false)
    }
}

/// The dataset of a page that asks before something is done, and that takes no parameter.
pub(super) async fn asked(visit: &mut Visit) -> Result<Own, HttpError> {
    visit.query(&[])?;
    let own = own(visit).await?;
    visit.dataset = Some(own.place.clone());
    Ok(own)
}

/// The form of a user. It is read before anything is refused: what was typed is shown again when the session has ended
/// meanwhile.
pub(super) async fn received(visit: &mut Visit, body: Body) -> Result<Sent, HttpError> {
    let limit_bytes = if visit.visitor.user.is_some() { USER_FORM_BYTES } else { FORM_BYTES };
    let received = visit.fields_within(body, limit_bytes).await;
    let user = visit.user();
    let (fields, room) = match (received, &user) {
        (Ok(received), _) => received,
        // Whoever is to sign in first is told that.
        (Err(HttpError::Call(CallError::TooLarge { .. })), Err(_)) => (Vec::new(), None),
        (Err(error), _) => return Err(error),
    };
    visit.typed = typed(&fields);
    user?;
    visit.check_token(&fields)?;
    visit.typed = None;
    let action = visit.head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    Ok(Sent { action, fields: fields.into_iter().collect(), _room: room })
}

/// The texts that were typed into a form, but for secrets; `None` where there are none.
fn typed(fields: &[(String, String)]) -> Option<String> {
    const TYPED: [&str; 10] =
        ["name", "description", "licence", "source", "records_path", "always", "never", "schedule", "url", "positions"];
    let texts = fields.iter().filter(|(name, text)| TYPED.contains(&name.as_str()) && !text.trim().is_empty());
    let texts: Vec<String> = texts.map(|(name, text)| format!("{name}: {text}")).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

pub(super) async fn received_of_owner(visit: &mut Visit, body: Body) -> Result<(Own, Sent), HttpError> {
    let sent = received(visit, body).await?;
    let own = own(visit).await?;
    visit.dataset = Some(own.place.clone());
    Ok((own, sent))
}

/// The dataset that the path names, which must be the visitor's: a dataset of somebody else is what a missing one is.
pub(super) async fn own(visit: &Visit) -> Result<Own, HttpError> {
    let place = DatasetPlace::parse(visit.head.uri.path())?;
    let view = visit.app.datasets().view(&visit.user()?, place.id).await?;
    match view.dataset.name.slug() == place.slug {
        true => Ok(Own { place, view }),
        false => Err(ReadError::DatasetNotFound.into()),
    }
}

/// What is said of a form that was not taken: beside the field, or above all where it is of none.
#[derive(Debug, Default)]
pub(super) struct Problem(Option<(Option<&'static str>, String)>);

impl Problem {
    pub(super) fn at(field: &'static str, text: &str) -> Problem {
        Problem(Some((Some(field), sentence(&with_names(text)))))
    }

    pub(super) fn of(&self, field: &str) -> Option<&str> {
        self.0.as_ref().filter(|(wrong, _)| *wrong == Some(field)).map(|(_, text)| text.as_str())
    }

    /// The same, said above all: its field is not on the page.
    pub(super) fn above(self) -> Problem {
        Problem(self.0.map(|(_, text)| (None, text)))
    }

    /// The title of a page, which says first that something is wrong.
    pub(super) fn title(&self, title: String) -> String {
        if self.0.is_some() { format!("Error: {title}") } else { title }
    }

    /// What is of no field.
    pub(super) fn general(&self) -> Option<&str> {
        self.0.as_ref().filter(|(wrong, _)| wrong.is_none()).map(|(_, text)| text.as_str())
    }
}

/// The status and the problem of an error that is the visitor's: of a field if it is one of these.
pub(super) fn problem(
    visit: &mut Visit,
    error: HttpError,
    fields: &[&'static str],
) -> Result<(StatusCode, Problem), HttpError> {
    match error {
        HttpError::Manage(ManageError::Invalid { field, problem }) if fields.contains(&field) => {
            Ok((StatusCode::BAD_REQUEST, Problem::at(field, &problem)))
        }
        // The field is the one that it speaks of.
        error @ HttpError::Manage(ManageError::NameTaken | ManageError::TokenNameTaken) if fields.contains(&"name") => {
            let told = visit::told(error, &visit.head);
            Ok((told.status, Problem(Some((Some("name"), told.text)))))
        }
        // It speaks of operations.
        HttpError::Manage(ManageError::HasVersions) => {
            let text = "You cannot delete a dataset that has versions. To take the dataset offline, freeze it.";
            Ok((StatusCode::CONFLICT, Problem(Some((None, text.to_owned())))))
        }
        error @ (HttpError::Manage(
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
        )
        | HttpError::Refresh(_)) => {
            let (status, text) = visit.tell(error);
            Ok((status, Problem(Some((None, text)))))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_each_of_its_fields_once_and_no_other() {
        let check = |body: &str| {
            let sent = Sent { action: String::new(), fields: Query::parse(Some(body)), _room: None };
            sent.check(&["name", "source"], &["private"]).map_err(|error| match error {
                HttpError::Invalid { status, text } => (status.as_u16(), text),
                error => panic!("{error:?}"),
            })
        };
        for body in ["token=t&name=a&source=", "source=&private=true&token=t&name="] {
            assert_eq!(check(body), Ok(()), "{body}");
        }
        for (body, problem) in [
            ("token=t", "missing fields: name, source"),
            ("token=t&name=&private=true", "missing field: source"),
            ("token=t&name=&source=&name=", "the field \"name\" appears more than once"),
            ("token=t&name=&source=&nam=", "unknown field \"nam\"; valid: token, name, source, private"),
            ("token=t&token=t&name=&source=", "the field \"token\" appears more than once"),
        ] {
            let text = format!("The request does not match the form on this page: {problem}.");
            assert_eq!(check(body), Err((400, text)), "{body}");
        }
    }

    #[test]
    fn a_problem_is_said_where_it_is() {
        let problem = Problem::at("url", "it is missing; valid: a URL");
        assert_eq!(problem.of("url"), Some("It is missing; valid: a URL."));
        assert_eq!((problem.of("secret"), problem.general()), (None, None));
        assert_eq!(sentence("Éa."), "Éa.");
        assert_eq!(Problem::default().general(), None);
    }
}
