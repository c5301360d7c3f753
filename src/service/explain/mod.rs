//! What a read does: its plans, and what running them took. The read itself is made, to its last byte, by the same
//! functions that answer reads ([`App::make_answer`]); only that an [`Observer`] sees it, that no cache of answers is
//! asked, and that the bytes are counted and discarded.
//!
//! | Module | Holds |
//! |---|---|
//! | `record` | the explanation as data |
//! | `text` | the explanation for people |
//! | `hints` | what could make the read cheaper |

mod hints;
mod record;
mod text;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;

use crate::catalog::Resolved;
use crate::model::ids::DatasetId;
use crate::model::request::{Format, ReadRequest};
use crate::model::user::User;
use crate::model::version::VersionSelector;
use crate::query::explain::Explained;
use crate::service::admission::Weight;
use crate::service::admission::semaphore::Holder;
use crate::service::dataset::manage::ManageError;
use crate::service::export_cache::ExportState;
use crate::service::read::Taker;
use crate::service::{Admitted, AnswerBody, App, CacheKey, ReadError};
use crate::storage::reader::VersionReader;
use crate::storage::reader_metrics::{CacheUse, ReaderMetrics};

pub use record::{
    AnswerUse, DocumentUse, Explanation, IgnoredParameter, KeptAnswer, LookupUse, PartUse, RequestParameter, StageName,
    StageTime, WorkUse,
};

/// Why a read is not explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The dataset is not there, or not the caller's.
    #[error(transparent)]
    Manage(#[from] ManageError),
    /// The read itself fails.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Sees an answer being made.
pub(in crate::service) struct Observer {
    /// What opening the file and settling the selection ask for.
    pub settling: Arc<ReaderMetrics>,
    /// What the body asks for.
    pub answering: Arc<ReaderMetrics>,
    stages: Vec<StageTime>,
    lap: Instant,
    opened: Option<(VersionReader, u64)>,
    explained: Option<Explained>,
    spilled_bytes: Option<u64>,
    columns: Option<usize>,
}

impl Observer {
    fn start() -> Observer {
        Observer {
            settling: Arc::default(),
            answering: Arc::default(),
            stages: Vec::new(),
            lap: Instant::now(),
            opened: None,
            explained: None,
            spilled_bytes: None,
            columns: None,
        }
    }

    /// A stage is over that took so long.
    fn took(&mut self, stage: StageName, duration: Duration) {
        self.stages.push(StageTime { stage, duration_us: microseconds(duration) });
        self.lap = Instant::now();
    }

    fn over(&mut self, stage: StageName) {
        self.took(stage, self.lap.elapsed());
    }

    /// The file is open.
    pub(in crate::service) fn opened(&mut self, reader: &VersionReader, work_bytes: u64) {
        self.over(StageName::Open);
        self.opened = Some((reader.clone(), work_bytes));
    }

    /// The query has its permit, if it needs one.
    pub(in crate::service) fn admitted(&mut self) {
        self.over(StageName::Wait);
    }

    /// The selection is settled.
    pub(in crate::service) fn settled(&mut self, explained: Explained) {
        self.took(StageName::Plan, explained.planning);
        self.took(StageName::Select, explained.selecting);
        self.explained = Some(explained);
    }

    /// Documents have been put in order by way of the disk, so many bytes of them.
    pub(in crate::service) fn ordered(&mut self, spilled_bytes: u64) {
        self.over(StageName::Order);
        self.spilled_bytes = Some(spilled_bytes);
    }

    /// The columns of a table are known.
    pub(in crate::service) fn columns_found(&mut self, columns: usize) {
        self.over(StageName::Columns);
        self.columns = Some(columns);
    }
}

impl App {
    /// Makes the answer to a read of the owner's dataset, frozen or not, and tells what that took. Costs what the read
    /// costs when no answer is kept. Dropping the future stops the work. `ignored` are parameters that a read would
    /// ignore.
    ///
    /// # Errors
    /// [`ManageError::DatasetNotFound`], then what the read fails with, after its first byte, too.
    pub async fn explain(
        &self,
        owner: &User,
        dataset: DatasetId,
        version: VersionSelector,
        request: ReadRequest,
        ignored: Vec<IgnoredParameter>,
    ) -> Result<Explanation, ExplainError> {
        let resolved = self.catalog().resolve_read(dataset, version).await.map_err(ManageError::from)?;
        let resolved = resolved.filter(|resolved| resolved.dataset.owner == owner.id);
        self.acting_for(Holder::User(owner.id)).explain_resolved(resolved, version, request, ignored, true).await
    }

    /// As [`App::explain`], of any dataset: for the operator's command, which answers no reads, and so does not tell
    /// where an answer is kept.
    ///
    /// # Errors
    /// As of [`App::explain`].
    pub async fn explain_any(
        &self,
        dataset: DatasetId,
        version: VersionSelector,
        request: ReadRequest,
        ignored: Vec<IgnoredParameter>,
    ) -> Result<Explanation, ExplainError> {
        let resolved = self.catalog().resolve_read(dataset, version).await.map_err(ManageError::from)?;
        self.explain_resolved(resolved, version, request, ignored, false).await
    }

    async fn explain_resolved(
        &self,
        resolved: Option<Resolved>,
        selector: VersionSelector,
        request: ReadRequest,
        ignored: Vec<IgnoredParameter>,
        answers_reads: bool,
    ) -> Result<Explanation, ExplainError> {
        let Resolved { dataset, version } = resolved.ok_or(ManageError::DatasetNotFound)?;
        let version = version.ok_or(ReadError::VersionNotFound(selector))?;
        let admitted = Admitted::of(&dataset, &version, request.alt, self.admission().holder())?;
        let kept = if answers_reads { Some(self.kept_answer(&admitted, &request).await) } else { None };
        let (request, started) = (Arc::new(request), Instant::now());
        let mut observer = Observer::start();
        let answer = self.make_answer(&admitted, request.clone(), Taker::Service, Some(&mut observer)).await?;
        let (total, content_type) = (answer.total, answer.content_type);
        let streamed = !matches!(answer.body, AnswerBody::Whole(_));
        let body_bytes = self.discard(answer.body).await?;
        observer.over(StageName::Encode);
        let total_us = microseconds(started.elapsed());

        let lost = || ReadError::Unreadable(Arc::new(std::io::Error::other("an answer was made that nobody saw")));
        let Observer { settling, answering, stages, opened, explained, spilled_bytes, columns, .. } = observer;
        let ((reader, work_bytes), explained) = opened.zip(explained).ok_or_else(lost)?;
        let query = &self.config().query;
        let weight = Weight::of(work_bytes, query);
        let pages: u64 = (0..reader.row_groups().len()).map(|row_group| reader.page_count(row_group) as u64).sum();
        let mut explanation = Explanation {
            dataset_id: admitted.dataset_id.get(),
            name_slug: admitted.name_slug,
            version: admitted.version.get(),
            alt: admitted.alt,
            frozen: dataset.frozen,
            entity_count: reader.entity_count(),
            document_bytes: reader.layout().document_bytes,
            request: request.parameters().into_iter().map(RequestParameter::from).collect(),
            ignored,
            answer: AnswerUse {
                total,
                content_type,
                body_bytes,
                streamed,
                columns: columns.map(|number| number as u64),
            },
            stages,
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
            documents: DocumentUse {
                pages,
                pages_to_select: settling.distinct_pages(),
                pages_to_answer: answering.distinct_pages(),
                pages_not_read: pages.saturating_sub(settling.distinct_pages_with(&answering)),
                spilled_bytes,
            },
            parts: parts(&settling, &answering),
            hints: Vec::new(),
        };
        // Where it cannot be read, the hints know less.
        let profile = reader.profile().await.ok().flatten();
        explanation.hints = hints::hints(&explanation, &request, &reader, profile.as_ref());
        Ok(explanation)
    }

    /// Where the answer lies ready now.
    async fn kept_answer(&self, admitted: &Admitted, request: &ReadRequest) -> KeptAnswer {
        let identity = CacheKey::of(admitted, request);
        let cacheable = identity.is_some();
        let (mut response, mut export) = (Vec::new(), None);
        if let Some(identity) = identity {
            if request.format == Format::Parquet && !request.count {
                export = self.exports().state(identity).map(|state| match state {
                    ExportState::Made => "made",
                    ExportState::BeingMade => "being_made",
                    ExportState::TooLarge => "too_large",
                });
            } else {
                response = self.responses().kept(identity).await.into_iter().map(|coding| coding.name()).collect();
            }
        }
        KeptAnswer { cacheable, response, export }
    }

    /// Takes a body as fast as it comes, for as long as a client might, and counts its bytes.
    async fn discard(&self, body: AnswerBody) -> Result<u64, ReadError> {
        let chunks = match body {
            AnswerBody::Whole(bytes) => return Ok(bytes.len() as u64),
            AnswerBody::Stream(chunks) => chunks,
            AnswerBody::Export(export) => export.whole(),
        };
        let seconds = self.config().server.answer_timeout_s;
        let counted = chunks.try_fold(0, async |bytes, chunk| Ok(bytes + chunk.len() as u64));
        let counted = tokio::time::timeout(Duration::from_secs(seconds), counted).await;
        counted.map_err(|_| ReadError::Timeout { seconds })?
    }
}

fn parts(settling: &ReaderMetrics, answering: &ReaderMetrics) -> PartUse {
    let both = |of: fn(&ReaderMetrics) -> CacheUse| {
        let (one, other) = (of(settling), of(answering));
        LookupUse { hits: one.hits + other.hits, misses: one.misses + other.misses }
    };
    PartUse {
        footers: both(ReaderMetrics::footers),
        columns: both(ReaderMetrics::columns),
        bloom_filters: both(ReaderMetrics::blooms),
        document_pages: both(ReaderMetrics::documents),
        requests: settling.requests() + answering.requests(),
        request_bytes: settling.bytes() + answering.bytes(),
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
