//! `…/alternate/add`: adds entities, which the user types as JSON, to an alternate (an edited copy of a version).

use axum::body::Bytes;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{EntityChange, EntityEdit, ManageError};

use super::edit_target::{EditTarget, api_call_body, save_edits};
use super::editable_list::{EditableList, load_list};
use super::editor::{
    EditDraft, EditPreview, EditorFlash, MAX_NAMED_ITEMS, MAX_SAVE_ATTEMPTS, flash_from_error, render_editor,
};
use super::entity_text;
use crate::entity_diff::{ComparisonBudget, EntityComparison, LeafEquality, ShownPaths};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::page_request::{PageRequest, PageResponse, PageResult};
use crate::query_params::QueryParams;
use crate::urls::EntityPosition;

pub(super) async fn render_addition_form(req: &PageRequest, target: &EditTarget, query: &QueryParams) -> PageResult {
    let list = load_list(req, &target.urls, None).await?;
    let typed = query.first("position");
    let (position, problem) =
        typed.map_or((list.length, None), |typed| parse_insert_position(typed, list.length, list.length));
    let draft =
        EditDraft { is_new: true, position, text: "{\n  \n}".to_owned(), ..EditDraft::default().rebased_on(&list) };
    let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let typed_position = typed.filter(|_| problem.is_some()).map(str::to_owned);
    let flash = EditorFlash { status, position_problem: problem, typed_position, ..EditorFlash::default() };
    render_editor(req, target, &list, &draft, flash)
}

/// Parses the position at which an entity is inserted into a list. If the position is invalid or greater than `last`,
/// returns the position `length` (the end of the list) and the problem.
fn parse_insert_position(typed: &str, last: u64, length: u64) -> (u64, Option<String>) {
    let valid = format!("Enter a position from 0 to {length}.");
    match EntityPosition::parse(typed) {
        Err(_) => (length, Some(format!("This is not a valid position. {valid}"))),
        Ok(position) if position.is_overflow() || position.index > last => {
            (length, Some(format!("This position is past the end of the list. {valid}")))
        }
        Ok(position) => (position.index, None),
    }
}

pub(super) async fn handle_insert(req: &mut PageRequest, target: &EditTarget, mut form: SubmittedForm) -> PageResult {
    let mut list_now = load_list(req, &target.urls, None).await?;
    let typed = form.fields.first("position").unwrap_or_default().to_owned();
    let mut draft = EditDraft::from_form(&form, true, list_now.length)?;
    let last = if list_now.etag == draft.etag { list_now.length } else { u64::MAX };
    let (position, position_problem) = parse_insert_position(&typed, last, list_now.length);
    draft.position = position;
    let entities = draft.parse_text(entity_text::parse_entities).await?;
    if entities.is_err() || position_problem.is_some() {
        let status = if entities.is_err() { draft.text_error_status() } else { StatusCode::BAD_REQUEST };
        let typed_position = Some(typed);
        let flash =
            EditorFlash { status, problem: entities.err(), position_problem, typed_position, ..EditorFlash::default() };
        return render_editor(req, target, &list_now, &draft, flash);
    }
    let entities = entities.unwrap_or_default();
    let is_saved = form.fields.first("do") == Some("save");
    let edits_at = |position| {
        let list = entities.iter().map(|entity| Bytes::from(entity.clone())).collect();
        vec![EntityEdit { position, change: EntityChange::Insert(list) }]
    };
    let mut is_rebased = false;
    let mut tries_left = MAX_SAVE_ATTEMPTS;
    loop {
        if list_now.etag != draft.etag {
            // If another user has changed the list, new entities for its end are appended to the changed list.
            if !is_saved || draft.position != draft.list_length || tries_left == 0 {
                return render_stale_form(req, target, &list_now, &draft);
            }
            is_rebased = true;
            draft = EditDraft { position: list_now.length, ..draft.rebased_on(&list_now) };
        }
        if !is_saved {
            break;
        }
        tries_left -= 1;
        let notice = if is_rebased { "beside" } else { "saved" };
        match save_edits(req, target, &draft.etag, edits_at(draft.position), form.body_reservation.take()).await {
            Ok(()) => return Ok(PageResponse::redirect_with_notice(notice, &target.urls.alternate_url())),
            Err(HttpError::Manage(ManageError::Stale)) => list_now = load_list(req, &target.urls, None).await?,
            Err(error) => {
                let flash = flash_from_error(req, error);
                return render_editor(req, target, &list_now, &draft, flash);
            }
        }
    }
    let mut budget = ComparisonBudget::for_page();
    let tables = entities.iter().take(MAX_NAMED_ITEMS).enumerate().map(|(number, entity)| {
        let caption = format!("New entity {} of {}", number + 1, entities.len());
        let sides = [None, Some(entity.as_slice())];
        EntityComparison::new(caption, ["Now", "After saving"], sides, LeafEquality::Text, ShownPaths::All, &mut budget)
    });
    let tables: Vec<EntityComparison> = tables.collect();
    let api_call = api_call_body(target, &list_now.etag, &edits_at(draft.position));
    let preview = Some(EditPreview { omitted_count: entities.len() - tables.len(), tables, note: None, api_call });
    render_editor(req, target, &list_now, &draft, EditorFlash { preview, ..EditorFlash::default() })
}

fn render_stale_form(req: &PageRequest, target: &EditTarget, list: &EditableList, draft: &EditDraft) -> PageResult {
    let alert = format!(
        "Another user saved changes first, so yours were not saved. The list had {} and now has {}. Your text is still \
         below. Before you save again, check that the position is still correct.",
        format::pluralize(draft.list_length, "entity", "entities"),
        format::group_thousands(list.length)
    );
    let position = if draft.position >= draft.list_length { list.length } else { draft.position.min(list.length) };
    let flash = EditorFlash { status: StatusCode::CONFLICT, alert: Some(alert), ..EditorFlash::default() };
    render_editor(req, target, list, &EditDraft { position, ..draft.rebased_on(list) }, flash)
}
