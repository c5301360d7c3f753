//! The list that a form edits: the alternate of a version (its edited copy), or the version itself if it has none. A
//! page reads only the entities that it shows.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_service::{ManageError, OwnerReadError, PulledPage, ReadError, ResponseBody};
use strata_types::limits::MAX_PAGE_ENTITY_BYTES;
use strata_types::version::VersionVariant;

use super::neighbors::{EntityNeighbors, NeighborEntity};
use crate::entity_diff::array_elements;
use crate::page_request::PageRequest;
use crate::urls::VersionUrls;

pub(super) struct EditableList {
    pub(super) etag: String,
    pub(super) length: u64,
    pub(super) is_alternate: bool,
    pub(super) entity: EntityAtPosition,
    /// The entities before and after `entity`; `Unknown` unless they were requested.
    pub(super) neighbors: EntityNeighbors,
}

pub(super) enum EntityAtPosition {
    /// The list has no entity at the requested position, or no entity was requested.
    None,
    /// The entity is larger than `MAX_PAGE_ENTITY_BYTES`.
    TooLarge,
    Entity(Vec<u8>),
}

impl EntityAtPosition {
    pub(super) fn entity_bytes(&self) -> Option<&[u8]> {
        if let EntityAtPosition::Entity(entity) = self { Some(entity) } else { None }
    }
}

pub(super) async fn load_list(
    req: &PageRequest,
    urls: &VersionUrls,
    position: Option<u64>,
) -> Result<EditableList, HttpError> {
    let position = position.filter(|position| *position < u64::MAX);
    let limit = u64::from(position.is_some());
    let (list, entities) = read_list_page(req, urls, true, position.unwrap_or(0), limit).await?;
    Ok(EditableList { entity: first_entity(entities), ..list })
}

/// Like [`load_list`], with the entities before and after the entity. One read returns all three if they fit a page.
pub(super) async fn load_list_with_neighbors(
    req: &PageRequest,
    urls: &VersionUrls,
    position: u64,
) -> Result<EditableList, HttpError> {
    if position == u64::MAX {
        return load_list(req, urls, None).await;
    }
    let before = u64::from(position > 0);
    let (mut list, entities) = read_list_page(req, urls, true, position - before, before + 2).await?;
    let Some(entities) = entities else { return load_list(req, urls, Some(position)).await };
    let mut entities = entities.into_iter();
    list.neighbors.before = match before {
        0 => NeighborEntity::ListEnd,
        _ => entities.next().map(|entity| NeighborEntity::from_entity(&entity)).unwrap_or_default(),
    };
    if let Some(entity) = entities.next() {
        list.entity = EntityAtPosition::Entity(entity);
        list.neighbors.after =
            entities.next().map_or(NeighborEntity::ListEnd, |entity| NeighborEntity::from_entity(&entity));
    }
    Ok(list)
}

pub(super) async fn load_version_entity(
    req: &PageRequest,
    urls: &VersionUrls,
    position: u64,
) -> Result<EntityAtPosition, HttpError> {
    let (_, entities) = read_list_page(req, urls, false, position, 1).await?;
    Ok(first_entity(entities))
}

fn first_entity(entities: Option<Vec<Vec<u8>>>) -> EntityAtPosition {
    entities.map_or(EntityAtPosition::TooLarge, |entities| {
        entities.into_iter().next().map_or(EntityAtPosition::None, EntityAtPosition::Entity)
    })
}

/// Reads `limit` entities of an alternate; `None` if they are larger than a page may be. Reads the version itself if it
/// has no alternate or if `alt` is false.
async fn read_list_page(
    req: &PageRequest,
    urls: &VersionUrls,
    alt: bool,
    offset: u64,
    limit: u64,
) -> Result<(EditableList, Option<Vec<Vec<u8>>>), HttpError> {
    let user = req.require_user().map_err(|_| ManageError::DatasetNotFound)?;
    let pull =
        |variant| req.services.reads.pull_entities(&user, urls.dataset.id, urls.selector, variant, offset, Some(limit));
    let (pulled, is_alternate) = match pull(VersionVariant::from_alt(alt)).await {
        Err(OwnerReadError::Read(ReadError::AltNotFound(_))) if alt => (pull(VersionVariant::Original).await?, false),
        pulled => (pulled?, alt),
    };
    let PulledPage { etag, total_count: length, entities, .. } = pulled;
    let array = collect_limited_body(entities).await?;
    let entities = array.map(|array| array_elements(&array).into_iter().map(<[u8]>::to_vec).collect());
    let neighbors = EntityNeighbors::default();
    Ok((EditableList { etag, length, is_alternate, entity: EntityAtPosition::None, neighbors }, entities))
}

const ARRAY_BRACKET_BYTES: usize = 2;

/// Collects the body of a read; returns `None` if the body is larger than a page may be.
async fn collect_limited_body(body: ResponseBody) -> Result<Option<Vec<u8>>, HttpError> {
    let mut collected = Vec::new();
    let mut parts = body.into_stream();
    while let Some(part) = parts.try_next().await? {
        if collected.len() + part.len() > MAX_PAGE_ENTITY_BYTES + ARRAY_BRACKET_BYTES {
            return Ok(None);
        }
        collected.extend_from_slice(&part);
    }
    Ok(Some(collected))
}
