//! The page that edits entities as text. It shows a preview, and conflicts with other users' changes.
//!
//! The server stores no drafts. The form contains the text, the ETag of the list, and the entity before the edit.

use askama::Template;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_runtime::blocking::run_blocking;
use strata_service::{BodyReservation, ManageError};
use strata_types::limits::MAX_EDITOR_TEXT_BYTES;

use super::edit_target::{self, EditTarget};
use super::editable_list::EditableList;
use super::entity_text::EntityTextError;
use super::neighbors::EntityNeighbors;
use crate::context::{DatasetHeading, DatasetTab};
use crate::entity_diff::EntityComparison;
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::page_request::{PageLayout, PageRequest, PageResult, render};
use crate::query_params::QueryParams;
use crate::safe_text::SafeText;
use crate::urls::VersionUrls;

const MIN_EDITOR_LINES: usize = 8;
const MAX_EDITOR_LINES: usize = 32;
pub(super) const MAX_SAVE_ATTEMPTS: usize = 3;
pub(super) const MAX_NAMED_ITEMS: usize = 20;

#[derive(Template)]
#[template(path = "editor.html")]
struct EditorPage<'a> {
    layout: PageLayout,
    heading: DatasetHeading,
    title: String,
    is_new: bool,
    list_description: String,
    flash: EditorFlash,
    entity: String,
    back: String,
    draft: &'a EditDraft,
    position: String,
    api: String,
}

pub(super) struct EditPreview {
    pub(super) tables: Vec<EntityComparison>,
    pub(super) omitted_count: usize,
    pub(super) note: Option<&'static str>,
    pub(super) api_call: SafeText,
}

#[derive(Default)]
pub(super) struct EditConflict {
    pub(super) theirs: Option<EntityComparison>,
    pub(super) mine: Option<EntityComparison>,
    pub(super) conflicting_fields: Vec<SafeText>,
    pub(super) can_merge: bool,
    pub(super) diff: String,
}

#[derive(Clone, Default)]
pub(super) struct EditDraft {
    pub(super) is_new: bool,
    pub(super) position: u64,
    pub(super) list_length: u64,
    pub(super) etag: String,
    pub(super) base: String,
    pub(super) text: String,
    pub(super) neighbors: EntityNeighbors,
}

#[derive(Default)]
pub(super) struct EditorFlash {
    pub(super) status: StatusCode,
    pub(super) notes: Vec<String>,
    pub(super) alert: Option<String>,
    /// A mistake in the submitted text. If it is set, the page's script does not check the text, to avoid two messages.
    pub(super) problem: Option<EntityTextError>,
    pub(super) position_problem: Option<String>,
    pub(super) typed_position: Option<String>,
    pub(super) conflict: Option<EditConflict>,
    pub(super) is_removed: bool,
    pub(super) preview: Option<EditPreview>,
    pub(super) too_large: bool,
}

impl EditDraft {
    pub(super) fn from_form(form: &SubmittedForm, is_new: bool, position: u64) -> Result<EditDraft, HttpError> {
        let field = |name| form.fields.first(name).unwrap_or_default().to_owned();
        Ok(EditDraft {
            is_new,
            position,
            list_length: form.parse_number("length")?,
            etag: field("etag"),
            base: field("base"),
            text: field("text").replace("\r\n", "\n"),
            neighbors: EntityNeighbors::parse(&field("beside")),
        })
    }

    pub(super) fn rebased_on(&self, list: &EditableList) -> EditDraft {
        let EditableList { etag, length, neighbors, .. } = list;
        EditDraft { etag: etag.clone(), list_length: *length, neighbors: neighbors.clone(), ..self.clone() }
    }

    pub(super) fn text_error_status(&self) -> StatusCode {
        if self.text.len() > MAX_EDITOR_TEXT_BYTES { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
    }

    /// Parses the submitted text. A long text is parsed on a worker thread, because connection threads must not block.
    pub(super) async fn parse_text<T: Send + 'static>(
        &self,
        parse: fn(&str) -> Result<T, EntityTextError>,
    ) -> Result<Result<T, EntityTextError>, HttpError> {
        if !BodyReservation::is_reservation_needed(self.text.len() as u64) {
            return Ok(parse(&self.text));
        }
        let text = self.text.clone();
        Ok(run_blocking(move || parse(&text)).await.map_err(|error| ManageError::Storage(error.into()))?)
    }
}

pub(super) fn entity_too_large_error() -> HttpError {
    let text = "This entity is too large for the editor. Use POST /dataset/alternate/edit instead.".to_owned();
    HttpError::InvalidRequest { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

pub(super) fn flash_from_error(req: &mut PageRequest, error: HttpError) -> EditorFlash {
    let (status, alert) = req.log_and_render(error);
    EditorFlash { status, alert: Some(alert), ..EditorFlash::default() }
}

pub(super) fn render_editor(
    req: &PageRequest,
    target: &EditTarget,
    list: &EditableList,
    draft: &EditDraft,
    flash: EditorFlash,
) -> PageResult {
    let EditTarget { dataset, urls, .. } = target;
    let title = match draft.is_new {
        true if flash.is_removed => "Add the entity again or discard your changes".to_owned(),
        true => "Add entities".to_owned(),
        false => format!("Edit entity {}", format::group_thousands(draft.position)),
    };
    let entity = VersionUrls { alt: list.is_alternate, ..urls.clone() }.entity_url(draft.position);
    let page = EditorPage {
        layout: req.layout(format!("{title}, {}", dataset.name.as_str())),
        heading: DatasetHeading::for_dataset(req, dataset, urls, DatasetTab::Versions),
        title,
        is_new: draft.is_new,
        list_description: edit_target::describe_editable_list(target, list),
        back: if dataset.frozen || draft.is_new { urls.alternate_url() } else { entity.clone() },
        entity,
        draft,
        position: flash.typed_position.clone().unwrap_or_else(|| draft.position.to_string()),
        flash,
        api: req.absolute_url("/dataset/alternate/edit"),
    };
    render(page.flash.status, &page)
}
