//! The list that a form edits: the alternate of a version, or the version itself if it has no alternate. A page reads
//! only the entities that it shows.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_service::{ManageError, OwnerReadError, PulledPage, ReadError, ResponseBody};
use strata_types::limits::MAX_PAGE_ENTITY_BYTES;

use super::neighbors::{EntityNeighbors, NeighborEntity};
use crate::entity_diff::array_elements;
use crate::page_request::PageRequest;
use crate::urls::VersionUrls;

pub(super) struct EditableList {
    pub(super) etag: String,
    pub(super) length: u64,
    pub(super) is_alternate: bool,
    pub(super) entity: EntityAtPosition,
    /// `Unknown` unless requested.
    pub(super) neighbors: EntityNeighbors,
}

pub(super) enum EntityAtPosition {
    /// No entity at this position, or none was requested.
    None,
    /// Larger than `MAX_PAGE_ENTITY_BYTES`.
    TooLarge,
    Entity(Vec<u8>),
}

impl EntityAtPosition {
    pub(super) fn entity_bytes(&self) -> Option<&[u8]> {
        match self {
            EntityAtPosition::Entity(entity) => Some(entity),
            EntityAtPosition::None | EntityAtPosition::TooLarge => None,
        }
    }
}

struct ListPage {
    list: EditableList,
    entities: Option<Vec<Vec<u8>>>,
}

pub(super) async fn load_list(
    req: &PageRequest,
    urls: &VersionUrls,
    position: Option<u64>,
) -> Result<EditableList, HttpError> {
    let page = match position.filter(|position| *position < u64::MAX) {
        None => read_list_page(req, urls, true, 0, 0).await?,
        Some(position) => read_list_page(req, urls, true, position, 1).await?,
    };
    Ok(EditableList { entity: first_entity(page.entities), ..page.list })
}

/// Like [`load_list`], with the neighbors of the entity. This is one read unless the three entities exceed a page.
pub(super) async fn load_list_with_neighbors(
    req: &PageRequest,
    urls: &VersionUrls,
    position: u64,
) -> Result<EditableList, HttpError> {
    if position == u64::MAX {
        return load_list(req, urls, None).await;
    }
    let before = u64::from(position > 0);
    let ListPage { mut list, entities } = read_list_page(req, urls, true, position - before, before + 2).await?;
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
    Ok(first_entity(read_list_page(req, urls, false, position, 1).await?.entities))
}

fn first_entity(entities: Option<Vec<Vec<u8>>>) -> EntityAtPosition {
    entities.map_or(EntityAtPosition::TooLarge, |entities| {
        entities.into_iter().next().map_or(EntityAtPosition::None, EntityAtPosition::Entity)
    })
}

/// Reads `limit` entities of the alternate. Reads the version if there is no alternate or if `alt` is false.
async fn read_list_page(
    req: &PageRequest,
    urls: &VersionUrls,
    alt: bool,
    offset: u64,
    limit: u64,
) -> Result<ListPage, HttpError> {
    let user = req.require_user().map_err(|_| ManageError::DatasetNotFound)?;
    let pull = |alt| req.services.reads.pull_entities(&user, urls.dataset.id, urls.selector, alt, offset, Some(limit));
    let (pulled, is_alternate) = match pull(alt).await {
        Err(OwnerReadError::Read(ReadError::AltNotFound(_))) if alt => (pull(false).await?, false),
        pulled => (pulled?, alt),
    };
    let PulledPage { etag, total_count, entities, .. } = pulled;
    let array = collect_body(entities).await?;
    let entities = array.map(|array| array_elements(&array).into_iter().map(<[u8]>::to_vec).collect());
    let list = EditableList {
        etag,
        length: total_count,
        is_alternate,
        entity: EntityAtPosition::None,
        neighbors: EntityNeighbors::default(),
    };
    Ok(ListPage { list, entities })
}

const ARRAY_BRACKET_BYTES: usize = 2;

/// Returns the body; `None` if it is larger than a page may be.
async fn collect_body(body: ResponseBody) -> Result<Option<Vec<u8>>, HttpError> {
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
