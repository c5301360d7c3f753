//! The page on which an entity is edited as a text, with a preview and with what another user has saved since.
//!
//! The server stores nothing between two requests: a form contains the text, the etag of the list that it was made
//! from, and the entity as it was.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::visit::BaseUrl;
use strata_runtime::blocking::blocking;
use strata_service::{BodyRoom, ManageError};
use strata_types::limits::EDITOR_BYTES;

use super::change::{self, Target};
use super::list::List;
use super::neighbours::Neighbours;
use super::text::Mistake;
use crate::context::{Heading, Tab};
use crate::entity_diff::Compared;
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::query::Query;
use crate::safe_text::SafeText;
use crate::urls::Place;
use crate::visit::{PageResult, Shell, Visit, render};

const LINES_AT_LEAST: usize = 8;
const LINES_SHOWN: usize = 32;

/// How often a save that other users overtake is repeated.
pub(super) const TRIES: usize = 3;

/// Conflicting fields, or new entities, that a page names.
pub(super) const NAMED: usize = 20;

#[derive(Template)]
#[template(path = "editor.html")]
struct EditorPage<'a> {
    shell: Shell,
    heading: Heading,
    title: String,
    is_new: bool,
    list: String,
    said: Flash,
    /// The page of the entity.
    entity: String,
    back: String,
    draft: &'a Draft,
    position: String,
    api: String,
}

/// The effect of saving the text.
pub(super) struct Preview {
    pub(super) tables: Vec<Compared>,
    pub(super) left_out: usize,
    pub(super) note: Option<&'static str>,
    pub(super) call: SafeText,
}

/// The change of another user, and the one that was not saved.
pub(super) struct Conflict {
    pub(super) theirs: Option<Compared>,
    pub(super) mine: Option<Compared>,
    /// The fields that both have changed.
    pub(super) both: Vec<SafeText>,
    pub(super) can_merge: bool,
    pub(super) diff: String,
}

#[derive(Clone, Default)]
pub(super) struct Draft {
    /// Whether the text becomes a new entity.
    pub(super) is_new: bool,
    pub(super) position: u64,
    /// The length and the etag of the list that the form was made from.
    pub(super) length: u64,
    pub(super) etag: String,
    /// The entity as it was.
    pub(super) base: String,
    pub(super) text: String,
    pub(super) beside: Neighbours,
}

#[derive(Default)]
pub(super) struct Flash {
    pub(super) status: StatusCode,
    pub(super) notes: Vec<String>,
    pub(super) alert: Option<String>,
    /// A mistake in the text. The script does not repeat it.
    pub(super) problem: Option<Mistake>,
    pub(super) position_problem: Option<String>,
    pub(super) typed_position: Option<String>,
    pub(super) conflict: Option<Conflict>,
    pub(super) is_removed: bool,
    pub(super) preview: Option<Preview>,
    /// Whether the entity is too large for the editor.
    pub(super) too_large: bool,
}

impl Draft {
    pub(super) fn sent(sent: &SubmittedForm, is_new: bool, position: u64) -> Result<Draft, HttpError> {
        let field = |name| sent.fields.first(name).unwrap_or_default().to_owned();
        Ok(Draft {
            is_new,
            position,
            length: sent.number("length")?,
            etag: field("etag"),
            base: field("base"),
            text: field("text").replace("\r\n", "\n"),
            beside: Neighbours::parse(&field("beside")),
        })
    }

    pub(super) fn on(&self, list: &List) -> Draft {
        Draft { etag: list.etag.clone(), length: list.length, beside: list.beside.clone(), ..self.clone() }
    }

    pub(super) fn status_of_mistake(&self) -> StatusCode {
        if self.text.len() > EDITOR_BYTES { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
    }

    /// Parses the text, on a separate thread if it is long: those that serve requests must not wait for it.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: fn(&str) -> Result<T, Mistake>,
    ) -> Result<Result<T, Mistake>, HttpError> {
        if !BodyRoom::is_needed(self.text.len() as u64) {
            return Ok(read(&self.text));
        }
        let text = self.text.clone();
        Ok(blocking(move || read(&text)).await.map_err(|error| ManageError::Storage(error.into()))?)
    }
}

pub(super) fn too_large() -> HttpError {
    let text = "This entity is too large for the editor. Use POST /dataset/alternate/edit instead.".to_owned();
    HttpError::Invalid { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

pub(super) fn failed(visit: &mut Visit, error: HttpError) -> Flash {
    let (status, alert) = visit.tell(error);
    Flash { status, alert: Some(alert), ..Flash::default() }
}

pub(super) fn page(visit: &Visit, target: &Target, list: &List, draft: &Draft, said: Flash) -> PageResult {
    let Target { dataset, place, .. } = target;
    let title = match draft.is_new {
        true if said.is_removed => "Add the entity again or discard your changes".to_owned(),
        true => "Add entities".to_owned(),
        false => format!("Edit entity {}", format::grouped(draft.position)),
    };
    let entity = Place { alt: list.is_alternate, ..place.clone() }.entity(draft.position);
    let page = EditorPage {
        shell: visit.shell(format!("{title}, {}", dataset.name.as_str())),
        heading: Heading::for_dataset(visit, dataset, place, Tab::Versions),
        title,
        is_new: draft.is_new,
        list: change::name(target, list),
        back: if dataset.frozen || draft.is_new { place.alternate() } else { entity.clone() },
        entity,
        draft,
        position: said.typed_position.clone().unwrap_or_else(|| draft.position.to_string()),
        said,
        api: BaseUrl::of(&visit.head, &visit.services).url("/dataset/alternate/edit"),
    };
    render(page.said.status, &page)
}
