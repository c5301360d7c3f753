//! Returns entities with the ETag that a client needs to save an edited list
//! ([`crate::DatasetService::save_alternate`]).

use std::sync::Arc;

use strata_encode::ContentCoding;
use strata_types::ids::DatasetId;
use strata_types::read_request::ReadRequest;
use strata_types::user::User;
use strata_types::version::{VersionNumber, VersionSelector, VersionVariant};

use crate::{
    AuthorizedRead, AuthorizedTarget, ManageError, OwnerReadError, Principal, ReadService, ResponseBody, alternate_etag,
};

pub struct PulledPage {
    pub version: VersionNumber,
    /// The [`alternate_etag`] of the version, with which the client can save an edited list.
    pub etag: String,
    pub has_alternate: bool,
    /// The number of entities in the entire list, not only on this page.
    pub total_count: u64,
    /// The offset of the next page; `None` at the end, and after an empty page.
    pub next_offset: Option<u64>,
    /// A compact JSON array of the stored entities.
    pub entities: ResponseBody,
}

impl ReadService {
    /// Returns a page of a version or of its alternate (edited copy). One look-up returns the entities and the ETag.
    pub async fn pull_entities(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        selector: VersionSelector,
        variant: VersionVariant,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<PulledPage, OwnerReadError> {
        let resolved = self.resolve_owned(Some(owner), dataset, selector).await?;
        let target = AuthorizedTarget::new(&resolved, selector, variant, Principal::User(owner.id))?;
        let version = resolved.version.ok_or(ManageError::DatasetNotFound)?;
        let request = Arc::new(ReadRequest { pretty: false, offset, limit, ..ReadRequest::default() });
        let read = AuthorizedRead::new(&target, &request);
        let page = Box::pin(self.respond(read, ContentCoding::Identity)).await?;
        let total_count = target.file.entity_count;
        let end = offset.saturating_add(page.total);
        let next_offset = (page.total > 0 && end < total_count).then_some(end);
        let etag = alternate_etag(&version);
        let has_alternate = version.alternate.is_some();
        Ok(PulledPage { version: version.number, etag, has_alternate, total_count, next_offset, entities: page.body })
    }
}
