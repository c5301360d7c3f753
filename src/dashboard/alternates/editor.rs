//! `…/alternate/edit` and `…/alternate/add`: an entity as a text that people edit, what differs before it is saved, and
//! what somebody else has saved meanwhile.
//!
//! Nothing is kept on the server between two requests: a form holds the text, the etag of the list that it was made
//! from, and the entity as it was.

use askama::Template;
use axum::body::Bytes;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::visit::BaseUrl;
use strata_runtime::blocking::blocking;
use strata_service::{BodyRoom, EntityChange, EntityEdit, InAlternate, ManageError};
use strata_types::limits::EDITOR_BYTES;

use super::OF_VERSION;
use super::beside::{Beside, Fate, Neighbour};
use super::change::{self, Target, call, save};
use super::list::{Found, List, list, list_beside, of_version};
use super::text::{self, Mistake};
use crate::acting::Sent;
use crate::compared::{Compared, Equality, Paths, Room, Titles};
use crate::figures;
use crate::opened::{Heading, Tab};
use crate::place::{Place, Position};
use crate::query::{Query, invalid};
use crate::shown::{Shown, escaped_json};
use crate::visit::{Reply, Shell, Visit, render};

const LINES_AT_LEAST: usize = 8;
const LINES_SHOWN: usize = 32;

/// How often a change is saved that others overtake, before somebody is asked.
const TRIES: usize = 3;

/// Fields that are named where two have changed them.
const NAMED: usize = 20;

#[derive(Template)]
#[template(path = "editor.html")]
struct EditorPage<'a> {
    shell: Shell,
    heading: Heading,
    title: String,
    is_new: bool,
    list: String,
    said: Said,
    /// The page of the entity.
    entity: String,
    back: String,
    draft: &'a Draft,
    position: String,
    api: String,
}

/// What is saved with the text as it is.
struct Preview {
    tables: Vec<Compared>,
    left_out: usize,
    note: Option<&'static str>,
    call: Shown,
}

/// What somebody else has saved, and what this page was about to save.
struct Conflict {
    theirs: Option<Compared>,
    mine: Option<Compared>,
    /// The fields that both have changed.
    both: Vec<Shown>,
    can_merge: bool,
    diff: String,
}

#[derive(Clone, Default)]
struct Draft {
    position: u64,
    length: u64,
    /// Of the list as it was read.
    etag: String,
    /// The entity as it was, and its text now.
    base: String,
    text: String,
    beside: Beside,
}

#[derive(Default)]
struct Said {
    status: StatusCode,
    notes: Vec<String>,
    alert: Option<String>,
    /// What is wrong with the text. Beside it, the script says nothing: it would tell the same in other words.
    problem: Option<Mistake>,
    position_problem: Option<String>,
    typed_position: Option<String>,
    conflict: Option<Conflict>,
    is_removed: bool,
    preview: Option<Preview>,
    /// Whether the entity is too large to be edited here.
    too_large: bool,
}

/// The editor of the entity that an address names: by its position in the list, or in the version. 400 for no position,
/// 404 for one that the list does not have, and for an entity that was removed.
pub(super) async fn open(visit: &Visit, target: &Target, query: &Query) -> Result<Reply, HttpError> {
    let (sent, place) = match (query.first(OF_VERSION), query.first("position")) {
        (Some(_), Some(position)) => {
            let problem = format!("cannot be combined with {OF_VERSION}");
            return Err(invalid("position", position, &problem, "position or entity, but not both"));
        }
        (Some(given), None) => {
            let sent = Position::parse(given)?;
            let place = visit.app.reads().place_in_alternate(&target.version, sent.at).await?;
            (sent, place)
        }
        (None, given) => (Position::parse(given.unwrap_or_default())?, None),
    };
    let named = sent.at;
    let number = target.version.number;
    let shown = figures::grouped(named);
    let (position, note) = match place {
        None => (named, None),
        Some(InAlternate::Kept(position)) => {
            let now = figures::grouped(position);
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
    if matches!(list.entity, Found::None) {
        return Err(if position == named { sent } else { position.into() }.is_in_none("list", list.length));
    }
    let mut said = Said::default();
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
    page(visit, target, &list, &draft, false, said)
}

/// That an entity of the alternate is not the one of the version at its position, and why.
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

pub(super) async fn open_new(visit: &Visit, target: &Target, query: &Query) -> Result<Reply, HttpError> {
    let list = list(visit, &target.place, None).await?;
    let typed = query.first("position");
    let (position, problem) = match typed {
        Some(typed) => before(typed, list.length, list.length),
        None => (list.length, None),
    };
    let draft = Draft { position, text: "{\n  \n}".to_owned(), ..Draft::default().on(&list) };
    let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let typed_position = typed.filter(|_| problem.is_some()).map(str::to_owned);
    let said = Said { status, position_problem: problem, typed_position, ..Said::default() };
    page(visit, target, &list, &draft, true, said)
}

/// The position before which entities are added, at most `last`, and what is wrong with it in a list of `length`.
fn before(typed: &str, last: u64, length: u64) -> (u64, Option<String>) {
    let valid = format!("Enter a position from 0 to {length}.");
    match Position::parse(typed) {
        Err(_) => (length, Some(format!("This is not a valid position. {valid}"))),
        Ok(position) if position.is_past_all() || position.at > last => {
            (length, Some(format!("This position is past the end of the list. {valid}")))
        }
        Ok(position) => (position.at, None),
    }
}

impl Draft {
    fn of(sent: &Sent, position: u64) -> Result<Draft, HttpError> {
        let field = |name| sent.fields.first(name).unwrap_or_default().to_owned();
        Ok(Draft {
            position,
            length: sent.number("length")?,
            etag: field("etag"),
            base: field("base"),
            // A browser sends each end of a line as two characters.
            text: field("text").replace("\r\n", "\n"),
            beside: Beside::parse(&field("beside")),
        })
    }

    fn on(&self, list: &List) -> Draft {
        Draft { etag: list.etag.clone(), length: list.length, beside: list.beside.clone(), ..self.clone() }
    }
}

/// Reads a text that is long on a thread of its own: those that serve requests must not wait for it.
async fn apart<T: Send + 'static>(
    text: &str,
    read: fn(&str) -> Result<T, Mistake>,
) -> Result<Result<T, Mistake>, HttpError> {
    if !BodyRoom::is_needed(text.len() as u64) {
        return Ok(read(text));
    }
    let text = text.to_owned();
    Ok(blocking(move || read(&text)).await.map_err(|error| ManageError::Storage(error.into()))?)
}

fn status_of(draft: &Draft) -> StatusCode {
    if draft.text.len() > EDITOR_BYTES { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST }
}

/// The form of the editor. The text stays whatever happens.
pub(super) async fn act(
    visit: &mut Visit,
    target: &Target,
    sent: &Sent,
    mut room: Option<BodyRoom>,
) -> Result<Reply, HttpError> {
    let position = Position::parse(sent.trimmed("position"))?;
    let mut draft = Draft::of(sent, position.at)?;
    let mut list_now = list_beside(visit, &target.place, draft.position).await?;
    if position.is_past_all() {
        return Err(position.is_in_none("list", list_now.length));
    }
    let mine = match apart(&draft.text, text::entity).await? {
        Ok(mine) => mine,
        Err(mistake) => {
            let said = Said { status: status_of(&draft), problem: Some(mistake), ..Said::default() };
            return page(visit, target, &list_now, &draft, false, said);
        }
    };
    let mut beside = None;
    for tries_left in (0..TRIES).rev() {
        if list_now.etag != draft.etag {
            let again = find_again(visit, target, list_now, &draft).await?;
            if again.fate != Fate::Same {
                return conflict(visit, target, &again, &draft, &mine);
            }
            // What somebody else did is in other entities, so that both can be had.
            draft = Draft { position: again.at, ..draft.on(&again.list) };
            beside = Some(again.note());
            list_now = again.list;
        }
        let Some(there) = list_now.entity.text() else {
            return Err(match list_now.entity {
                Found::TooLarge => too_large(),
                _ => Position::from(draft.position).is_in_none("list", list_now.length),
            });
        };
        match sent.fields.first("do") {
            Some("save") if there == mine => {
                let alert = Some("Nothing was saved because nothing has changed.".to_owned());
                let said = Said { alert, ..Said::default() };
                return page(visit, target, &list_now, &draft, false, said);
            }
            Some("save") => {
                let change = EntityChange::Set(Bytes::from(mine.clone()));
                let edits = vec![EntityEdit { position: draft.position, change }];
                match save(visit, target, &draft.etag, edits, room.take()).await {
                    Ok(reply) => return Ok(if beside.is_some() { saved_beside(target) } else { reply }),
                    Err(HttpError::Manage(ManageError::Stale)) => {
                        list_now = list_beside(visit, &target.place, draft.position).await?
                    }
                    Err(error) => {
                        let said = failed(visit, error);
                        return page(visit, target, &list_now, &draft, false, said);
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

/// What saving changes once mine is merged with what is there.
fn merged(
    visit: &Visit,
    target: &Target,
    list_now: &List,
    draft: Draft,
    there: &[u8],
    mine: &[u8],
) -> Result<Reply, HttpError> {
    let Ok(base) = text::entity(&draft.base) else {
        return preview(visit, target, list_now, &draft, there, mine, Vec::new());
    };
    let merged = text::merge(&base, there, mine);
    let mut notes = vec!["Your changes were merged into the current entity.".to_owned()];
    if !merged.conflicts.is_empty() {
        let number = merged.conflicts.len() as u64;
        let fields = figures::counted(number, "field", "fields");
        notes.push(format!("In {fields}, your changes replace another user’s changes."));
    }
    match text::editable(&merged.entity) {
        Some(text) => {
            let draft = Draft { text, ..draft };
            preview(visit, target, list_now, &draft, there, &merged.entity, notes)
        }
        None => Err(too_large()),
    }
}

/// Leads to the page that says that both changes are saved.
fn saved_beside(target: &Target) -> Reply {
    Reply::done("beside", &target.place.alternate())
}

fn too_large() -> HttpError {
    let text = "This entity is too large for the editor. Use POST /dataset/alternate/edit instead.".to_owned();
    HttpError::Invalid { status: StatusCode::PAYLOAD_TOO_LARGE, text }
}

fn failed(visit: &mut Visit, error: HttpError) -> Said {
    let (status, alert) = visit.tell(error);
    Said { status, alert: Some(alert), ..Said::default() }
}

fn preview(
    visit: &Visit,
    target: &Target,
    list: &List,
    draft: &Draft,
    there: &[u8],
    mine: &[u8],
    notes: Vec<String>,
) -> Result<Reply, HttpError> {
    let titles = Titles { caption: "The entity before and after saving", old: "Now", new: "After saving" };
    let sides = [Some(there), Some(mine)];
    let table = Compared::new(&titles, sides, Equality::Text, Paths::Changed, &mut Room::of_page());
    let note = match (there == mine, table.is_empty()) {
        (true, _) => Some("Nothing has changed."),
        (false, true) => Some("Only the field order has changed."),
        (false, false) => None,
    };
    let edits = [EntityEdit { position: draft.position, change: EntityChange::Set(Bytes::from(mine.to_vec())) }];
    let tables = if table.is_empty() { Vec::new() } else { vec![table] };
    let preview = Preview { tables, left_out: 0, note, call: call(target, &list.etag, &edits) };
    // From here on the text is one of what stands there now.
    let draft = Draft { base: base_text(there), ..draft.on(list) };
    let said = Said { notes, preview: Some(preview), ..Said::default() };
    page(visit, target, list, &draft, false, said)
}

/// Where the entity of a form is in a list that was saved since.
struct Again {
    list: List,
    at: u64,
    fate: Fate,
}

impl Again {
    fn note(&self) -> String {
        let at = figures::grouped(self.at);
        format!(
            "Another user has saved changes to other entities. This entity has not changed. It is at position {at}."
        )
    }
}

/// Looks for the entity of a form, or for what became of it: where it was, and where it is if all that has come or gone
/// has done so before it.
async fn find_again(visit: &Visit, target: &Target, list_now: List, draft: &Draft) -> Result<Again, HttpError> {
    let base = text::entity(&draft.base).ok();
    let length = list_now.length;
    let fate = |list: &List| match (list.entity.text(), &base) {
        (Some(there), Some(base)) if there == base => Fate::Same,
        (there, _) => {
            let there = there.map_or(Neighbour::End, Neighbour::of);
            draft.beside.fate(&there, &list.beside, length < draft.length)
        }
    };
    let moved = draft.position.checked_add(length).and_then(|moved| moved.checked_sub(draft.length));
    // The place of one that is gone is one behind that to which the next one has moved.
    let places = [moved, moved.and_then(|moved| moved.checked_add(1))].into_iter().flatten();
    let places = places.filter(|place| *place <= length && *place != draft.position && length != draft.length);
    let mut found = Again { fate: fate(&list_now), at: draft.position, list: list_now };
    for place in places {
        if found.fate == Fate::Same {
            break;
        }
        let there = list_beside(visit, &target.place, place).await?;
        let fate = fate(&there);
        if fate == Fate::Same || found.fate == Fate::Unknown && fate != Fate::Unknown {
            found = Again { list: there, at: place, fate };
        }
    }
    Ok(found)
}

/// Somebody else has changed or removed the entity since the form was made, or keeps saving.
fn conflict(visit: &Visit, target: &Target, again: &Again, draft: &Draft, mine: &[u8]) -> Result<Reply, HttpError> {
    const FIRST: &str = "Another user saved changes first, so yours were not saved. Your text is still below.";
    let Again { list: list_now, at, fate } = again;
    let base = text::entity(&draft.base).ok();
    let mut said = Said { status: StatusCode::CONFLICT, alert: Some(FIRST.to_owned()), ..Said::default() };
    let was = figures::grouped(draft.position);
    let shown = figures::grouped(*at);
    let draft = Draft { position: *at, ..draft.on(list_now) };
    if *fate == Fate::Same {
        said.notes.push(again.note());
        return page(visit, target, list_now, &draft, false, said);
    }
    let number = &target.version.number;
    let diff = target.place.dataset.diff(number, number, true);
    let mut room = Room::of_page();
    let mut compared = |new: &[u8], caption: &str, title: &str| {
        let titles = Titles { caption, old: "When you started", new: title };
        let sides = [Some(base.as_deref()?), Some(new)];
        Some(Compared::new(&titles, sides, Equality::Text, Paths::Changed, &mut room))
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
        return page(visit, target, list_now, &draft, true, said);
    }
    let Some(there) = list_now.entity.text() else {
        said.notes.push(match list_now.entity {
            Found::TooLarge => "The entity at this position is now too large for the editor.".to_owned(),
            _ => format!("There is no longer an entity at position {shown}. You can add your text as a new entity."),
        });
        let draft = Draft { position: list_now.length, ..draft };
        return page(visit, target, list_now, &draft, true, said);
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
        both: both.iter().take(NAMED).map(|name| Shown::new(name, 100)).collect(),
        can_merge: base.is_some(),
        diff,
    });
    page(visit, target, list_now, &draft, false, said)
}

/// The form of a new entity. The text stays whatever happens.
pub(super) async fn act_new(
    visit: &mut Visit,
    target: &Target,
    sent: &Sent,
    mut room: Option<BodyRoom>,
) -> Result<Reply, HttpError> {
    let mut list_now = list(visit, &target.place, None).await?;
    let typed = sent.fields.first("position").unwrap_or_default().to_owned();
    let mut draft = Draft::of(sent, list_now.length)?;
    // What somebody else did is told of below.
    let last = if list_now.etag == draft.etag { list_now.length } else { u64::MAX };
    let (position, position_problem) = before(&typed, last, list_now.length);
    draft.position = position;
    let entities = apart(&draft.text, text::entities).await?;
    if entities.is_err() || position_problem.is_some() {
        let status = if entities.is_err() { status_of(&draft) } else { StatusCode::BAD_REQUEST };
        let typed_position = Some(typed);
        let said = Said { status, problem: entities.err(), position_problem, typed_position, ..Said::default() };
        return page(visit, target, &list_now, &draft, true, said);
    }
    let entities = entities.unwrap_or_default();
    let is_saved = sent.fields.first("do") == Some("save");
    let edits_at = |position| {
        let list_of = entities.iter().map(|entity| Bytes::from(entity.clone())).collect();
        vec![EntityEdit { position, change: EntityChange::Insert(list_of) }]
    };
    let mut is_beside = false;
    let mut tries_left = TRIES;
    loop {
        if list_now.etag != draft.etag {
            // What comes behind the last entity does so whatever others do.
            if !is_saved || draft.position != draft.length || tries_left == 0 {
                return stale_new(visit, target, &list_now, &draft);
            }
            is_beside = true;
            draft = Draft { position: list_now.length, ..draft.on(&list_now) };
        }
        if !is_saved {
            break;
        }
        tries_left -= 1;
        match save(visit, target, &draft.etag, edits_at(draft.position), room.take()).await {
            Ok(reply) => return Ok(if is_beside { saved_beside(target) } else { reply }),
            Err(HttpError::Manage(ManageError::Stale)) => list_now = list(visit, &target.place, None).await?,
            Err(error) => {
                let said = failed(visit, error);
                return page(visit, target, &list_now, &draft, true, said);
            }
        }
    }
    let edits = edits_at(draft.position);
    let mut space = Room::of_page();
    let mut tables = Vec::new();
    for (number, entity) in entities.iter().take(NAMED).enumerate() {
        let caption = format!("New entity {} of {}", number + 1, entities.len());
        let titles = Titles { caption: &caption, old: "Now", new: "After saving" };
        tables.push(Compared::new(&titles, [None, Some(entity)], Equality::Text, Paths::All, &mut space));
    }
    let left_out = entities.len() - tables.len();
    let preview = Preview { tables, left_out, note: None, call: call(target, &list_now.etag, &edits) };
    let said = Said { preview: Some(preview), ..Said::default() };
    page(visit, target, &list_now, &draft, true, said)
}

/// Somebody else has saved or deleted the alternate since the form of a new entity was made.
fn stale_new(visit: &Visit, target: &Target, list: &List, draft: &Draft) -> Result<Reply, HttpError> {
    let alert = format!(
        "Another user saved changes first, so yours were not saved. The list had {} and now has {}. Your text is still \
         below. Before you save again, check that the position is still correct.",
        figures::counted(draft.length, "entity", "entities"),
        figures::grouped(list.length)
    );
    // What was to come behind the last one still does.
    let position = if draft.position >= draft.length { list.length } else { draft.position.min(list.length) };
    let said = Said { status: StatusCode::CONFLICT, alert: Some(alert), ..Said::default() };
    page(visit, target, list, &Draft { position, ..draft.on(list) }, true, said)
}

fn page(
    visit: &Visit,
    target: &Target,
    list: &List,
    draft: &Draft,
    is_new: bool,
    said: Said,
) -> Result<Reply, HttpError> {
    let Target { dataset, place, .. } = target;
    let title = match is_new {
        true if said.is_removed => "Add the entity again or discard your changes".to_owned(),
        true => "Add entities".to_owned(),
        false => format!("Edit entity {}", figures::grouped(draft.position)),
    };
    let entity = Place { alt: list.is_alternate, ..place.clone() }.entity(draft.position);
    let page = EditorPage {
        shell: visit.shell(format!("{title}, {}", dataset.name.as_str())),
        heading: Heading::around(visit, dataset, place, Tab::Versions),
        title,
        is_new,
        list: change::name(target, list),
        back: if dataset.frozen || is_new { place.alternate() } else { entity.clone() },
        entity,
        draft,
        position: said.typed_position.clone().unwrap_or_else(|| draft.position.to_string()),
        said,
        api: BaseUrl::of(&visit.head, &visit.app).url("/dataset/alternate/edit"),
    };
    render(page.said.status, &page)
}
