//! A read of a version, once its target is found ([`crate::lookup`]).
//!
//! Steps: select entities on the query engine; encode the selected documents ([`crate::read::body`]).

pub(crate) mod ahead;
pub(crate) mod body;
pub(crate) mod column_types;
pub(crate) mod edited;
pub(crate) mod fields;
pub(crate) mod hints;
pub(crate) mod observer;
pub(crate) mod parquet;
pub(crate) mod responses;
pub(crate) mod single_flight;
pub(crate) mod source;
pub(crate) mod stream;

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use strata_catalog::Catalog;
use strata_config::Config;
use strata_encode::{self as encode, ContentCoding};
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_query::{Outcome, cost};
use strata_store::store::Store;
use strata_store::{DirectoryGone, StorageError};
use strata_types::path::Path;
use strata_types::request::{Format, PathValue, RangeBound, ReadRequest};
use strata_types::version::VersionFile;

use crate::admission::capacity::Capacity;
use crate::export_cache::{Content, Export, Exports, Make, SharedExports, Taker, Totals};
use crate::read::body::{BodyMaker, within_time};
use crate::read::observer::{Observer, StageName};
use crate::read::responses::{Responses, coded};
use crate::{Admitted, CacheKey, Lookups, ManageError, ReadError, Weight};

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
    pub(crate) exports: Exports,
    pub(crate) shared: Option<Arc<SharedExports>>,
}

impl Reads {
    /// Answers a read, compressed as `coding` says if that is worth it. Dropping the future, or a streamed body, stops
    /// its work, unless others wait for the same.
    pub async fn answer(
        self: &Arc<Self>,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
        coding: ContentCoding,
    ) -> Result<Answer, ReadError> {
        self.answer_with_key(CacheKey::of(admitted, &request), admitted, &request, coding).await
    }

    /// Like [`Reads::answer`], with a precomputed cache key.
    pub async fn answer_with_key(
        self: &Arc<Self>,
        key: Option<CacheKey>,
        admitted: &Admitted,
        request: &Arc<ReadRequest>,
        coding: ContentCoding,
    ) -> Result<Answer, ReadError> {
        let capacity = || self.capacity.of(admitted.holder);
        if request.format == Format::Parquet && !request.count {
            // Where it is made, and waits for its reader: not told only after the first bytes.
            if !self.config.data.directory.is_dir() {
                return Err(StorageError::from(io::Error::from(DirectoryGone)).into());
            }
            let (capacity, request) = (capacity(), request.clone());
            return match key {
                Some(key) => Box::pin(self.export(capacity, key, admitted, request)).await,
                None => Box::pin(self.make_answer(&capacity, admitted, request, Taker::Client, None, None)).await,
            };
        }
        let make = || {
            let (reads, capacity) = (self.clone(), capacity());
            let admitted = admitted.clone();
            let request = request.clone();
            async move {
                let answer = reads.make_answer(&capacity, &admitted, request, Taker::Client, None, None).await?;
                coded(&capacity, answer, coding).await
            }
            .boxed()
        };
        match key {
            Some(key) => self.responses.get(key, coding, |size_bytes| capacity().account(size_bytes), make).await,
            None => make().await,
        }
    }

    /// As [`Reads::answer`] for who takes it uncompressed, with the positions in the file of the entities that it
    /// holds, in its order; none of a count. The query runs once. No cached answer is taken: those know no positions.
    pub async fn locate(
        &self,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
    ) -> Result<(Answer, Vec<u64>), ReadError> {
        let capacity = self.capacity.of(admitted.holder);
        let mut positions = Vec::new();
        let answer = self.make_answer(&capacity, admitted, request, Taker::Client, None, Some(&mut positions)).await?;
        Ok((answer, positions))
    }

    /// The weight of counting what matches a request: none of a count that is kept.
    pub async fn count_weight(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Weight, ReadError> {
        let Matching { key, request } = Matching::of(admitted, request);
        if self.responses.kept_count(key).await.is_some() {
            return Ok(Weight::Light);
        }
        let (_, work_bytes) = self.weighed(&admitted.file, &request, &self.cache).await?;
        Ok(Weight::of(work_bytes, &self.config.query))
    }

    /// How many entities match a request, whatever its page. The count is cached.
    pub async fn count(self: &Arc<Self>, admitted: &Admitted, request: &ReadRequest) -> Result<u64, ReadError> {
        let counting = Arc::new(request.matching());
        Ok(self.answer(admitted, counting, ContentCoding::Identity).await?.total)
    }

    /// The positions in the file of what a read returns, in its order, by another query; not of a count or sample.
    pub async fn positions(&self, admitted: &Admitted, request: Arc<ReadRequest>) -> Result<Vec<u64>, ReadError> {
        let (reader, work_bytes) = self.weighed(&admitted.file, &request, &self.cache).await?;
        let weight = Weight::of(work_bytes, &self.config.query);
        let capacity = self.capacity.of(admitted.holder);
        let _permit = capacity.admission.query(weight).await?;
        let outcome = capacity.engine.at(weight.priority()).select(reader, request).await?;
        Ok(match outcome {
            Outcome::Count(_) => Vec::new(),
            Outcome::Selection(selection) => selection.positions().to_vec(),
        })
    }

    /// How the numbers of a path are spread: for each end of a range, how many entities have a number at the path that
    /// is not below it, as a count with `filter_gte` gives it; `None` where the path has no shredded column, or an end
    /// is no number.
    pub async fn numbers_not_below(
        &self,
        admitted: &Admitted,
        path: &Path,
        ends: Vec<String>,
    ) -> Result<Option<Vec<u64>>, ReadError> {
        let reader = VersionReader::open_recorded(&self.store, &admitted.file, &self.cache).await?;
        // As much work as a read with all of these conditions.
        let mut alike = ReadRequest { count: true, ..ReadRequest::default() };
        let conditions = ends.iter().map(|end| PathValue { path: path.clone(), value: end.clone() });
        alike.ranges[RangeBound::GreaterOrEqual as usize].extend(conditions);
        let weight = Weight::of(cost::work_bytes(&reader, &alike).await, &self.config.query);
        let capacity = self.capacity.of(admitted.holder);
        let _permit = capacity.admission.query(weight).await?;
        Ok(capacity.engine_for(weight).numbers_not_below(reader, path.clone(), ends).await?)
    }

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
    ) -> Make {
        let (reads, own) = (self.clone(), capacity.clone());
        let (owned, wanted) = (admitted.clone(), request.clone());
        let make: Make = Arc::new(move |taker| {
            let (reads, capacity) = (reads.clone(), own.clone());
            let (admitted, request) = (owned.clone(), wanted.clone());
            Box::pin(async move {
                let Answer { total, matches, body, .. } =
                    reads.make_answer(&capacity, &admitted, request, taker, None, None).await?;
                Ok(Content::new(Totals { total, matches }, body.into_stream()))
            })
        });
        match &self.shared {
            Some(shared) => shared.maker(capacity, key, (admitted.file.id, admitted.file.size_bytes), make),
            None => make,
        }
    }

    async fn export(
        self: &Arc<Self>,
        capacity: Capacity,
        key: CacheKey,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
    ) -> Result<Answer, ReadError> {
        let make = self.export_source(&capacity, key, admitted, &request);
        let (content_type, coding) = (request.format.content_type(), ContentCoding::Identity);
        match self.exports.get(&capacity, key, make.clone()).await? {
            Some(export) => {
                let Totals { total, matches } = export.totals;
                Ok(Answer { total, matches, content_type, coding, body: AnswerBody::Export(export) })
            }
            // The store may have room for what this server has none for.
            None if self.shared.is_some() => {
                let Content { totals: Totals { total, matches }, chunks, .. } = make(Taker::Client).await?;
                Ok(Answer { total, matches, content_type, coding, body: AnswerBody::Stream(chunks) })
            }
            None => self.make_answer(&capacity, admitted, request, Taker::Client, None, None).await,
        }
    }

    /// The file of a read, and its work in bytes, within the time that a query may take.
    async fn weighed(
        &self,
        file: &VersionFile,
        request: &ReadRequest,
        cache: &PartCache,
    ) -> Result<(VersionReader, u64), ReadError> {
        let opening = async {
            let reader = VersionReader::open_recorded(&self.store, file, cache).await?;
            let work_bytes = cost::work_bytes(&reader, request).await;
            Ok((reader, work_bytes))
        };
        within_time(&self.capacity.engine, opening).await
    }

    /// Makes the answer to a read, as it is before it is coded or kept ([`Reads::answer`]). The observer sees what that
    /// takes; `positions` gets those of the selected entities. Dropping the future, or a streamed body, stops its work.
    pub(crate) async fn make_answer(
        &self,
        capacity: &Capacity,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
        taker: Taker,
        mut observer: Option<&mut Observer>,
        positions: Option<&mut Vec<u64>>,
    ) -> Result<Answer, ReadError> {
        let observed = observer.as_ref().map(|observer| self.cache.observed(observer.selecting.clone()));
        let cache = observed.as_ref().unwrap_or(&self.cache);
        let started = Instant::now();
        let matching = request.total.then(|| Matching::of(admitted, &request));
        let kept = match &matching {
            // Explained is what the count itself takes.
            Some(matching) if observer.is_none() => self.responses.kept_count(matching.key).await,
            _ => None,
        };
        let uncounted = kept.map(|_| ReadRequest { total: false, ..(*request).clone() });
        let (reader, work_bytes) = self.weighed(&admitted.file, uncounted.as_ref().unwrap_or(&request), cache).await?;
        let opening = started.elapsed();
        let weight = Weight::of(work_bytes, &self.config.query);
        if let Some(observer) = &mut observer {
            observer.opened(&reader, work_bytes);
        }
        let permit = capacity.admission.query(weight).await?;
        let engine = capacity.engine_for(weight);
        let selecting = engine.after(opening);
        let outcome = match &mut observer {
            None => selecting.select(reader.clone(), request.clone()).await?,
            Some(observer) => {
                observer.over(StageName::Wait);
                let (outcome, explained) = Box::pin(selecting.explain(reader.clone(), request.clone())).await?;
                observer.selected(explained);
                outcome
            }
        };
        let total = outcome.len();
        let told = kept.or_else(|| request.matches_told_by(total));
        let matches = match (matching, told) {
            (Some(_), Some(told)) => Some(told),
            (Some(Matching { key, request }), None) => {
                let count = Box::pin(selecting.select(reader.clone(), request)).await?.len();
                match &mut observer {
                    Some(observer) => observer.over(StageName::Count),
                    // The next page asks again.
                    None => self.responses.keep_count(key, counted(count, admitted, true)).await,
                }
                Some(count)
            }
            (None, _) => None,
        };
        match outcome {
            Outcome::Count(count) => Ok(Answer { matches, ..counted(count, admitted, request.pretty) }),
            Outcome::Selection(selection) => {
                if let Some(positions) = positions {
                    *positions = selection.positions().to_vec();
                }
                let reader = match &observer {
                    None => reader,
                    Some(observer) => reader.observed(observer.answering.clone()),
                };
                let maker = BodyMaker { capacity, engine: &engine, limits: &self.config.limits };
                let body = maker.body(reader, selection, &request, (permit, weight, taker), observer).await?;
                let content_type = request.format.content_type();
                Ok(Answer { total, matches, content_type, coding: ContentCoding::Identity, body })
            }
        }
    }
}

struct Matching {
    key: Option<CacheKey>,
    request: Arc<ReadRequest>,
}

impl Matching {
    fn of(admitted: &Admitted, request: &ReadRequest) -> Matching {
        let request = request.matching();
        Matching { key: CacheKey::of(admitted, &request), request: Arc::new(request) }
    }
}

fn counted(count: u64, admitted: &Admitted, pretty: bool) -> Answer {
    let body = encode::count(count, admitted.dataset_id, admitted.version, admitted.alt, pretty);
    let (content_type, coding) = (Format::Json.content_type(), ContentCoding::Identity);
    Answer { total: count, matches: None, content_type, coding, body: AnswerBody::Whole(body.into()) }
}
