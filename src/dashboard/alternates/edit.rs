//! `…/alternate/edit`: edits an entity of an alternate (edited copy of a version) as JSON text. If another user saved
//! the list since the form was created, the page merges the changes or shows the conflict.

use axum::body::Bytes;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{AlternatePosition, EntityChange, EntityEdit, ManageError};

use super::VERSION_POSITION_PARAM;
use super::edit_target::{EditTarget, api_call_body, save_edits};
use super::editable_list::{EditableList, EntityAtPosition, load_list_with_neighbors, load_version_entity};
use super::editor::{
    EditConflict, EditDraft, EditPreview, EditorFlash, MAX_NAMED_ITEMS, MAX_SAVE_ATTEMPTS, entity_too_large_error,
    flash_from_error, render_editor,
};
use super::entity_text;
use super::neighbors::{ConcurrentChange, NeighborEntity};
use crate::entity_diff::{ComparisonBudget, EntityComparison, LeafEquality, ShownPaths};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::page_request::{PageRequest, PageResponse, PageResult};
use crate::query_params::{QueryParams, invalid_parameter_error};
use crate::safe_text::{SafeText, escape_invisible_json};
use crate::urls::EntityPosition;

pub(super) async fn render_edit_form(req: &PageRequest, target: &EditTarget, query: &QueryParams) -> PageResult {
    let (typed_position, found) = match (query.first(VERSION_POSITION_PARAM), query.first("position")) {
        (Some(_), Some(position)) => {
            let problem = format!("cannot be combined with {VERSION_POSITION_PARAM}");
            return Err(invalid_parameter_error("position", position, &problem, "position or entity, but not both"));
        }
        (Some(position), None) => {
            let typed_position = EntityPosition::parse(position)?;
            let found = req.services.reads.find_in_alternate(&target.version, typed_position.index).await?;
            (typed_position, found)
        }
        (None, position) => (EntityPosition::parse(position.unwrap_or_default())?, None),
    };
    let index = typed_position.index;
    let number = target.version.number;
    let index_text = format::group_thousands(index);
    let (position, note) = match found {
        None => (index, None),
        Some(AlternatePosition::Unchanged(position)) => {
            let now = format::group_thousands(position);
            let text = format!(
                "This entity is at position {index_text} in version {number}, but at position {now} in the alternate."
            );
            (position, Some(text).filter(|_| position != index))
        }
        Some(AlternatePosition::Changed(position)) => {
            let text =
                format!("In the alternate, this entity replaces the one at position {index_text} of version {number}.");
            (position, Some(text))
        }
        Some(AlternatePosition::Replaced(position)) => {
            let text = format!(
                "In the alternate, the entity at position {index_text} of version {number} and some of its neighbors were \
                 changed or removed. This page shows the first of the entities that replaced them."
            );
            (position, Some(text))
        }
        Some(AlternatePosition::Removed) => {
            let text =
                format!("The entity at position {index_text} of version {number} was removed from the alternate.");
            return Err(HttpError::InvalidRequest { status: StatusCode::NOT_FOUND, text });
        }
    };
    let list = load_list_with_neighbors(req, &target.urls, position).await?;
    if matches!(list.entity, EntityAtPosition::None) {
        let missing = if position == index { typed_position } else { position.into() };
        return Err(missing.not_found_error("list", list.length));
    }
    let mut flash = EditorFlash::default();
    if list.is_alternate {
        let version_entity = load_version_entity(req, &target.urls, index).await?;
        let differs = version_entity.entity_bytes().is_some_and(|entity| list.entity.entity_bytes() != Some(entity));
        let is_explained = matches!(found, Some(AlternatePosition::Changed(_) | AlternatePosition::Replaced(_)));
        flash.notes.extend(if differs && !is_explained { Some(entity_difference_note(target, &list)) } else { note });
    }
    let entity = list.entity.entity_bytes();
    let text = entity.and_then(entity_text::to_editor_text);
    flash.too_large = text.is_none();
    let base = text.as_ref().and(entity).map(escape_base_entity).unwrap_or_default();
    let draft = EditDraft { position, base, text: text.unwrap_or_default(), ..EditDraft::default().rebased_on(&list) };
    render_editor(req, target, &list, &draft, flash)
}

fn entity_difference_note(target: &EditTarget, list: &EditableList) -> String {
    let number = target.version.number;
    match list.length == target.version.file.entity_count {
        true => format!(
            "The alternate was changed here: this entity differs from the one at the same position in version {number}."
        ),
        false => format!(
            "This entity differs from the one at the same position in version {number}. Either this entity was changed \
             in the alternate, or entities before it were added or removed."
        ),
    }
}

fn escape_base_entity(entity: &[u8]) -> String {
    escape_invisible_json(&String::from_utf8_lossy(entity))
}

pub(super) async fn handle_edit(req: &mut PageRequest, target: &EditTarget, mut form: SubmittedForm) -> PageResult {
    let position = EntityPosition::parse(form.trimmed_value("position"))?;
    let mut draft = EditDraft::from_form(&form, false, position.index)?;
    let mut list_now = load_list_with_neighbors(req, &target.urls, draft.position).await?;
    if position.is_overflow() {
        return Err(position.not_found_error("list", list_now.length));
    }
    let mine = match draft.parse_text(entity_text::parse_entity).await? {
        Ok(mine) => mine,
        Err(mistake) => {
            let flash =
                EditorFlash { status: draft.text_error_status(), problem: Some(mistake), ..EditorFlash::default() };
            return render_editor(req, target, &list_now, &draft, flash);
        }
    };
    let mut note = None;
    for tries_left in (0..MAX_SAVE_ATTEMPTS).rev() {
        if list_now.etag != draft.etag {
            let moved = find_moved_entity(req, target, list_now, &draft).await?;
            if moved.change != ConcurrentChange::Unchanged {
                return render_conflict(req, target, &moved, &draft, &mine);
            }
            draft = EditDraft { position: moved.position, ..draft.rebased_on(&moved.list) };
            note = Some(moved.describe_new_position());
            list_now = moved.list;
        }
        let Some(current) = list_now.entity.entity_bytes() else {
            return Err(match list_now.entity {
                EntityAtPosition::TooLarge => entity_too_large_error(),
                _ => EntityPosition::from(draft.position).not_found_error("list", list_now.length),
            });
        };
        match form.fields.first("do") {
            Some("save") if current == mine => {
                let alert = Some("Nothing was saved because nothing has changed.".to_owned());
                return render_editor(req, target, &list_now, &draft, EditorFlash { alert, ..EditorFlash::default() });
            }
            Some("save") => {
                let edits = vec![build_replacement(draft.position, &mine)];
                let notice = if note.is_some() { "beside" } else { "saved" };
                match save_edits(req, target, &draft.etag, edits, form.body_reservation.take()).await {
                    Ok(()) => return Ok(PageResponse::redirect_with_notice(notice, &target.urls.alternate_url())),
                    Err(HttpError::Manage(ManageError::Stale)) => {
                        list_now = load_list_with_neighbors(req, &target.urls, draft.position).await?
                    }
                    Err(error) => {
                        let flash = flash_from_error(req, error);
                        return render_editor(req, target, &list_now, &draft, flash);
                    }
                }
                if tries_left == 0 {
                    let moved = find_moved_entity(req, target, list_now, &draft).await?;
                    return render_conflict(req, target, &moved, &draft, &mine);
                }
            }
            Some("merge") => return render_merged_preview(req, target, &list_now, draft, current, &mine),
            _ => return render_preview(req, target, &list_now, &draft, current, &mine, note.into_iter().collect()),
        }
    }
    Err(ManageError::Stale.into())
}

fn build_replacement(position: u64, entity: &[u8]) -> EntityEdit {
    EntityEdit { position, change: EntityChange::Set(Bytes::copy_from_slice(entity)) }
}

fn render_merged_preview(
    req: &PageRequest,
    target: &EditTarget,
    list_now: &EditableList,
    draft: EditDraft,
    current: &[u8],
    mine: &[u8],
) -> PageResult {
    let Ok(base) = entity_text::parse_entity(&draft.base) else {
        return render_preview(req, target, list_now, &draft, current, mine, Vec::new());
    };
    let merged = entity_text::merge_entities(&base, current, mine);
    let mut notes = vec!["Your changes were merged into the current entity.".to_owned()];
    if !merged.conflicts.is_empty() {
        let fields = format::pluralize(merged.conflicts.len() as u64, "field", "fields");
        notes.push(format!("In {fields}, your changes replace another user’s changes."));
    }
    let text = entity_text::to_editor_text(&merged.entity).ok_or_else(entity_too_large_error)?;
    render_preview(req, target, list_now, &EditDraft { text, ..draft }, current, &merged.entity, notes)
}

fn render_preview(
    req: &PageRequest,
    target: &EditTarget,
    list: &EditableList,
    draft: &EditDraft,
    current: &[u8],
    mine: &[u8],
    notes: Vec<String>,
) -> PageResult {
    let caption = "The entity before and after saving".to_owned();
    let sides = [Some(current), Some(mine)];
    let titles = ["Now", "After saving"];
    let mut budget = ComparisonBudget::for_page();
    let table = EntityComparison::new(caption, titles, sides, LeafEquality::Text, ShownPaths::Changed, &mut budget);
    let note = match (current == mine, table.has_no_rows()) {
        (true, _) => Some("Nothing has changed."),
        (false, true) => Some("Only the field order has changed."),
        (false, false) => None,
    };
    let api_call = api_call_body(target, &list.etag, &[build_replacement(draft.position, mine)]);
    let tables = if table.has_no_rows() { Vec::new() } else { vec![table] };
    let preview = Some(EditPreview { tables, omitted_count: 0, note, api_call });
    let draft = EditDraft { base: escape_base_entity(current), ..draft.rebased_on(list) };
    render_editor(req, target, list, &draft, EditorFlash { notes, preview, ..EditorFlash::default() })
}

/// The entity that a form edits, in a list that another user has changed since the form was created.
struct MovedEntity {
    list: EditableList,
    position: u64,
    change: ConcurrentChange,
}

impl MovedEntity {
    fn describe_new_position(&self) -> String {
        let at = format::group_thousands(self.position);
        format!(
            "Another user has saved changes to other entities. This entity has not changed. It is at position {at}."
        )
    }
}

/// Searches a changed list for the entity that a form edits: at its previous position, and at the position that it has
/// if all insertions and removals were before it.
async fn find_moved_entity(
    req: &PageRequest,
    target: &EditTarget,
    list_now: EditableList,
    draft: &EditDraft,
) -> Result<MovedEntity, HttpError> {
    let base = entity_text::parse_entity(&draft.base).ok();
    let length = list_now.length;
    let change_in = |list: &EditableList| match (list.entity.entity_bytes(), &base) {
        (Some(current), Some(base)) if current == base => ConcurrentChange::Unchanged,
        (current, _) => {
            let current = current.map_or(NeighborEntity::ListEnd, NeighborEntity::from_entity);
            draft.neighbors.infer_change(&current, &list.neighbors, length < draft.list_length)
        }
    };
    let moved = draft.position.checked_add(length).and_then(|moved| moved.checked_sub(draft.list_length));
    let positions = [moved, moved.and_then(|moved| moved.checked_add(1))].into_iter().flatten();
    let positions =
        positions.filter(|position| *position <= length && *position != draft.position && length != draft.list_length);
    let mut found = MovedEntity { change: change_in(&list_now), position: draft.position, list: list_now };
    for position in positions {
        if found.change == ConcurrentChange::Unchanged {
            break;
        }
        let list = load_list_with_neighbors(req, &target.urls, position).await?;
        let change = change_in(&list);
        if change == ConcurrentChange::Unchanged
            || found.change == ConcurrentChange::Unknown && change != ConcurrentChange::Unknown
        {
            found = MovedEntity { list, position, change };
        }
    }
    Ok(found)
}

/// Renders the edit form after another user changed or removed the edited entity, or if others keep saving the list.
fn render_conflict(
    req: &PageRequest,
    target: &EditTarget,
    moved: &MovedEntity,
    draft: &EditDraft,
    mine: &[u8],
) -> PageResult {
    let MovedEntity { list: list_now, position, change } = moved;
    let base = entity_text::parse_entity(&draft.base).ok();
    let alert = "Another user saved changes first, so yours were not saved. Your text is still below.".to_owned();
    let mut flash = EditorFlash { status: StatusCode::CONFLICT, alert: Some(alert), ..EditorFlash::default() };
    let previous_position = format::group_thousands(draft.position);
    let position_text = format::group_thousands(*position);
    let draft = EditDraft { position: *position, ..draft.rebased_on(list_now) };
    if *change == ConcurrentChange::Unchanged {
        flash.notes.push(moved.describe_new_position());
        return render_editor(req, target, list_now, &draft, flash);
    }
    let number = &target.version.number;
    let diff = target.urls.dataset.diff_url(number, number, true);
    let mut budget = ComparisonBudget::for_page();
    let mut compare = |new: &[u8], caption: &str, title: &str| {
        let titles = ["When you started", title];
        let sides = [Some(base.as_deref()?), Some(new)];
        Some(EntityComparison::new(caption.into(), titles, sides, LeafEquality::Text, ShownPaths::Changed, &mut budget))
    };
    if *change == ConcurrentChange::Removed {
        let alert = "Another user has removed this entity, so your changes were not saved. Your text is still below.";
        flash.alert = Some(alert.to_owned());
        flash.notes.push(format!(
            "The entity was at position {previous_position}. If you add it again with your text, it will be at position {position_text}. If \
             you discard your changes, the entity stays removed."
        ));
        let mine = compare(mine, "Your changes", "Your text");
        flash.conflict = Some(EditConflict { mine, diff, ..EditConflict::default() });
        flash.is_removed = true;
        return render_editor(req, target, list_now, &EditDraft { is_new: true, ..draft }, flash);
    }
    let Some(current) = list_now.entity.entity_bytes() else {
        flash.notes.push(match list_now.entity {
            EntityAtPosition::TooLarge => "The entity at this position is now too large for the editor.".to_owned(),
            _ => format!(
                "There is no longer an entity at position {position_text}. You can add your text as a new entity."
            ),
        });
        let draft = EditDraft { is_new: true, position: list_now.length, ..draft };
        return render_editor(req, target, list_now, &draft, flash);
    };
    let conflicts =
        base.as_deref().map(|base| entity_text::merge_entities(base, current, mine).conflicts).unwrap_or_default();
    flash.notes.push(match change {
        ConcurrentChange::Changed => format!(
            "Another user has changed this entity, which is now at position {position_text}. Review the differences before you \
             overwrite the entity."
        ),
        _ => format!(
            "Another user has changed or removed the entity that you were editing, so position {position_text} now contains a \
             different entity. Review the differences before you overwrite that entity."
        ),
    });
    flash.conflict = Some(EditConflict {
        theirs: compare(current, "Changes saved in the meantime", "Now"),
        mine: compare(mine, "Your changes", "Your text"),
        conflicting_fields: conflicts.iter().take(MAX_NAMED_ITEMS).map(|name| SafeText::new(name, 100)).collect(),
        can_merge: base.is_some(),
        diff,
    });
    render_editor(req, target, list_now, &draft, flash)
}
