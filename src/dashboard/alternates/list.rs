//! The list that edits change: the alternate of a version, or the version while it has none. Only the entities that a
//! page is about are read of it.

use futures::TryStreamExt;

use crate::dashboard::place::Place;
use crate::dashboard::visit::Visit;
use crate::document::Cursor;
use crate::http::error::HttpError;
use crate::model::limits::PAGE_BYTES;
use crate::service::{AnswerBody, PullError, Pulled, ReadError};

/// The list, and an entity of it.
pub(super) struct List {
    /// What a change of it must name.
    pub(super) etag: String,
    /// How many entities it has.
    pub(super) length: u64,
    /// Whether it is an alternate.
    pub(super) is_alternate: bool,
    pub(super) entity: Found,
}

/// The entity of a position.
pub(super) enum Found {
    /// There is none, or none was asked for.
    None,
    /// It has more bytes than a page reads.
    TooLarge,
    /// Its canonical text.
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
///
/// # Errors
/// Those of `pull_for_edit`.
pub(super) async fn list(visit: &Visit, place: &Place, position: Option<u64>) -> Result<List, HttpError> {
    match read(visit, place, true, position).await {
        Err(PullError::Read(ReadError::AltNotFound(_))) => {
            Ok(read(visit, place, false, position).await?.taken().await?)
        }
        other => Ok(other?.taken().await?),
    }
}

/// The entity of a position of the version itself.
///
/// # Errors
/// Those of `pull_for_edit`.
pub(super) async fn of_version(visit: &Visit, place: &Place, position: u64) -> Result<Found, HttpError> {
    Ok(read(visit, place, false, Some(position)).await?.taken().await?.entity)
}

/// A list whose entity is still to be read.
struct Pending {
    pulled: Pulled,
    alt: bool,
    is_asked: bool,
}

async fn read(visit: &Visit, place: &Place, alt: bool, position: Option<u64>) -> Result<Pending, PullError> {
    let user = visit.user().map_err(|_| crate::service::ManageError::DatasetNotFound)?;
    let page = (position.unwrap_or(0), Some(u64::from(position.is_some())));
    let pulled = visit.app.agent_edits().pull(&user, place.dataset.id, place.selector, alt, page).await?;
    Ok(Pending { pulled, alt, is_asked: position.is_some_and(|position| position < u64::MAX) })
}

impl Pending {
    async fn taken(self) -> Result<List, HttpError> {
        let Pulled { etag, total_count, entities, .. } = self.pulled;
        let entity = match (self.is_asked, collected(entities).await?) {
            (false, _) => Found::None,
            (true, None) => Found::TooLarge,
            (true, Some(array)) => {
                let mut cursor = Cursor::new(&array);
                cursor.enter();
                match cursor.next_element() {
                    true => Found::Entity(cursor.skip_value().to_vec()),
                    false => Found::None,
                }
            }
        };
        Ok(List { etag, length: total_count, is_alternate: self.alt, entity })
    }
}

/// All of a body, if a page reads as much.
async fn collected(body: AnswerBody) -> Result<Option<Vec<u8>>, HttpError> {
    let mut parts = match body {
        AnswerBody::Whole(bytes) => return Ok((bytes.len() <= PAGE_BYTES).then(|| bytes.to_vec())),
        AnswerBody::Stream(parts) => parts,
        AnswerBody::Export(export) => export.whole(),
    };
    let mut collected = Vec::new();
    while let Some(part) = parts.try_next().await? {
        if collected.len() + part.len() > PAGE_BYTES {
            return Ok(None);
        }
        collected.extend_from_slice(&part);
    }
    Ok(Some(collected))
}
