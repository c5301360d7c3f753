//! `…/alternate/edit`: an entity as a text. What another user has saved since the form was made is merged, or shown
//! next to the text.

use axum::body::Bytes;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{EntityChange, EntityEdit, InAlternate, ManageError};

use super::OF_VERSION;
use super::change::{Target, call, save};
use super::editor::{Conflict, Draft, Flash, NAMED, Preview, TRIES, failed, page, too_large};
use super::list::{FoundEntity, List, list_beside, of_version};
use super::neighbours::{Fate, Neighbour};
use super::text;
use crate::entity_diff::{Compared, Equality, Paths, Room};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::query::{Query, invalid};
use crate::safe_text::{SafeText, escaped_json};
use crate::urls::Position;
use crate::visit::{PageResult, Reply, Visit};

/// The editor of the entity that an address names: by its position in the list, or in the version.
pub(super) async fn open(visit: &Visit, target: &Target, query: &Query) -> PageResult {
    let (sent, place) = match (query.first(OF_VERSION), query.first("position")) {
        (Some(_), Some(position)) => {
            let problem = format!("cannot be combined with {OF_VERSION}");
            return Err(invalid("position", position, &problem, "position or entity, but not both"));
        }
        (Some(given), None) => {
            let sent = Position::parse(given)?;
            let place = visit.services.reads.place_in_alternate(&target.version, sent.at).await?;
            (sent, place)
        }
        (None, given) => (Position::parse(given.unwrap_or_default())?, None),
    };
    let named = sent.at;
    let number = target.version.number;
    let shown = format::grouped(named);
    let (position, note) = match place {
        None => (named, None),
        Some(InAlternate::Kept(position)) => {
            let now = format::grouped(position);
            let text = format!(
                "This entity is at position {shown} in version {number}, but at position {now} in the alternate."
            );
            (position, Some(text).filter(|_| position != named))
        }
        Some(InAlternate::Changed(position)) => {
            let text =
                format!("In the alternate, this entity replaces the one at position {shown} of version {number}.");
            (position, Some(text))
        }
        Some(InAlternate::Replaced(position)) => {
            let text = format!(
                "In the alternate, the entity at position {shown} of version {number} and some of its neighbors were \
                 changed or removed. This page shows the first of the entities that replaced them."
            );
            (position, Some(text))
        }
        Some(InAlternate::Removed) => {
            let text = format!("The entity at position {shown} of version {number} was removed from the alternate.");
            return Err(HttpError::Invalid { status: StatusCode::NOT_FOUND, text });
        }
    };
    let list = list_beside(visit, &target.place, position).await?;
    if matches!(list.entity, FoundEntity::None) {
        return Err(if position == named { sent } else { position.into() }.is_in_none("list", list.length));
    }
    let mut said = Flash::default();
    if list.is_alternate {
        let there = of_version(visit, &target.place, named).await?;
        let is_other = there.text().is_some_and(|there| list.entity.text() != Some(there));
        let is_known = matches!(place, Some(InAlternate::Changed(_) | InAlternate::Replaced(_)));
        said.notes.extend(if is_other && !is_known { Some(differs(target, &list)) } else { note });
    }
    let entity = list.entity.text();
    let text = entity.and_then(text::editable);
    said.too_large = text.is_none();
    let base = text.as_ref().and(entity).map(base_text).unwrap_or_default();
    let draft = Draft { position, base, text: text.unwrap_or_default(), ..Draft::default().on(&list) };
    page(visit, target, &list, &draft, said)
}

/// Why an entity of the alternate is not the one at its position in the version.
fn differs(target: &Target, list: &List) -> String {
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

/// An entity for a hidden field.
fn base_text(entity: &[u8]) -> String {
    escaped_json(&String::from_utf8_lossy(entity))
}

/// Handles the form. Every response contains the text again.
pub(super) async fn act(visit: &mut Visit, target: &Target, mut sent: SubmittedForm) -> PageResult {
    let position = Position::parse(sent.trimmed("position"))?;
    let mut draft = Draft::sent(&sent, false, position.at)?;
    let mut list_now = list_beside(visit, &target.place, draft.position).await?;
    if position.is_past_all() {
        return Err(position.is_in_none("list", list_now.length));
    }
    let mine = match draft.read(text::entity).await? {
        Ok(mine) => mine,
        Err(mistake) => {
            let said = Flash { status: draft.status_of_mistake(), problem: Some(mistake), ..Flash::default() };
            return page(visit, target, &list_now, &draft, said);
        }
    };
    let mut beside = None;
    for tries_left in (0..TRIES).rev() {
        if list_now.etag != draft.etag {
            let again = find_again(visit, target, list_now, &draft).await?;
            if again.fate != Fate::Same {
                return conflict(visit, target, &again, &draft, &mine);
            }
            draft = Draft { position: again.at, ..draft.on(&again.list) };
            beside = Some(again.note());
            list_now = again.list;
        }
        let Some(there) = list_now.entity.text() else {
            return Err(match list_now.entity {
                FoundEntity::TooLarge => too_large(),
                _ => Position::from(draft.position).is_in_none("list", list_now.length),
            });
        };
        match sent.fields.first("do") {
            Some("save") if there == mine => {
                let alert = Some("Nothing was saved because nothing has changed.".to_owned());
                return page(visit, target, &list_now, &draft, Flash { alert, ..Flash::default() });
            }
            Some("save") => {
                let edits = vec![edit(draft.position, &mine)];
                match save(visit, target, &draft.etag, edits, sent.room.take()).await {
                    Ok(reply) => {
                        return Ok(if beside.is_some() {
                            Reply::done("beside", &target.place.alternate())
                        } else {
                            reply
                        });
                    }
                    Err(HttpError::Manage(ManageError::Stale)) => {
                        list_now = list_beside(visit, &target.place, draft.position).await?
                    }
                    Err(error) => {
                        let said = failed(visit, error);
                        return page(visit, target, &list_now, &draft, said);
                    }
                }
                if tries_left == 0 {
                    let again = find_again(visit, target, list_now, &draft).await?;
                    return conflict(visit, target, &again, &draft, &mine);
                }
            }
            Some("merge") => return merged(visit, target, &list_now, draft, there, &mine),
            _ => return preview(visit, target, &list_now, &draft, there, &mine, beside.into_iter().collect()),
        }
    }
    Err(ManageError::Stale.into())
}

fn edit(position: u64, entity: &[u8]) -> EntityEdit {
    EntityEdit { position, change: EntityChange::Set(Bytes::copy_from_slice(entity)) }
}

/// The preview of my text, merged with the current entity.
fn merged(visit: &Visit, target: &Target, list_now: &List, draft: Draft, there: &[u8], mine: &[u8]) -> PageResult {
    let Ok(base) = text::entity(&draft.base) else {
        return preview(visit, target, list_now, &draft, there, mine, Vec::new());
    };
    let merged = text::merge(&base, there, mine);
    let mut notes = vec!["Your changes were merged into the current entity.".to_owned()];
    if !merged.conflicts.is_empty() {
        let fields = format::counted(merged.conflicts.len() as u64, "field", "fields");
        notes.push(format!("In {fields}, your changes replace another user’s changes."));
    }
    let text = text::editable(&merged.entity).ok_or_else(too_large)?;
    preview(visit, target, list_now, &Draft { text, ..draft }, there, &merged.entity, notes)
}

fn preview(
    visit: &Visit,
    target: &Target,
    list: &List,
    draft: &Draft,
    there: &[u8],
    mine: &[u8],
    notes: Vec<String>,
) -> PageResult {
    let caption = "The entity before and after saving".to_owned();
    let sides = [Some(there), Some(mine)];
    let titles = ["Now", "After saving"];
    let table = Compared::new(caption, titles, sides, Equality::Text, Paths::Changed, &mut Room::for_page());
    let note = match (there == mine, table.is_empty()) {
        (true, _) => Some("Nothing has changed."),
        (false, true) => Some("Only the field order has changed."),
        (false, false) => None,
    };
    let call = call(target, &list.etag, &[edit(draft.position, mine)]);
    let tables = if table.is_empty() { Vec::new() } else { vec![table] };
    let preview = Some(Preview { tables, left_out: 0, note, call });
    // The text is now one of the current entity.
    let draft = Draft { base: base_text(there), ..draft.on(list) };
    page(visit, target, list, &draft, Flash { notes, preview, ..Flash::default() })
}

/// The position of a form's entity in a list that was saved since.
struct MovedEntity {
    list: List,
    at: u64,
    fate: Fate,
}

impl MovedEntity {
    fn note(&self) -> String {
        let at = format::grouped(self.at);
        format!(
            "Another user has saved changes to other entities. This entity has not changed. It is at position {at}."
        )
    }
}

/// Searches the entity of a form at its former position, and at the one that it has if all entities that were added or
/// removed are before it.
async fn find_again(visit: &Visit, target: &Target, list_now: List, draft: &Draft) -> Result<MovedEntity, HttpError> {
    let base = text::entity(&draft.base).ok();
    let length = list_now.length;
    let fate = |list: &List| match (list.entity.text(), &base) {
        (Some(there), Some(base)) if there == base => Fate::Same,
        (there, _) => {
            let there = there.map_or(Neighbour::End, Neighbour::new);
            draft.beside.fate(&there, &list.beside, length < draft.length)
        }
    };
    let moved = draft.position.checked_add(length).and_then(|moved| moved.checked_sub(draft.length));
    // If the entity was removed, the next one has moved to `moved`, and its former neighbor is one behind.
    let places = [moved, moved.and_then(|moved| moved.checked_add(1))].into_iter().flatten();
    let places = places.filter(|place| *place <= length && *place != draft.position && length != draft.length);
    let mut found = MovedEntity { fate: fate(&list_now), at: draft.position, list: list_now };
    for place in places {
        if found.fate == Fate::Same {
            break;
        }
        let there = list_beside(visit, &target.place, place).await?;
        let fate = fate(&there);
        if fate == Fate::Same || found.fate == Fate::Unknown && fate != Fate::Unknown {
            found = MovedEntity { list: there, at: place, fate };
        }
    }
    Ok(found)
}

/// Another user has changed or removed the entity since the form was made, or saves all the time.
fn conflict(visit: &Visit, target: &Target, again: &MovedEntity, draft: &Draft, mine: &[u8]) -> PageResult {
    const FIRST: &str = "Another user saved changes first, so yours were not saved. Your text is still below.";
    let MovedEntity { list: list_now, at, fate } = again;
    let base = text::entity(&draft.base).ok();
    let mut said = Flash { status: StatusCode::CONFLICT, alert: Some(FIRST.to_owned()), ..Flash::default() };
    let was = format::grouped(draft.position);
    let shown = format::grouped(*at);
    let draft = Draft { position: *at, ..draft.on(list_now) };
    if *fate == Fate::Same {
        said.notes.push(again.note());
        return page(visit, target, list_now, &draft, said);
    }
    let number = &target.version.number;
    let diff = target.place.dataset.diff(number, number, true);
    let mut room = Room::for_page();
    let mut compared = |new: &[u8], caption: &str, title: &str| {
        let titles = ["When you started", title];
        let sides = [Some(base.as_deref()?), Some(new)];
        Some(Compared::new(caption.to_owned(), titles, sides, Equality::Text, Paths::Changed, &mut room))
    };
    if *fate == Fate::Removed {
        let alert = "Another user has removed this entity, so your changes were not saved. Your text is still below.";
        said.alert = Some(alert.to_owned());
        said.notes.push(format!(
            "The entity was at position {was}. If you add it again with your text, it will be at position {shown}. If \
             you discard your changes, the entity stays removed."
        ));
        let own = compared(mine, "Your changes", "Your text");
        said.conflict = Some(Conflict { theirs: None, mine: own, both: Vec::new(), can_merge: false, diff });
        said.is_removed = true;
        return page(visit, target, list_now, &Draft { is_new: true, ..draft }, said);
    }
    let Some(there) = list_now.entity.text() else {
        said.notes.push(match list_now.entity {
            FoundEntity::TooLarge => "The entity at this position is now too large for the editor.".to_owned(),
            _ => format!("There is no longer an entity at position {shown}. You can add your text as a new entity."),
        });
        let draft = Draft { is_new: true, position: list_now.length, ..draft };
        return page(visit, target, list_now, &draft, said);
    };
    let theirs = compared(there, "Changes saved in the meantime", "Now");
    let own = compared(mine, "Your changes", "Your text");
    let both = base.as_deref().map(|base| text::merge(base, there, mine).conflicts).unwrap_or_default();
    said.notes.push(match fate {
        Fate::Changed => format!(
            "Another user has changed this entity, which is now at position {shown}. Review the differences before you \
             overwrite the entity."
        ),
        _ => format!(
            "Another user has changed or removed the entity that you were editing, so position {shown} now contains a \
             different entity. Review the differences before you overwrite that entity."
        ),
    });
    said.conflict = Some(Conflict {
        theirs,
        mine: own,
        both: both.iter().take(NAMED).map(|name| SafeText::new(name, 100)).collect(),
        can_merge: base.is_some(),
        diff,
    });
    page(visit, target, list_now, &draft, said)
}
