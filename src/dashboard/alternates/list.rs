//! The list that edits change: the alternate of a version, or the version if it has none. A page reads only the
//! entities that it needs.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_service::{AnswerBody, InspectError, ManageError, Pulled, ReadError};
use strata_types::limits::PAGE_BYTES;

use super::neighbours::{Neighbour, Neighbours};
use crate::entity_diff::elements;
use crate::urls::Place;
use crate::visit::Visit;

pub(super) struct List {
    /// A change of the list must name this etag.
    pub(super) etag: String,
    pub(super) length: u64,
    pub(super) is_alternate: bool,
    pub(super) entity: FoundEntity,
    /// The neighbors of the entity, if they were requested.
    pub(super) beside: Neighbours,
}

/// The entity at a position.
pub(super) enum FoundEntity {
    /// There is none, or none was requested.
    None,
    /// It has more bytes than a page reads.
    TooLarge,
    Entity(Vec<u8>),
}

impl FoundEntity {
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            FoundEntity::Entity(entity) => Some(entity),
            FoundEntity::None | FoundEntity::TooLarge => None,
        }
    }
}

/// A list, and entities of it unless they are too large.
struct Page {
    list: List,
    entities: Option<Vec<Vec<u8>>>,
}

/// The list of a version of the visitor's dataset, with the entity at this position.
pub(super) async fn list(visit: &Visit, place: &Place, position: Option<u64>) -> Result<List, HttpError> {
    let page = match position.filter(|position| *position < u64::MAX) {
        None => read(visit, place, true, 0, 0).await?,
        Some(position) => read(visit, place, true, position, 1).await?,
    };
    Ok(List { entity: first(page.entities), ..page.list })
}

/// [`list`] with the neighbors of the entity: one read, unless the three are larger than a page.
pub(super) async fn list_beside(visit: &Visit, place: &Place, position: u64) -> Result<List, HttpError> {
    if position == u64::MAX {
        return list(visit, place, None).await;
    }
    let before = u64::from(position > 0);
    let Page { list: mut found, entities } = read(visit, place, true, position - before, before + 2).await?;
    let Some(entities) = entities else { return list(visit, place, Some(position)).await };
    let mut entities = entities.into_iter();
    found.beside.before = match before {
        0 => Neighbour::End,
        _ => entities.next().map(|entity| Neighbour::new(&entity)).unwrap_or_default(),
    };
    if let Some(entity) = entities.next() {
        found.entity = FoundEntity::Entity(entity);
        found.beside.behind = entities.next().map_or(Neighbour::End, |entity| Neighbour::new(&entity));
    }
    Ok(found)
}

/// The entity at a position of the version itself.
pub(super) async fn of_version(visit: &Visit, place: &Place, position: u64) -> Result<FoundEntity, HttpError> {
    Ok(first(read(visit, place, false, position, 1).await?.entities))
}

fn first(entities: Option<Vec<Vec<u8>>>) -> FoundEntity {
    entities.map_or(FoundEntity::TooLarge, |entities| {
        entities.into_iter().next().map_or(FoundEntity::None, FoundEntity::Entity)
    })
}

/// Reads `limit` entities of the alternate, or of the version if there is no alternate or `alt` is false.
async fn read(visit: &Visit, place: &Place, alt: bool, offset: u64, limit: u64) -> Result<Page, HttpError> {
    let user = visit.user().map_err(|_| ManageError::DatasetNotFound)?;
    let pull = |alt| visit.services.reads.pull(&user, place.dataset.id, place.selector, alt, offset, Some(limit));
    let (pulled, is_alternate) = match pull(alt).await {
        Err(InspectError::Read(ReadError::AltNotFound(_))) if alt => (pull(false).await?, false),
        pulled => (pulled?, alt),
    };
    let Pulled { etag, total_count, entities, .. } = pulled;
    let array = collected(entities).await?;
    let entities = array.map(|array| elements(&array).into_iter().map(<[u8]>::to_vec).collect());
    let list =
        List { etag, length: total_count, is_alternate, entity: FoundEntity::None, beside: Neighbours::default() };
    Ok(Page { list, entities })
}

/// Bytes around an entity that is alone in its array.
const BRACKETS: usize = 2;

/// The whole body, unless it is larger than a page reads.
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
