//! `…/alternate/add`: new entities, typed as JSON.

use axum::body::Bytes;
use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_service::{EntityChange, EntityEdit, ManageError};

use super::change::{Target, call, save};
use super::editor::{Draft, Flash, NAMED, Preview, TRIES, failed, page};
use super::list::{List, list};
use super::text;
use crate::entity_diff::{Compared, Equality, Paths, Room};
use crate::form_handling::SubmittedForm;
use crate::format;
use crate::query::Query;
use crate::urls::Position;
use crate::visit::{PageResult, Reply, Visit};

pub(super) async fn open(visit: &Visit, target: &Target, query: &Query) -> PageResult {
    let list = list(visit, &target.place, None).await?;
    let typed = query.first("position");
    let (position, problem) = match typed {
        Some(typed) => before(typed, list.length, list.length),
        None => (list.length, None),
    };
    let draft = Draft { is_new: true, position, text: "{\n  \n}".to_owned(), ..Draft::default().on(&list) };
    let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let typed_position = typed.filter(|_| problem.is_some()).map(str::to_owned);
    let said = Flash { status, position_problem: problem, typed_position, ..Flash::default() };
    page(visit, target, &list, &draft, said)
}

/// The position before which entities are added, at most `last`, and the mistake in it in a list of `length`.
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

/// Handles the form. Every response contains the text again.
pub(super) async fn act(visit: &mut Visit, target: &Target, mut sent: SubmittedForm) -> PageResult {
    let mut list_now = list(visit, &target.place, None).await?;
    let typed = sent.fields.first("position").unwrap_or_default().to_owned();
    let mut draft = Draft::sent(&sent, true, list_now.length)?;
    // If the list has changed, the position is checked below.
    let last = if list_now.etag == draft.etag { list_now.length } else { u64::MAX };
    let (position, position_problem) = before(&typed, last, list_now.length);
    draft.position = position;
    let entities = draft.read(text::entities).await?;
    if entities.is_err() || position_problem.is_some() {
        let status = if entities.is_err() { draft.status_of_mistake() } else { StatusCode::BAD_REQUEST };
        let typed_position = Some(typed);
        let said = Flash { status, problem: entities.err(), position_problem, typed_position, ..Flash::default() };
        return page(visit, target, &list_now, &draft, said);
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
            // Entities that were to be added to the end still are.
            if !is_saved || draft.position != draft.length || tries_left == 0 {
                return stale(visit, target, &list_now, &draft);
            }
            is_beside = true;
            draft = Draft { position: list_now.length, ..draft.on(&list_now) };
        }
        if !is_saved {
            break;
        }
        tries_left -= 1;
        match save(visit, target, &draft.etag, edits_at(draft.position), sent.room.take()).await {
            Ok(reply) => return Ok(if is_beside { Reply::done("beside", &target.place.alternate()) } else { reply }),
            Err(HttpError::Manage(ManageError::Stale)) => list_now = list(visit, &target.place, None).await?,
            Err(error) => {
                let said = failed(visit, error);
                return page(visit, target, &list_now, &draft, said);
            }
        }
    }
    let mut space = Room::for_page();
    let tables = entities.iter().take(NAMED).enumerate().map(|(number, entity)| {
        let caption = format!("New entity {} of {}", number + 1, entities.len());
        let sides = [None, Some(entity.as_slice())];
        Compared::new(caption, ["Now", "After saving"], sides, Equality::Text, Paths::All, &mut space)
    });
    let tables: Vec<Compared> = tables.collect();
    let left_out = entities.len() - tables.len();
    let call = call(target, &list_now.etag, &edits_at(draft.position));
    let preview = Some(Preview { tables, left_out, note: None, call });
    page(visit, target, &list_now, &draft, Flash { preview, ..Flash::default() })
}

/// Another user has saved or deleted the alternate since the form was made.
fn stale(visit: &Visit, target: &Target, list: &List, draft: &Draft) -> PageResult {
    let alert = format!(
        "Another user saved changes first, so yours were not saved. The list had {} and now has {}. Your text is still \
         below. Before you save again, check that the position is still correct.",
        format::counted(draft.length, "entity", "entities"),
        format::grouped(list.length)
    );
    let position = if draft.position >= draft.length { list.length } else { draft.position.min(list.length) };
    let said = Flash { status: StatusCode::CONFLICT, alert: Some(alert), ..Flash::default() };
    page(visit, target, list, &Draft { position, ..draft.on(list) }, said)
}
