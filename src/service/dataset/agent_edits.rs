//! Entities of a version for clients that edit them, and then save the version's alternate
//! ([`crate::Datasets::save_alternate`]).

use std::sync::Arc;

use strata_encode::ContentCoding;
use strata_types::ids::DatasetId;
use strata_types::request::ReadRequest;
use strata_types::user::User;
use strata_types::version::{VersionNumber, VersionSelector};

use crate::{Admitted, AnswerBody, AuthorizedRead, InspectError, ManageError, Principal, Reads, alternate_etag};

pub struct Pulled {
    pub version: VersionNumber,
    /// The version's [`alternate_etag`] at the look-up.
    pub etag: String,
    pub has_alternate: bool,
    /// Entities of the entire list.
    pub total_count: u64,
    /// The offset of the next page; `None` at the end, and after an empty page.
    pub next_offset: Option<u64>,
    /// The stored entities as a compact JSON array.
    pub entities: AnswerBody,
}

impl Reads {
    /// A page of the entities of a version of the owner's dataset, or of its alternate, also while the dataset is
    /// frozen. One look-up finds them and their etag. Dropping the future, or a streamed body, stops the work.
    pub async fn pull(
        self: &Arc<Self>,
        owner: &User,
        dataset: DatasetId,
        selector: VersionSelector,
        alt: bool,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<Pulled, InspectError> {
        let resolved = self.resolve_owned(Some(owner), dataset, selector).await?;
        let admitted = Admitted::new(&resolved, selector, alt, Principal::User(owner.id))?;
        let version = resolved.version.ok_or(ManageError::DatasetNotFound)?;
        let request = Arc::new(ReadRequest { pretty: false, offset, limit, ..ReadRequest::default() });
        let read = AuthorizedRead::new(&admitted, &request);
        let answer = Box::pin(self.respond(read, ContentCoding::Identity)).await?;
        let total_count = admitted.file.entity_count;
        let end = offset.saturating_add(answer.total);
        let next_offset = (answer.total > 0 && end < total_count).then_some(end);
        let etag = alternate_etag(&version);
        let has_alternate = version.alt.is_some();
        Ok(Pulled { version: version.number, etag, has_alternate, total_count, next_offset, entities: answer.body })
    }
}
