//! The list that edits change: the alternate of a version, or the version while it has none. Only the entities that a
//! page is about are read of it.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_json::Cursor;
use strata_service::{AnswerBody, InspectError, ManageError, Pulled, ReadError};
use strata_types::limits::PAGE_BYTES;

use super::beside::{Beside, Neighbour};
use crate::place::Place;
use crate::visit::Visit;

pub(super) struct List {
    /// What a change of it must name.
    pub(super) etag: String,
    pub(super) length: u64,
    pub(super) is_alternate: bool,
    pub(super) entity: Found,
    /// What stands beside it, where that was asked for.
    pub(super) beside: Beside,
}

#[derive(Clone, Copy)]
enum Part {
    Nothing,
    Entity(u64),
    Beside(u64),
}

impl Part {
    /// The first position, and how many entities.
    fn page(self) -> (u64, u64) {
        match self {
            Part::Nothing => (0, 0),
            Part::Entity(position) => (position, 1),
            Part::Beside(position) => (position.saturating_sub(1), if position > 0 { 3 } else { 2 }),
        }
    }
}

/// The entity of a position.
pub(super) enum Found {
    /// There is none, or none was asked for.
    None,
    /// It has more bytes than a page reads.
    TooLarge,
    Entity(Vec<u8>),
}

impl Found {
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Found::Entity(entity) => Some(entity),
            Found::None | Found::TooLarge => None,
        }
    }
}

/// The list of a version of the visitor's dataset, with the entity of this position.
pub(super) async fn list(visit: &Visit, place: &Place, position: Option<u64>) -> Result<List, HttpError> {
    let position = position.filter(|position| *position < u64::MAX);
    part(visit, place, position.map_or(Part::Nothing, Part::Entity)).await
}

/// As [`list`], with what stands beside the entity: one read, as long as all three are no larger than one may be.
pub(super) async fn list_beside(visit: &Visit, place: &Place, position: u64) -> Result<List, HttpError> {
    if position == u64::MAX {
        return list(visit, place, None).await;
    }
    let list = part(visit, place, Part::Beside(position)).await?;
    match list.entity {
        Found::TooLarge => part(visit, place, Part::Entity(position)).await,
        Found::None | Found::Entity(_) => Ok(list),
    }
}

async fn part(visit: &Visit, place: &Place, part: Part) -> Result<List, HttpError> {
    let (pulled, is_alternate) = match pull(visit, place, true, part).await {
        Err(InspectError::Read(ReadError::AltNotFound(_))) => (pull(visit, place, false, part).await?, false),
        pulled => (pulled?, true),
    };
    taken(pulled, is_alternate, part).await
}

/// The entity of a position of the version itself.
pub(super) async fn of_version(visit: &Visit, place: &Place, position: u64) -> Result<Found, HttpError> {
    let part = Part::Entity(position);
    Ok(taken(pull(visit, place, false, part).await?, false, part).await?.entity)
}

async fn pull(visit: &Visit, place: &Place, alt: bool, part: Part) -> Result<Pulled, InspectError> {
    let user = visit.user().map_err(|_| ManageError::DatasetNotFound)?;
    let (offset, limit) = part.page();
    visit.app.reads().pull(&user, place.dataset.id, place.selector, alt, (offset, Some(limit))).await
}

async fn taken(pulled: Pulled, is_alternate: bool, part: Part) -> Result<List, HttpError> {
    let Pulled { etag, total_count, entities, .. } = pulled;
    let mut entity = Found::None;
    let mut beside = Beside::default();
    match (part, collected(entities).await?) {
        (Part::Nothing, _) => {}
        (_, None) => entity = Found::TooLarge,
        (part, Some(array)) => {
            let mut cursor = Cursor::new(&array);
            cursor.enter();
            let mut next = || cursor.next_element().then(|| cursor.skip_value());
            beside.before = match part {
                Part::Beside(0) => Neighbour::End,
                Part::Beside(_) => next().map(Neighbour::of).unwrap_or_default(),
                Part::Entity(_) | Part::Nothing => Neighbour::Unknown,
            };
            if let Some(found) = next() {
                entity = Found::Entity(found.to_vec());
                if matches!(part, Part::Beside(_)) {
                    beside.behind = next().map_or(Neighbour::End, Neighbour::of);
                }
            }
        }
    }
    Ok(List { etag, length: total_count, is_alternate, entity, beside })
}

/// Bytes around an entity that is all of an array.
const BRACKETS: usize = 2;

/// All of a body, if a page reads as much.
async fn collected(body: AnswerBody) -> Result<Option<Vec<u8>>, HttpError> {
    let mut collected = Vec::new();
    let mut parts = body.into_stream();
    while let Some(part) = parts.try_next().await? {
        if collected.len() + part.len() > PAGE_BYTES + BRACKETS {
            return Ok(None);
        }
        collected.extend_from_slice(&part);
    }
    Ok(Some(collected))
}
