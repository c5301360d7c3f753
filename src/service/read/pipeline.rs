//! The one path of a read: authorize, plan, execute, encode. The API, MCP tools, the dashboard, exports and
//! explanations all take it.
//!
//! ```text
//! GET /api/7/countries/active?filter=region:Europe&limit=100&format=json
//!
//! authorize  dataset 7 is public; its active version is v12       -> Admitted
//! plan       open the file of v12; the query costs 40 kB of work  -> ReadPlan: a light query
//! execute    run the query under a permit for light queries       -> SelectedEntities: 53 positions
//! encode     fetch 53 documents and write them as JSON            -> Answer
//! ```
//!
//! [`Reads::respond`] puts layers around the last three steps, from the outside in: a cache of small responses with
//! single flight ([`Responses::get`](super::responses::Responses::get)) and compression
//! ([`compress`](super::responses::compress)). A Parquet file comes from the cache of exports instead
//! ([`crate::export_cache`]).
//!
//! The functions that a request for a page of 100 entities in JSON passes, in order, from the router to the body:
//!
//! | | Function | Does |
//! |---|---|---|
//! | 1 | `http::read::read` | handler: adds the headers that every response has |
//! | 2 | `http::read::respond` | orders the checks; conditional requests |
//! | 3 | `http::read::parse` | path and parameters |
//! | 4 | `http::read::authorize` | counts the request for the rate limit |
//! | 5 | [`Lookups::find`](crate::Lookups::find) | finds the dataset and the version |
//! | 6 | `CatalogCache::resolve` | layer: cache of lookups |
//! | 7 | [`Lookup::authorize`] | step 1 |
//! | 8 | [`Reads::respond`] | composes the layers |
//! | 9 | `Responses::get` | layer: response cache |
//! | 10 | `SingleFlight::run` | layer: single flight |
//! | 11 | `ReadRun::run` | composes the steps |
//! | 12 | `ReadRun::plan` | step 2 |
//! | 13 | `ReadRun::execute` | step 3 |
//! | 14 | `ReadRun::encode` | step 4 |
//! | 15 | `TextBody::whole` | writes the entities of a small response |
//!
//! Invariants:
//! - Every response can be explained: [`Reads::explain`] runs steps 2 to 4 with an [`Observer`] and without layers.
//! - Nothing is read from the store before step 2, so that a client with a current `ETag` costs only a look-up.
//! - Dropping the future, or a streamed body, stops the work, unless other requests wait for the same.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use strata_catalog::Resolved;
use strata_encode::{self as encode, ContentCoding, EntityBound};
use strata_format::reader::VersionReader;
use strata_query::fetch::documents::SelectedDocuments;
use strata_query::fetch::reshape::Reshape;
use strata_query::{Engine, Outcome, QueryError, cost};
use strata_store::{DirectoryGone, StorageError};
use strata_types::ids::DatasetId;
use strata_types::path::Path;
use strata_types::request::{Format, PathValue, RangeBound, ReadRequest};
use strata_types::user::User;
use strata_types::version::VersionSelector;

use crate::admission::Permit;
use crate::admission::capacity::Capacity;
use crate::export_cache::Consumer;
use crate::read::body::{self, TextBody, within_time};
use crate::read::column_types::column_types;
use crate::read::observer::{Observer, StageName};
use crate::read::parquet;
use crate::read::responses::compress;
use crate::read::source::Source;
use crate::read::{Answer, AnswerBody, Reads};
use crate::{Admitted, Authorization, CacheKey, Client, Lookup, ManageError, Principal, ReadError, Weight};

/// Who sends a request, for the checks of step 1.
#[derive(Clone, Copy, Debug)]
pub enum Requester<'a> {
    /// A client of the API, which can send the private key of a dataset.
    Client { client: Client, authorization: Authorization<'a> },
    /// A user with a session or a token.
    User(&'a User),
}

impl Lookup {
    /// Step 1: checks that the requester can read the version, or its alternate.
    ///
    /// With the private key, the owner of the dataset pays for the work; otherwise the requester does.
    ///
    /// # Errors
    /// In the order of docs/reference/errors.md, Order of checks. To a user, a private dataset of another user is
    /// [`ReadError::NotReadable`], like a missing one.
    pub fn authorize(self, requester: Requester<'_>, alt: bool) -> Result<Admitted, ReadError> {
        let resolved = self.resolved.as_deref();
        let (resolved, holder) = match requester {
            Requester::Client { client, authorization } => {
                let resolved = resolved.ok_or(ReadError::DatasetNotFound)?;
                let holder = match (&resolved.dataset.private_key, authorization) {
                    (None, _) => Principal::Anonymous(client),
                    (Some(_), Authorization::None) => return Err(ReadError::Unauthorized),
                    (Some(key), Authorization::Bearer(token)) if key.matches(token) => {
                        Principal::User(resolved.dataset.owner)
                    }
                    (Some(_), _) => return Err(ReadError::Forbidden),
                };
                (resolved, holder)
            }
            Requester::User(user) => {
                let is_readable =
                    |resolved: &&Resolved| !resolved.dataset.is_private() || resolved.dataset.owner == user.id;
                (resolved.filter(is_readable).ok_or(ReadError::NotReadable)?, Principal::User(user.id))
            }
        };
        if resolved.dataset.frozen {
            return Err(ReadError::Frozen);
        }
        Admitted::new(resolved, self.version, alt, holder)
    }
}

/// A read that passed step 1.
#[derive(Clone, Copy)]
pub struct AuthorizedRead<'a> {
    pub admitted: &'a Admitted,
    pub request: &'a Arc<ReadRequest>,
    /// Of the response; `None` if each response is different.
    pub key: Option<CacheKey>,
}

impl<'a> AuthorizedRead<'a> {
    pub fn new(admitted: &'a Admitted, request: &'a Arc<ReadRequest>) -> AuthorizedRead<'a> {
        AuthorizedRead { admitted, request, key: CacheKey::of(admitted, request) }
    }
}

impl Reads {
    /// Finds a dataset of the owner. Without an owner it finds any dataset, which is for commands only.
    pub(crate) async fn resolve_owned(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        version: VersionSelector,
    ) -> Result<Resolved, ManageError> {
        let resolved = self.catalog.resolve_read(dataset, version).await?;
        let resolved = resolved.filter(|resolved| owner.is_none_or(|owner| resolved.dataset.owner == owner.id));
        resolved.ok_or(ManageError::DatasetNotFound)
    }

    /// Steps 2 to 4 with all layers. The response has the content coding `coding` unless it is not worth it.
    pub async fn respond(
        self: &Arc<Self>,
        read: AuthorizedRead<'_>,
        coding: ContentCoding,
    ) -> Result<Answer, ReadError> {
        let AuthorizedRead { admitted, request, key } = read;
        let capacity = || self.capacity.of(admitted.holder);
        if request.format == Format::Parquet && !request.count {
            // It is built on disk. After the first bytes it would be too late to say that there is none.
            if !self.config.data.directory.is_dir() {
                return Err(StorageError::from(io::Error::from(DirectoryGone)).into());
            }
            return match key {
                Some(key) => Box::pin(self.export(capacity(), key, admitted, request.clone())).await,
                None => {
                    Box::pin(ReadRun::new(self, &capacity(), admitted, request.clone(), Consumer::Client).run()).await
                }
            };
        }
        let run = || {
            let reads = self.clone();
            let capacity = capacity();
            let admitted = admitted.clone();
            let request = request.clone();
            async move {
                let answer = ReadRun::new(&reads, &capacity, &admitted, request, Consumer::Client).run().await?;
                compress(&capacity, answer, coding).await
            }
            .boxed()
        };
        match key {
            Some(key) => self.responses.get(key, coding, |size_bytes| capacity().account(size_bytes), run).await,
            None => run().await,
        }
    }

    /// Like [`Reads::respond`] without layers, and also returns the positions of the entities in the file, in the
    /// order of the response. There are none if the response is a count.
    pub async fn locate(
        &self,
        admitted: &Admitted,
        request: Arc<ReadRequest>,
    ) -> Result<(Answer, Vec<u64>), ReadError> {
        let capacity = self.capacity.of(admitted.holder);
        let mut run = ReadRun::new(self, &capacity, admitted, request, Consumer::Client);
        let plan = run.plan().await?;
        let selected = run.execute(plan).await?;
        let positions = selected.positions();
        Ok((run.encode(selected).await?, positions))
    }

    /// The positions in the file of the entities that a read returns, in its order. There are none if it returns a
    /// count.
    pub async fn positions(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Vec<u64>, ReadError> {
        let request = Arc::new(ReadRequest { total: false, ..request.clone() });
        let capacity = self.capacity.of(admitted.holder);
        let mut run = ReadRun::new(self, &capacity, admitted, request, Consumer::Client);
        let plan = run.plan().await?;
        Ok(run.execute(plan).await?.positions())
    }

    /// How many entities match a request, regardless of its page. The count is cached.
    pub async fn count(self: &Arc<Self>, admitted: &Admitted, request: &ReadRequest) -> Result<u64, ReadError> {
        let request = Arc::new(request.matching());
        Ok(self.respond(AuthorizedRead::new(admitted, &request), ContentCoding::Identity).await?.total)
    }

    /// The weight of [`Reads::count`]. A cached count is light.
    pub async fn count_weight(&self, admitted: &Admitted, request: &ReadRequest) -> Result<Weight, ReadError> {
        let matching = MatchCount::new(admitted, request);
        if self.responses.cached_count(matching.key).await.is_some() {
            return Ok(Weight::Light);
        }
        let capacity = self.capacity.of(admitted.holder);
        Ok(ReadRun::new(self, &capacity, admitted, matching.request, Consumer::Client).plan().await?.weight)
    }

    /// For each end of a range, the number of entities that have a number greater than or equal to it at the path, as
    /// `filter_gte` counts them. `None` if the path has no indexed column, or an end is no number.
    pub async fn numbers_not_below(
        &self,
        admitted: &Admitted,
        path: &Path,
        ends: Vec<String>,
    ) -> Result<Option<Vec<u64>>, ReadError> {
        // As much work as a read with all of these conditions.
        let mut request = ReadRequest { count: true, ..ReadRequest::default() };
        let conditions = ends.iter().map(|end| PathValue { path: path.clone(), value: end.clone() });
        request.ranges[RangeBound::GreaterOrEqual as usize].extend(conditions);
        let capacity = self.capacity.of(admitted.holder);
        let mut run = ReadRun::new(self, &capacity, admitted, Arc::new(request), Consumer::Client);
        let ReadPlan { reader, weight, .. } = run.plan().await?;
        let _permit = capacity.admission.query(weight).await?;
        Ok(capacity.engine_for(weight).numbers_not_below(reader, path.clone(), ends).await?)
    }
}

/// One pass through steps 2 to 4.
pub(crate) struct ReadRun<'a> {
    reads: &'a Reads,
    /// Pays for the work.
    capacity: &'a Capacity,
    admitted: &'a Admitted,
    request: Arc<ReadRequest>,
    consumer: Consumer,
    /// Set by explanations only.
    pub(crate) observer: Option<&'a mut Observer>,
}

/// What a query reads and costs, before any of its rows is read.
pub(crate) struct ReadPlan {
    reader: VersionReader,
    weight: Weight,
    /// The part of the time limit that the plan took.
    spent: Duration,
    match_count: Option<MatchCount>,
}

/// The number of matches, which a request with `total` also returns.
struct MatchCount {
    /// Of the response with the count.
    key: Option<CacheKey>,
    request: Arc<ReadRequest>,
    cached: Option<u64>,
}

impl MatchCount {
    fn new(admitted: &Admitted, request: &ReadRequest) -> MatchCount {
        let request = request.matching();
        MatchCount { key: CacheKey::of(admitted, &request), request: Arc::new(request), cached: None }
    }
}

/// The positions or the count that a query found, with what step 4 needs.
pub(crate) struct SelectedEntities {
    reader: VersionReader,
    outcome: Outcome,
    matches: Option<u64>,
    engine: Engine,
    weight: Weight,
    permit: Permit,
}

impl SelectedEntities {
    fn positions(&self) -> Vec<u64> {
        match &self.outcome {
            Outcome::Count(_) => Vec::new(),
            Outcome::Selection(selection) => selection.positions().to_vec(),
        }
    }
}

impl<'a> ReadRun<'a> {
    pub(crate) fn new(
        reads: &'a Reads,
        capacity: &'a Capacity,
        admitted: &'a Admitted,
        request: Arc<ReadRequest>,
        consumer: Consumer,
    ) -> ReadRun<'a> {
        ReadRun { reads, capacity, admitted, request, consumer, observer: None }
    }

    /// Steps 2 to 4.
    pub(crate) async fn run(mut self) -> Result<Answer, ReadError> {
        let plan = self.plan().await?;
        let selected = self.execute(plan).await?;
        self.encode(selected).await
    }

    fn observe(&mut self, note: impl FnOnce(&mut Observer)) {
        if let Some(observer) = &mut self.observer {
            note(observer);
        }
    }

    /// Step 2: opens the file and estimates the work, within the time limit of a query.
    async fn plan(&mut self) -> Result<ReadPlan, ReadError> {
        let Reads { store, cache, responses, config, capacity, .. } = self.reads;
        let observed_cache = self.observer.as_ref().map(|observer| cache.observed(observer.selecting.clone()));
        let cache = observed_cache.as_ref().unwrap_or(cache);
        let started = Instant::now();
        let mut match_count = self.request.total.then(|| MatchCount::new(self.admitted, &self.request));
        // An explanation shows what counting costs.
        if let (Some(match_count), None) = (&mut match_count, &self.observer) {
            match_count.cached = responses.cached_count(match_count.key).await;
        }
        let has_count = match_count.as_ref().is_some_and(|match_count| match_count.cached.is_some());
        let uncounted = has_count.then(|| ReadRequest { total: false, ..(*self.request).clone() });
        let request = uncounted.as_ref().unwrap_or(&self.request);
        let planning = async {
            let reader = VersionReader::open_recorded(store, &self.admitted.file, cache).await?;
            let work_bytes = cost::work_bytes(&reader, request).await;
            Ok((reader, work_bytes))
        };
        let (reader, work_bytes) = within_time(&capacity.engine, planning).await?;
        let spent = started.elapsed();
        self.observe(|observer| observer.opened(&reader, work_bytes));
        Ok(ReadPlan { reader, weight: Weight::of(work_bytes, &config.query), spent, match_count })
    }

    /// Step 3: waits for a permit, then runs the query, and the query that counts the matches if one is needed.
    async fn execute(&mut self, plan: ReadPlan) -> Result<SelectedEntities, ReadError> {
        let ReadPlan { reader, weight, spent, match_count } = plan;
        let permit = self.capacity.admission.query(weight).await?;
        let engine = self.capacity.engine_for(weight);
        let selecting = engine.with_elapsed(spent);
        let outcome = match &mut self.observer {
            None => selecting.select(reader.clone(), self.request.clone()).await?,
            Some(observer) => {
                observer.over(StageName::Wait);
                let explaining = selecting.explain(reader.clone(), self.request.clone());
                let (outcome, explained) = Box::pin(explaining).await?;
                observer.selected(explained);
                outcome
            }
        };
        let mut matches = None;
        if let Some(MatchCount { key, request, cached }) = match_count {
            matches = cached.or_else(|| self.request.matches_told_by(outcome.len()));
            if matches.is_none() {
                let count = Box::pin(selecting.select(reader.clone(), request)).await?.len();
                match &mut self.observer {
                    Some(observer) => observer.over(StageName::Count),
                    // The request for the next page needs it, too.
                    None => self.reads.responses.cache_count(key, count_response(count, self.admitted, true)).await,
                }
                matches = Some(count);
            }
        }
        Ok(SelectedEntities { reader, outcome, matches, engine, weight, permit })
    }

    /// Step 4: fetches the documents and writes the body.
    ///
    /// A table needs its columns first, and typed columns need their types. The permit of a heavy query is released
    /// when they are known, that of another query when the body is complete or before it waits to be streamed.
    async fn encode(mut self, selected: SelectedEntities) -> Result<Answer, ReadError> {
        let SelectedEntities { mut reader, outcome, matches, engine, weight, permit } = selected;
        let total = outcome.len();
        let selection = match outcome {
            Outcome::Count(count) => {
                return Ok(Answer { matches, ..count_response(count, self.admitted, self.request.pretty) });
            }
            Outcome::Selection(selection) => selection,
        };
        self.observe(|observer| reader = reader.observed(observer.answering.clone()));
        let request = self.request.clone();
        let limits = &self.reads.config.limits;
        let documents = SelectedDocuments::of(&engine, reader, selection);
        let documents = within_time(&engine, async { Ok(documents.await?) }).await?;
        if let Some(spilled_bytes) = documents.spilled_bytes() {
            self.observe(|observer| observer.ordered(spilled_bytes));
        }
        let source = Arc::new(Source { documents, reshape: Reshape::of(&request) });
        let columns = match request.format.is_table() {
            true => Arc::new(Box::pin(body::table_columns(&engine, &source, limits)).await?),
            false => Arc::default(),
        };
        let types = match request.typed && request.format == Format::Parquet {
            true => Some(Box::pin(within_time(&engine, column_types(&engine, &source, &columns))).await?),
            false => None,
        };
        if request.format.is_table() {
            self.observe(|observer| observer.columns_found(columns.len()));
        }
        let permit = (weight != Weight::Heavy).then_some(permit);
        let column_names = body::reserve_names(&engine, &columns)?;
        let bound = EntityBound::new(limits.encoded_entity_bytes);
        let body = match encode::text_encoder(&request, Some(columns.clone()), bound) {
            Some(encoder) => {
                let indented = encode::indents_documents(&request) && source.reshape.is_identity();
                let text = Arc::new(TextBody { source, encoder, indented, _column_names: column_names });
                match text.clone().whole(self.capacity).await? {
                    Some(body) => body,
                    None => {
                        // Slow readers decide how long it waits for a slot among streams.
                        drop(permit);
                        text.stream(self.capacity).await?
                    }
                }
            }
            None => {
                drop(permit);
                // The schema of thousands of columns takes milliseconds.
                let capacity = self.capacity.clone();
                let consumer = self.consumer;
                let body = async move { parquet::body(&capacity, source, columns, types, consumer).await };
                engine.spawn(body).await.map_err(QueryError::from)??
            }
        };
        let content_type = request.format.content_type();
        Ok(Answer { total, matches, content_type, coding: ContentCoding::Identity, body })
    }
}

fn count_response(count: u64, admitted: &Admitted, pretty: bool) -> Answer {
    let body = encode::count(count, admitted.dataset_id, admitted.version, admitted.alt, pretty);
    Answer {
        total: count,
        matches: None,
        content_type: Format::Json.content_type(),
        coding: ContentCoding::Identity,
        body: AnswerBody::Whole(body.into()),
    }
}
