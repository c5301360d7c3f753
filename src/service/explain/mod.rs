//! Explains a read: its plans, and the cost of running them.
//!
//! [`ReadRun`], which runs all reads, builds the whole response without the response caches, while a [`ReadObserver`]
//! collects plans, stages and figures. The bytes of the response are counted and discarded.

mod hints;
mod record;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use strata_format::reader_metrics::{AtomicLookupCounts, ReaderMetrics};
use strata_types::ids::DatasetId;
use strata_types::read_request::{ReadRequest, ResponseFormat};
use strata_types::user::User;
use strata_types::version::VersionSelector;

use crate::export_cache::ExportConsumer;
use crate::read::hints::has_filter_or_sort;
use crate::read::observer::{ReadObserver, ReadStage};
use crate::read::pipeline::ReadRun;
use crate::read::{OwnerReadError, ReadResponse, ReadService, ResponseBody};
use crate::{AuthorizedTarget, CacheKey, CostClass, Principal, ReadError};
use record::{
    CacheLookups, CachedResponses, DocumentPageReport, FilePartReport, RequestParameter, ResponseReport, StageDuration,
    WorkEstimate, duration_to_us,
};
pub use record::{IgnoredParameter, ReadExplanation};

impl ReadService {
    /// Explains a read, at the cost of an uncached read. Commands pass no `owner`, so they can explain any dataset.
    pub async fn explain(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        version: VersionSelector,
        request: ReadRequest,
        ignored: Vec<IgnoredParameter>,
    ) -> Result<ReadExplanation, OwnerReadError> {
        let resolved = self.resolve_owned(owner, dataset, version).await?;
        let resources = owner
            .map_or_else(|| self.resources.clone(), |owner| self.resources.for_principal(Principal::User(owner.id)));
        let target = AuthorizedTarget::new(&resolved, version, request.variant(), resources.admission.principal)?;
        let cached = match owner {
            Some(_) => Some(self.cached_responses(&target, &request).await),
            None => None,
        };
        let request = Arc::new(request);
        let start = Instant::now();
        let mut observer = ReadObserver::new();
        let mut run = ReadRun::new(self, &resources, &target, request.clone(), ExportConsumer::Service);
        run.observer = Some(&mut observer);
        let ReadResponse { total, matches, content_type, body, .. } = Box::pin(run.run()).await?;
        let streamed = !matches!(body, ResponseBody::Whole(_));
        let body_bytes = self.drain_response_body(body).await?;
        observer.end_stage(ReadStage::Encode);
        let total_us = duration_to_us(start.elapsed());

        let unobserved = || ReadError::Unreadable(Arc::new(std::io::Error::other("nothing observed the response")));
        let ReadObserver {
            selection_metrics, response_metrics, stages, opened, explained, spilled_bytes, columns, ..
        } = observer;
        let ((reader, work_bytes), explained) = opened.zip(explained).ok_or_else(unobserved)?;
        let query = &self.config.query;
        let class = CostClass::from_work_bytes(work_bytes, query);
        let pages: u64 = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group) as u64).sum();
        let columns = columns.map(|number| number as u64);
        let parameter = |(name, value)| RequestParameter { name, value };
        let stage_time = |(stage, time)| StageDuration { stage, duration_us: duration_to_us(time) };
        let mut explanation = ReadExplanation {
            ok: true,
            dataset_id: target.dataset_id.get(),
            name_slug: target.name_slug,
            version: target.version.get(),
            alt: target.variant.is_alternate(),
            frozen: resolved.dataset.frozen,
            entity_count: reader.entity_count(),
            document_bytes: reader.layout().document_bytes,
            request: request.non_default_parameters().into_iter().map(parameter).collect(),
            ignored,
            answer: ResponseReport { total, matches, content_type, body_bytes, streamed, columns },
            stages: stages.into_iter().map(stage_time).collect(),
            total_us,
            work: WorkEstimate {
                work_bytes,
                medium_bytes: query.medium_bytes,
                heavy_bytes: query.heavy_bytes,
                weight: class,
                heavy: class == CostClass::Heavy,
            },
            kept: cached,
            optimized_plan: (explained.optimized_plan != explained.logical_plan).then_some(explained.optimized_plan),
            logical_plan: explained.logical_plan,
            operators: explained.operators,
            scan: explained.scan,
            distributed: explained.distributed,
            documents: DocumentPageReport {
                pages,
                pages_to_select: selection_metrics.distinct_pages(),
                pages_to_answer: response_metrics.distinct_pages(),
                pages_not_read: pages.saturating_sub(selection_metrics.distinct_pages_of_both(&response_metrics)),
                spilled_bytes,
            },
            parts: sum_file_parts(&selection_metrics, &response_metrics),
            hints: Vec::new(),
        };
        let profile = reader.profile().await.ok();
        let paths = if has_filter_or_sort(&request) { reader.profile_paths().await.ok() } else { None };
        explanation.hints = hints::hints(&explanation, &request, &reader, profile.as_ref(), paths.as_deref());
        Ok(explanation)
    }

    async fn cached_responses(&self, target: &AuthorizedTarget, request: &ReadRequest) -> CachedResponses {
        let key = CacheKey::for_request(target, request);
        let cacheable = key.is_some();
        let mut response = Vec::new();
        let mut export = None;
        if let Some(key) = key {
            if request.format == ResponseFormat::Parquet && !request.count {
                export = self.export_cache.state(key);
            } else {
                response =
                    self.response_cache.cached_codings(key).await.into_iter().map(|coding| coding.name()).collect();
            }
        }
        CachedResponses { cacheable, response, export }
    }

    /// Counts and discards the bytes of a response body, which must end within `server.answer_timeout_s`.
    async fn drain_response_body(&self, body: ResponseBody) -> Result<u64, ReadError> {
        let seconds = self.config.server.answer_timeout_s;
        let counted = body.into_stream().try_fold(0, async |bytes, chunk| Ok(bytes + chunk.len() as u64));
        let counted = tokio::time::timeout(Duration::from_secs(seconds), counted).await;
        counted.map_err(|_| ReadError::Timeout { seconds })?
    }
}

fn sum_file_parts(selection_metrics: &ReaderMetrics, response_metrics: &ReaderMetrics) -> FilePartReport {
    let sum = |counts: fn(&ReaderMetrics) -> &AtomicLookupCounts| {
        let selection = counts(selection_metrics).load();
        let response = counts(response_metrics).load();
        CacheLookups { hits: selection.hits + response.hits, misses: selection.misses + response.misses }
    };
    FilePartReport {
        footers: sum(|metrics| &metrics.footers),
        columns: sum(|metrics| &metrics.columns),
        keyword_index: sum(|metrics| &metrics.keyword_index),
        document_pages: sum(|metrics| &metrics.documents),
        requests: selection_metrics.fetch_count() + response_metrics.fetch_count(),
        request_bytes: selection_metrics.fetched_bytes() + response_metrics.fetched_bytes(),
    }
}
