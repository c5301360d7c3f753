//! The changes between two versions: the edits that turn one version into another one, for clients that have a copy.
//!
//! ```text
//! GET /changes/7/countries/active/?since=v3
//! {"position":17,"set":{"cca3":"FRA","population":68500000}}
//! {"version":4,"since":3,"entity_count":250,"content_sha256":"9f86d0…"}
//! ```
//!
//! The patch of the two files ([`strata_diff::patch`]) is heavy work, which concurrent requests share and the cache of
//! comparisons stores. The edits are encoded from the entities of the new version, with back-pressure from the client.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use strata_diff::patch::{self, PatchLimits, VersionPatch};
use strata_encode::ContentCoding;
use strata_format::reader::VersionReader;
use strata_query::QueryError;
use strata_query::fetch::selected_documents::{SELECTION_CHUNK_BYTES, SelectionChunk};
use strata_runtime::metrics::metrics;
use strata_runtime::priority::ThreadPriority;
use strata_types::read_request::ResponseFormat;

use crate::admission::resource_context::ResourceContext;
use crate::dataset::comparison_cache::SharedComparison;
use crate::dataset::diffs::mean_document_bytes;
use crate::read::body_stream::{BackpressuredEncoder, ENCODED_BYTES_PER_BYTE};
use crate::read::response_cache::compress;
use crate::read::text_body::MAX_WHOLE_BODY_BYTES;
use crate::{AuthorizedTarget, DiffService, ReadError, ReadResponse, ResponseBody};

const EDIT_OVERHEAD_BYTES: u64 = 32;

/// The changes from one version to another one. Clones share the patch.
#[derive(Clone)]
pub struct VersionChanges {
    resources: ResourceContext,
    new: VersionReader,
    patch: SharedComparison<VersionPatch>,
    /// The line after the edits, which contains the digest of the new version.
    last_line: String,
}

impl DiffService {
    /// Finds the changes that turn version `since` into the version of `target`, which belong to one dataset. Dropping
    /// the future cancels the work, unless other requests wait for the same patch.
    pub async fn find_changes(
        &self,
        target: &AuthorizedTarget,
        since: &AuthorizedTarget,
    ) -> Result<VersionChanges, ReadError> {
        let resources = self.reads.resources.for_principal(target.principal);
        let files = [since.file.clone(), target.file.clone()];
        let readers = [self.open_reader(&files[0]).await?, self.open_reader(&files[1]).await?];
        let new = readers[1].clone();
        let compute = || {
            let resources = resources.clone();
            let [old, new] = readers.clone();
            async move {
                let _permit = resources.admission.acquire_diff().await?;
                let engine = resources.engine.with_priority(ThreadPriority::Heavy);
                Ok(VersionPatch::compute(&engine, old, new, PatchLimits::default()).await?)
            }
            .boxed()
        };
        let patch = match files[0].content_hash == files[1].content_hash {
            true => SharedComparison::uncached(VersionPatch::for_equal_versions()),
            false => self.cache.get_or_compute(&files, compute).await?,
        };
        let last_line = format!(
            "{{\"version\":{},\"since\":{},\"entity_count\":{},\"content_sha256\":\"{}\"}}\n",
            target.version, since.version, target.file.entity_count, target.file.content_hash
        );
        Ok(VersionChanges { resources, new, patch, last_line })
    }
}

impl VersionChanges {
    pub fn edit_count(&self) -> u64 {
        self.patch.edit_count()
    }

    /// Returns the edits and the last line as JSON Lines, compressed with `coding` if that is worthwhile.
    pub async fn respond(&self, coding: ContentCoding) -> Result<ReadResponse, ReadError> {
        let plain = ReadResponse {
            total: self.edit_count(),
            matches: None,
            content_type: ResponseFormat::Jsonl.content_type(),
            coding: ContentCoding::Identity,
            body: self.body().await?,
        };
        compress(&self.resources, plain, coding).await
    }

    fn mean_row_bytes(&self) -> u64 {
        EDIT_OVERHEAD_BYTES + mean_document_bytes(&self.new)
    }

    async fn body(&self) -> Result<ResponseBody, ReadError> {
        if let Some(body) = self.try_encode_whole().await? {
            return Ok(body);
        }
        let row_bytes = self.mean_row_bytes();
        let chunk_bytes = row_bytes.saturating_mul(ENCODED_BYTES_PER_BYTE);
        let stream_permit = self.resources.admission.acquire_stream_for_chunks(chunk_bytes).await?;
        let changes = Arc::new(self.clone());
        let encode = move |chunk: SelectionChunk, max_bytes: u64| {
            let changes = changes.clone();
            async move {
                let mut bytes = Vec::new();
                let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                let next = changes.write_edits(chunk.ordinals, max_bytes, &mut bytes).await?;
                Ok((bytes, next))
            }
        };
        let encoder = BackpressuredEncoder {
            capacity: self.resources.clone(),
            stream_permit,
            entity_count: self.patch.changed_rows(),
            mean_document_bytes: row_bytes,
            encode,
        };
        let last_line = Bytes::from(self.last_line.clone());
        Ok(ResponseBody::Stream(encoder.into_stream().chain(stream::iter([Ok(last_line)])).boxed()))
    }

    /// Encodes few edits as a whole; `None` if they must be streamed, because they are large or the memory is in use.
    async fn try_encode_whole(&self) -> Result<Option<ResponseBody>, ReadError> {
        let rows = self.patch.changed_rows();
        let estimated_bytes = rows.saturating_mul(self.mean_row_bytes());
        if estimated_bytes > SELECTION_CHUNK_BYTES {
            return Ok(None);
        }
        let Some(permit) = self.resources.admission.try_acquire_whole_body(estimated_bytes) else { return Ok(None) };
        let changes = self.clone();
        let work = async move {
            let mut body = Vec::new();
            let written = changes.write_edits(0..rows, MAX_WHOLE_BODY_BYTES, &mut body).await?;
            body.extend_from_slice(changes.last_line.as_bytes());
            Ok::<_, ReadError>((written == rows).then_some(body))
        };
        // If the entities are much larger than the mean size, the edits are streamed.
        let Some(body) = self.resources.engine.spawn(work).await.map_err(QueryError::from)?? else { return Ok(None) };
        metrics().sent_rows.increment(rows);
        Ok(Some(ResponseBody::Whole(self.resources.charge_whole_body(body, permit)?)))
    }

    async fn write_edits(&self, rows: Range<u64>, max_bytes: usize, out: &mut Vec<u8>) -> Result<u64, ReadError> {
        Ok(patch::write_edits(&self.patch, &self.new, rows, max_bytes, out).await?)
    }
}
