//! Reads of a version. [`pipeline`] has the steps of a read, and the functions that a request passes.

pub(crate) mod ahead;
pub(crate) mod body;
pub(crate) mod column_types;
pub(crate) mod edited;
pub(crate) mod fields;
pub(crate) mod hints;
pub(crate) mod observer;
pub(crate) mod parquet;
pub(crate) mod pipeline;
pub(crate) mod responses;
pub(crate) mod single_flight;
pub(crate) mod source;
pub(crate) mod stream;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use strata_catalog::Catalog;
use strata_config::Config;
use strata_encode::ContentCoding;
use strata_format::cache::PartCache;
use strata_store::store::Store;
use strata_types::request::ReadRequest;

use crate::admission::capacity::Capacity;
use crate::export_cache::{Consumer, Export, ExportBody, ExportSource, Exports, SharedExports, Totals};
use crate::read::pipeline::ReadRun;
use crate::read::responses::Responses;
use crate::{Admitted, CacheKey, Lookups, ManageError, ReadError};

pub struct Answer {
    /// Entities in the answer, or the count that it holds.
    pub total: u64,
    /// Those that the steps before `sample` leave, where the request asks for them.
    pub matches: Option<u64>,
    pub content_type: &'static str,
    pub coding: ContentCoding,
    pub body: AnswerBody,
}

/// A body: whole when it is small.
pub enum AnswerBody {
    Whole(Bytes),
    /// Its parts, in order. An error means that the rest cannot be had.
    Stream(BoxStream<'static, Result<Bytes, ReadError>>),
    /// A Parquet export in the cache, of which parts can be had.
    Export(Export),
}

impl AnswerBody {
    pub fn into_stream(self) -> BoxStream<'static, Result<Bytes, ReadError>> {
        match self {
            AnswerBody::Whole(bytes) => futures::stream::once(async { Ok(bytes) }).boxed(),
            AnswerBody::Stream(parts) => parts,
            AnswerBody::Export(export) => export.whole(),
        }
    }
}

/// Why what an owner asks of a version has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Manage(#[from] ManageError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

pub struct Reads {
    pub(crate) config: Arc<Config>,
    pub(crate) catalog: Catalog,
    pub(crate) lookups: Arc<Lookups>,
    pub(crate) store: Store,
    pub(crate) cache: PartCache,
    pub(crate) capacity: Capacity,
    pub(crate) responses: Responses,
    pub(crate) exports: Arc<Exports>,
    pub(crate) shared: Option<Arc<SharedExports>>,
}

impl Reads {
    /// The length of an export that is whole in the cache or in the shared store: parts of it need no making.
    pub async fn made_export_bytes(&self, key: CacheKey) -> Option<u64> {
        match (self.exports.made_bytes(key), &self.shared) {
            (None, Some(shared)) => shared.bytes(key).await,
            (bytes, _) => bytes,
        }
    }

    pub(super) fn export_source(
        self: &Arc<Self>,
        capacity: &Capacity,
        key: CacheKey,
        admitted: &Admitted,
        request: &Arc<ReadRequest>,
    ) -> ExportSource {
        let reads = self.clone();
        let own_capacity = capacity.clone();
        let own_admitted = admitted.clone();
        let own_request = request.clone();
        let source: ExportSource = Arc::new(move |consumer| {
            let reads = reads.clone();
            let capacity = own_capacity.clone();
            let admitted = own_admitted.clone();
            let request = own_request.clone();
            Box::pin(async move {
                let Answer { total, matches, body, .. } =
                    ReadRun::new(&reads, &capacity, &admitted, request, consumer).run().await?;
                Ok(ExportBody::new(Totals { total, matches }, body.into_stream()))
            })
        });
        match &self.shared {
            Some(shared) => shared.source(capacity, key, &admitted.file, source),
            None => source,
        }
    }

    async fn export(
        self: &Arc<Self>,
        capacity: Capacity,
        key: CacheKey,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
    ) -> Result<Answer, ReadError> {
        let source = self.export_source(&capacity, key, admitted, &request);
        let content_type = request.format.content_type();
        let coding = ContentCoding::Identity;
        Ok(match self.exports.get(&capacity, key, source.clone()).await? {
            Some(export) => {
                let Totals { total, matches } = export.totals;
                Answer { total, matches, content_type, coding, body: AnswerBody::Export(export) }
            }
            // The store may have room for what this server has none for.
            None => {
                let ExportBody { totals: Totals { total, matches }, chunks, .. } = source(Consumer::Client).await?;
                Answer { total, matches, content_type, coding, body: AnswerBody::Stream(chunks) }
            }
        })
    }
}
