//! Explains a read: its plans, and the cost of running them. The steps of all reads ([`ReadRun`]) build the whole
//! response. An [`Observer`] watches them, and no cache of responses is used. The bytes are counted and discarded.

mod hints;
mod record;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use strata_format::reader_metrics::{Lookups, ReaderMetrics};
use strata_types::ids::DatasetId;
use strata_types::request::{Format, ReadRequest};
use strata_types::user::User;
use strata_types::version::VersionSelector;

use crate::export_cache::Consumer;
use crate::read::hints::asks_for_types;
use crate::read::observer::{Observer, StageName};
use crate::read::pipeline::ReadRun;
use crate::read::{Answer, AnswerBody, InspectError, Reads};
use crate::{Admitted, CacheKey, Principal, ReadError, Weight};
use record::{
    AnswerUse, DocumentUse, KeptAnswer, LookupUse, PartUse, RequestParameter, StageTime, WorkUse, microseconds,
};
pub use record::{Explanation, IgnoredParameter};

impl Reads {
    /// Makes the answer to a read of a dataset, frozen or not, and tells what that took. Costs what the read costs when
    /// no answer is kept. Dropping the future stops the work. `ignored` are parameters that a read would ignore.
    /// Without an owner it is for a command, which may read all datasets, has no caches, and tells of none.
    pub async fn explain(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        version: VersionSelector,
        request: ReadRequest,
        ignored: Vec<IgnoredParameter>,
    ) -> Result<Explanation, InspectError> {
        let resolved = self.resolve_owned(owner, dataset, version).await?;
        let capacity = owner.map_or_else(|| self.capacity.clone(), |owner| self.capacity.of(Principal::User(owner.id)));
        let admitted = Admitted::new(&resolved, version, request.alt, capacity.admission.principal)?;
        let kept = match owner {
            Some(_) => Some(self.kept_answer(&admitted, &request).await),
            None => None,
        };
        let request = Arc::new(request);
        let started = Instant::now();
        let mut observer = Observer::start();
        let mut run = ReadRun::new(self, &capacity, &admitted, request.clone(), Consumer::Service);
        run.observer = Some(&mut observer);
        let answer = Box::pin(run.run()).await?;
        let Answer { total, matches, content_type, .. } = answer;
        let streamed = !matches!(answer.body, AnswerBody::Whole(_));
        let body_bytes = self.discard(answer.body).await?;
        observer.over(StageName::Encode);
        let total_us = microseconds(started.elapsed());

        let lost = || ReadError::Unreadable(Arc::new(std::io::Error::other("nothing observed the response")));
        let Observer { selecting, answering, stages, opened, explained, spilled_bytes, columns, .. } = observer;
        let ((reader, work_bytes), explained) = opened.zip(explained).ok_or_else(lost)?;
        let query = &self.config.query;
        let weight = Weight::of(work_bytes, query);
        let pages: u64 = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group) as u64).sum();
        let stage_time = |(stage, time)| StageTime { stage, duration_us: microseconds(time) };
        let mut explanation = Explanation {
            ok: true,
            dataset_id: admitted.dataset_id.get(),
            name_slug: admitted.name_slug,
            version: admitted.version.get(),
            alt: admitted.alt,
            frozen: resolved.dataset.frozen,
            entity_count: reader.entity_count(),
            document_bytes: reader.layout().document_bytes,
            request: request.parameters().into_iter().map(|(name, value)| RequestParameter { name, value }).collect(),
            ignored,
            answer: AnswerUse {
                total,
                matches,
                content_type,
                body_bytes,
                streamed,
                columns: columns.map(|number| number as u64),
            },
            stages: stages.into_iter().map(stage_time).collect(),
            total_us,
            work: WorkUse {
                work_bytes,
                medium_bytes: query.medium_bytes,
                heavy_bytes: query.heavy_bytes,
                weight,
                heavy: weight == Weight::Heavy,
            },
            kept,
            optimized_plan: (explained.optimized != explained.logical).then_some(explained.optimized),
            logical_plan: explained.logical,
            operators: explained.operators,
            scan: explained.scan,
            distributed: explained.distributed,
            documents: DocumentUse {
                pages,
                pages_to_select: selecting.distinct_pages(),
                pages_to_answer: answering.distinct_pages(),
                pages_not_read: pages.saturating_sub(selecting.distinct_pages_with(&answering)),
                spilled_bytes,
            },
            parts: parts(&selecting, &answering),
            hints: Vec::new(),
        };
        // Where it cannot be read, the hints know less.
        let profile = reader.profile().await.ok();
        let paths = if asks_for_types(&request) { reader.paths().await.ok() } else { None };
        explanation.hints = hints::hints(&explanation, &request, &reader, profile.as_ref(), paths.as_deref());
        Ok(explanation)
    }

    async fn kept_answer(&self, admitted: &Admitted, request: &ReadRequest) -> KeptAnswer {
        let key = CacheKey::of(admitted, request);
        let cacheable = key.is_some();
        let mut response = Vec::new();
        let mut export = None;
        if let Some(key) = key {
            if request.format == Format::Parquet && !request.count {
                export = self.exports.state(key);
            } else {
                response = self.responses.cached_codings(key).await.into_iter().map(|coding| coding.name()).collect();
            }
        }
        KeptAnswer { cacheable, response, export }
    }

    /// Takes a body as fast as it comes, for as long as a client might, and counts its bytes.
    async fn discard(&self, body: AnswerBody) -> Result<u64, ReadError> {
        let seconds = self.config.server.answer_timeout_s;
        let counted = body.into_stream().try_fold(0, async |bytes, chunk| Ok(bytes + chunk.len() as u64));
        let counted = tokio::time::timeout(Duration::from_secs(seconds), counted).await;
        counted.map_err(|_| ReadError::Timeout { seconds })?
    }
}

fn parts(selecting: &ReaderMetrics, answering: &ReaderMetrics) -> PartUse {
    let both = |of: fn(&ReaderMetrics) -> &Lookups| {
        let one = of(selecting).get();
        let other = of(answering).get();
        LookupUse { hits: one.hits + other.hits, misses: one.misses + other.misses }
    };
    PartUse {
        footers: both(|metrics| &metrics.footers),
        columns: both(|metrics| &metrics.columns),
        bloom_filters: both(|metrics| &metrics.blooms),
        keyword_index: both(|metrics| &metrics.keywords),
        shapes: both(|metrics| &metrics.shapes),
        document_pages: both(|metrics| &metrics.documents),
        requests: selecting.requests() + answering.requests(),
        request_bytes: selecting.bytes() + answering.bytes(),
    }
}
