//! Reads of a version. [`pipeline`] describes the steps of a read and its call path.

pub(crate) mod alternate_position;
pub(crate) mod arrow;
pub(crate) mod body_stream;
pub(crate) mod column_types;
pub(crate) mod entity_source;
pub(crate) mod export_prewarm;
pub(crate) mod hints;
pub(crate) mod observer;
pub(crate) mod parquet;
pub(crate) mod pipeline;
pub(crate) mod response_cache;
pub(crate) mod single_flight;
pub(crate) mod text_body;
pub(crate) mod unknown_fields;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use strata_catalog::Catalog;
use strata_config::Config;
use strata_encode::ContentCoding;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_store::store::Store;
use strata_types::read_request::ReadRequest;

use crate::admission::resource_context::ResourceContext;
use crate::export_cache::{
    CachedExport, ExportBody, ExportCache, ExportConsumer, ExportSource, ExportTotals, SharedExportStore,
};
use crate::read::pipeline::ReadRun;
use crate::read::response_cache::ResponseCache;
use crate::{AuthorizedTarget, CacheKey, LookupService, ManageError, ReadError};

pub struct ReadResponse {
    pub total: u64,
    pub matches: Option<u64>,
    pub content_type: &'static str,
    pub coding: ContentCoding,
    pub body: ResponseBody,
}

pub enum ResponseBody {
    Whole(Bytes),
    Stream(BoxStream<'static, Result<Bytes, ReadError>>),
    Export(CachedExport),
}

impl ReadResponse {
    pub fn is_streamed(&self) -> bool {
        matches!(self.body, ResponseBody::Stream(_))
    }
}

impl ResponseBody {
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        match self {
            ResponseBody::Whole(bytes) => futures::stream::once(async { Ok(bytes) }).boxed(),
            ResponseBody::Stream(chunks) => chunks,
            ResponseBody::Export(export) => export.into_chunks(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OwnerReadError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

pub struct ReadService {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) lookups: Arc<LookupService>,
    pub(crate) store: Store,
    pub(crate) cache: PartCache,
    pub(crate) resources: ResourceContext,
    pub(crate) response_cache: ResponseCache,
    pub(crate) export_cache: Arc<ExportCache>,
    pub(crate) shared_exports: Option<Arc<SharedExportStore>>,
}

impl ReadService {
    pub async fn cached_export_bytes(&self, key: CacheKey) -> Option<u64> {
        match (self.export_cache.complete_file_bytes(key), &self.shared_exports) {
            (None, Some(shared)) => shared.export_bytes(key).await,
            (bytes, _) => bytes,
        }
    }

    /// Returns the SHA-256 of a whole version as JSON Lines if it is recorded. `None` for an alternate that is a delta
    /// file, because its content hash covers the hashes and extents of its files instead of its entities.
    pub async fn recorded_list_sha256(&self, target: &AuthorizedTarget) -> Option<[u8; 32]> {
        if target.variant.is_alternate() {
            let reader = VersionReader::open_recorded(&self.store, &target.file, &self.cache).await.ok()?;
            if reader.layout().overlay.is_some() {
                return None;
            }
        }
        hex::decode(&target.file.content_hash).ok()?.try_into().ok()
    }

    pub(super) fn new_export_source(
        self: &Arc<Self>,
        resources: &ResourceContext,
        key: CacheKey,
        target: &AuthorizedTarget,
        request: &Arc<ReadRequest>,
    ) -> ExportSource {
        let reads = self.clone();
        let inputs = (resources.clone(), target.clone(), request.clone());
        let source: ExportSource = Arc::new(move |consumer| {
            let reads = reads.clone();
            let (resources, target, request) = inputs.clone();
            Box::pin(async move {
                let ReadResponse { total, matches, body, .. } =
                    ReadRun::new(&reads, &resources, &target, request, consumer).run().await?;
                Ok(ExportBody::new(ExportTotals { total, matches }, body.into_stream()))
            })
        });
        match &self.shared_exports {
            Some(shared) => shared.wrap_source(resources, key, &target.file, source),
            None => source,
        }
    }

    async fn respond_with_export(
        self: &Arc<Self>,
        resources: ResourceContext,
        key: CacheKey,
        target: &AuthorizedTarget,
        request: Arc<ReadRequest>,
    ) -> Result<ReadResponse, ReadError> {
        let source = self.new_export_source(&resources, key, target, &request);
        let content_type = request.format.content_type();
        let coding = ContentCoding::Identity;
        Ok(match self.export_cache.get(&resources, key, source.clone()).await? {
            Some(export) => {
                let ExportTotals { total, matches } = export.totals;
                ReadResponse { total, matches, content_type, coding, body: ResponseBody::Export(export) }
            }
            // The local export cache has no space, but the store may contain the export.
            None => {
                let ExportBody { totals: ExportTotals { total, matches }, chunks, .. } =
                    source(ExportConsumer::Client).await?;
                ReadResponse { total, matches, content_type, coding, body: ResponseBody::Stream(chunks) }
            }
        })
    }
}
