//! The steps of every read: authorize, plan, execute, encode. The API, MCP tools, the dashboard, exports and
//! explanations all use them.
//!
//! ```text
//! GET /api/7/countries/active?filter=region:Europe&limit=100&format=json
//!
//! authorize  dataset 7 is public; its active version is v12       -> AuthorizedTarget
//! plan       open the file of v12; the query costs 40 kB of work  -> ReadPlan: a light query
//! execute    run the query under a permit for light queries       -> SelectedEntities: 53 positions
//! encode     fetch 53 documents and write them as JSON            -> ReadResponse
//! ```
//!
//! [`ReadService::respond`] puts layers around the last three steps, from the outside in: a cache of small responses
//! with single flight ([`ResponseCache::get_or_run`](super::response_cache::ResponseCache::get_or_run)) and compression
//! ([`compress`]). A Parquet file comes from the cache of exports instead ([`crate::export_cache`]).
//!
//! The call path of a request for a page of 100 entities in JSON: `http::read::read_dataset`,
//! [`LookupService::find`](crate::LookupService::find), [`ResolvedTarget::authorize`], [`ReadService::respond`],
//! `ResponseCache::get_or_run`, `SingleFlight::run`, `ReadRun::run`, `TextBody::try_encode_whole`.
//!
//! Invariants:
//! - [`ReadService::explain`] can explain every response: it runs steps 2 to 4 with a [`ReadObserver`] and without
//!   layers.
//! - The store is not used before step 2, so that a request with a current `ETag` costs only a lookup.
//! - Dropping the future, or a streamed body, stops the work, unless other requests wait for the same response.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use strata_catalog::ResolvedDataset;
use strata_encode::{self as encode, ContentCoding, EncodedSizeLimit, JsonLayout};
use strata_format::document_page::DocumentForm;
use strata_format::reader::VersionReader;
use strata_query::fetch::entity_projection::EntityProjection;
use strata_query::fetch::selected_documents::SelectedDocuments;
use strata_query::{QueryEngine, QueryError, QueryOutcome, cost};
use strata_store::{DataDirectoryMissingError, StorageError};
use strata_types::field_path::FieldPath;
use strata_types::ids::DatasetId;
use strata_types::read_request::{PathValue, RangeBound, ReadRequest, ResponseFormat};
use strata_types::user::User;
use strata_types::version::{VersionSelector, VersionVariant};

use crate::admission::Permit;
use crate::admission::resource_context::ResourceContext;
use crate::export_cache::ExportConsumer;
use crate::lookup::error::Result;
use crate::read::column_types::infer_column_types;
use crate::read::entity_source::EntitySource;
use crate::read::observer::{ReadObserver, ReadStage};
use crate::read::response_cache::compress;
use crate::read::text_body::{self, TextBody, with_query_timeout};
use crate::read::{ReadResponse, ReadService, ResponseBody};
use crate::read::{arrow, parquet};
use crate::{
    AuthorizationHeader, AuthorizedTarget, CacheKey, ClientNetwork, CostClass, ManageError, Principal, ReadError,
    ResolvedTarget,
};

#[derive(Clone, Copy, Debug)]
pub enum ReadRequester<'a> {
    Client { client: ClientNetwork, authorization: AuthorizationHeader<'a> },
    User(&'a User),
}

impl ResolvedTarget {
    /// Step 1: checks that the requester can read the version, in the order in docs/reference/errors.md. A request with
    /// the private key is charged to the owner of the dataset, any other request to the requester.
    pub fn authorize(self, requester: ReadRequester<'_>, variant: VersionVariant) -> Result<AuthorizedTarget> {
        let resolved = self.resolved.as_deref();
        let (resolved, principal) = match requester {
            ReadRequester::Client { client, authorization } => {
                let resolved = resolved.ok_or(ReadError::DatasetNotFound)?;
                let principal = match (&resolved.dataset.private_key, authorization) {
                    (None, _) => Principal::Anonymous(client),
                    (Some(_), AuthorizationHeader::None) => return Err(ReadError::Unauthorized),
                    (Some(key), AuthorizationHeader::Bearer(token)) if key.constant_time_eq(token) => {
                        Principal::User(resolved.dataset.owner)
                    }
                    (Some(_), _) => return Err(ReadError::Forbidden),
                };
                (resolved, principal)
            }
            ReadRequester::User(user) => {
                let is_readable =
                    |resolved: &&ResolvedDataset| !resolved.dataset.is_private() || resolved.dataset.owner == user.id;
                (resolved.filter(is_readable).ok_or(ReadError::NotReadable)?, Principal::User(user.id))
            }
        };
        if resolved.dataset.frozen {
            return Err(ReadError::Frozen);
        }
        AuthorizedTarget::new(resolved, self.version, variant, principal)
    }
}

#[derive(Clone, Copy)]
pub struct AuthorizedRead<'a> {
    pub target: &'a AuthorizedTarget,
    pub request: &'a Arc<ReadRequest>,
    /// The key of the response in caches; `None` if each response to the request is different.
    pub cache_key: Option<CacheKey>,
}

impl<'a> AuthorizedRead<'a> {
    pub fn new(target: &'a AuthorizedTarget, request: &'a Arc<ReadRequest>) -> AuthorizedRead<'a> {
        AuthorizedRead { target, request, cache_key: CacheKey::for_request(target, request) }
    }
}

impl ReadService {
    /// Finds a dataset of the owner. Without an owner, which only commands can omit, finds any dataset.
    pub(crate) async fn resolve_owned(
        &self,
        owner: Option<&User>,
        dataset: DatasetId,
        version: VersionSelector,
    ) -> Result<ResolvedDataset, ManageError> {
        let resolved = self.catalog.resolve_read(dataset, version).await?;
        let resolved = resolved.filter(|resolved| owner.is_none_or(|owner| resolved.dataset.owner == owner.id));
        resolved.ok_or(ManageError::DatasetNotFound)
    }

    /// Runs steps 2 to 4 of a read (plan, execute, encode) with caches and compression. Small responses are not
    /// compressed, regardless of `coding`.
    pub async fn respond(self: &Arc<Self>, read: AuthorizedRead<'_>, coding: ContentCoding) -> Result<ReadResponse> {
        let AuthorizedRead { target, request, cache_key: key } = read;
        let resources = || self.resources.for_principal(target.principal);
        if request.format == ResponseFormat::Parquet && !request.count {
            // A Parquet export is built in the data directory, whose absence is reported before the first byte.
            if !self.config.data.directory.is_dir() {
                return Err(StorageError::from(io::Error::from(DataDirectoryMissingError)).into());
            }
            return match key {
                Some(key) => Box::pin(self.respond_with_export(resources(), key, target, request.clone())).await,
                None => {
                    Box::pin(ReadRun::new(self, &resources(), target, request.clone(), ExportConsumer::Client).run())
                        .await
                }
            };
        }
        let run = || {
            let reads = self.clone();
            let resources = resources();
            let target = target.clone();
            let request = request.clone();
            async move {
                let response = ReadRun::new(&reads, &resources, &target, request, ExportConsumer::Client).run().await?;
                compress(&resources, response, coding).await
            }
            .boxed()
        };
        match key {
            Some(key) => {
                self.response_cache.get_or_run(key, coding, |bytes| resources().reserve_response_body(bytes), run).await
            }
            None => run().await,
        }
    }

    /// Like [`ReadService::respond`] without caches and compression. Also returns the entities' positions in the file.
    pub async fn respond_with_positions(
        &self,
        target: &AuthorizedTarget,
        request: Arc<ReadRequest>,
    ) -> Result<(ReadResponse, Vec<u64>)> {
        let resources = self.resources.for_principal(target.principal);
        let mut run = ReadRun::new(self, &resources, target, request, ExportConsumer::Client);
        let plan = run.plan().await?;
        let selected = run.execute(plan).await?;
        let positions = selected.positions();
        Ok((run.encode(selected).await?, positions))
    }

    /// Returns the positions of the selected entities in the version file, in response order; none for a count.
    pub async fn find_positions(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Result<Vec<u64>> {
        let request = Arc::new(ReadRequest { total: false, ..request.clone() });
        let resources = self.resources.for_principal(target.principal);
        let mut run = ReadRun::new(self, &resources, target, request, ExportConsumer::Client);
        let plan = run.plan().await?;
        Ok(run.execute(plan).await?.positions())
    }

    /// Returns the number of entities that match a request, regardless of `limit` and `offset`. The count is cached.
    pub async fn count_matches(self: &Arc<Self>, target: &AuthorizedTarget, request: &ReadRequest) -> Result<u64> {
        let request = Arc::new(request.to_count_request());
        Ok(self.respond(AuthorizedRead::new(target, &request), ContentCoding::Identity).await?.total)
    }

    pub async fn classify_count_cost(&self, target: &AuthorizedTarget, request: &ReadRequest) -> Result<CostClass> {
        let match_count = MatchCountQuery::new(target, request);
        if self.response_cache.cached_count(match_count.cache_key).await.is_some() {
            return Ok(CostClass::Light);
        }
        let resources = self.resources.for_principal(target.principal);
        Ok(ReadRun::new(self, &resources, target, match_count.request, ExportConsumer::Client).plan().await?.cost_class)
    }

    /// Counts the numbers at or above each threshold. `None` if no column has the path or a threshold is not numeric.
    pub async fn count_numbers_at_least(
        &self,
        target: &AuthorizedTarget,
        path: &FieldPath,
        thresholds: Vec<String>,
    ) -> Result<Option<Vec<u64>>> {
        // The permit is chosen for a read with a range filter per threshold, because the count costs about as much.
        let mut request = ReadRequest { count: true, ..ReadRequest::default() };
        let conditions = thresholds.iter().map(|threshold| PathValue { path: path.clone(), value: threshold.clone() });
        request.range_filters[RangeBound::GreaterOrEqual as usize].extend(conditions);
        let resources = self.resources.for_principal(target.principal);
        let mut run = ReadRun::new(self, &resources, target, Arc::new(request), ExportConsumer::Client);
        let ReadPlan { reader, cost_class, .. } = run.plan().await?;
        let _permit = resources.admission.acquire_query(cost_class).await?;
        Ok(resources.engine_for(cost_class).count_numbers_at_least(reader, path.clone(), thresholds).await?)
    }
}

pub(crate) struct ReadRun<'a> {
    read_service: &'a ReadService,
    resources: &'a ResourceContext,
    target: &'a AuthorizedTarget,
    request: Arc<ReadRequest>,
    consumer: ExportConsumer,
    /// The observer of stages and metrics; `Some` only for explanations.
    pub(crate) observer: Option<&'a mut ReadObserver>,
}

pub(crate) struct ReadPlan {
    reader: VersionReader,
    cost_class: CostClass,
    elapsed: Duration,
    match_count: Option<MatchCountQuery>,
}

struct MatchCountQuery {
    cache_key: Option<CacheKey>,
    request: Arc<ReadRequest>,
    cached: Option<u64>,
}

impl MatchCountQuery {
    fn new(target: &AuthorizedTarget, request: &ReadRequest) -> MatchCountQuery {
        let request = request.to_count_request();
        MatchCountQuery { cache_key: CacheKey::for_request(target, &request), request: Arc::new(request), cached: None }
    }
}

pub(crate) struct SelectedEntities {
    reader: VersionReader,
    outcome: QueryOutcome,
    matches: Option<u64>,
    engine: QueryEngine,
    cost_class: CostClass,
    permit: Permit,
}

impl SelectedEntities {
    fn positions(&self) -> Vec<u64> {
        match &self.outcome {
            QueryOutcome::Count(_) => Vec::new(),
            QueryOutcome::Selection(selection) => selection.positions().to_vec(),
        }
    }
}

impl<'a> ReadRun<'a> {
    pub(crate) fn new(
        read_service: &'a ReadService,
        resources: &'a ResourceContext,
        target: &'a AuthorizedTarget,
        request: Arc<ReadRequest>,
        consumer: ExportConsumer,
    ) -> ReadRun<'a> {
        ReadRun { read_service, resources, target, request, consumer, observer: None }
    }

    pub(crate) async fn run(mut self) -> Result<ReadResponse> {
        let plan = self.plan().await?;
        let selected = self.execute(plan).await?;
        self.encode(selected).await
    }

    fn observe(&mut self, record: impl FnOnce(&mut ReadObserver)) {
        if let Some(observer) = &mut self.observer {
            record(observer);
        }
    }

    /// Step 2 of a read: opens the version file and estimates the work, within the time limit of a query.
    async fn plan(&mut self) -> Result<ReadPlan> {
        let ReadService { store, cache, response_cache, config, resources, .. } = self.read_service;
        let observed_cache =
            self.observer.as_ref().map(|observer| cache.with_reader_metrics(observer.selection_metrics.clone()));
        let cache = observed_cache.as_ref().unwrap_or(cache);
        let start = Instant::now();
        let mut match_count = self.request.total.then(|| MatchCountQuery::new(self.target, &self.request));
        // An explanation measures the cost of counting, so it does not use a cached count.
        if let (Some(match_count), None) = (&mut match_count, &self.observer) {
            match_count.cached = response_cache.cached_count(match_count.cache_key).await;
        }
        let has_count = match_count.as_ref().is_some_and(|match_count| match_count.cached.is_some());
        let uncounted = has_count.then(|| ReadRequest { total: false, ..(*self.request).clone() });
        let request = uncounted.as_ref().unwrap_or(&self.request);
        let planning = async {
            let reader = VersionReader::open_recorded(store, &self.target.file, cache).await?;
            let work_bytes = cost::estimate_request_bytes(&reader, request).await;
            Ok((reader, work_bytes))
        };
        let (reader, work_bytes) = with_query_timeout(&resources.engine, planning).await?;
        let elapsed = start.elapsed();
        self.observe(|observer| observer.end_open_stage(&reader, work_bytes));
        Ok(ReadPlan { reader, cost_class: CostClass::from_work_bytes(work_bytes, &config.query), elapsed, match_count })
    }

    /// Step 3 of a read: waits for a permit, then runs the query, and another query if the matches must be counted.
    async fn execute(&mut self, plan: ReadPlan) -> Result<SelectedEntities> {
        let ReadPlan { reader, cost_class, elapsed, match_count } = plan;
        let permit = self.resources.admission.acquire_query(cost_class).await?;
        let engine = self.resources.engine_for(cost_class);
        let query_engine = engine.with_elapsed(elapsed);
        let outcome = match &mut self.observer {
            None => query_engine.select(reader.clone(), self.request.clone()).await?,
            Some(observer) => {
                observer.end_stage(ReadStage::Wait);
                let explaining = query_engine.explain(reader.clone(), self.request.clone());
                let (outcome, explained) = Box::pin(explaining).await?;
                observer.record_plan_and_select_stages(explained);
                outcome
            }
        };
        let mut matches = None;
        if let Some(MatchCountQuery { cache_key, request, cached }) = match_count {
            matches = cached.or_else(|| self.request.infer_match_count(outcome.len()));
            if matches.is_none() {
                let count = Box::pin(query_engine.select(reader.clone(), request)).await?.len();
                match &mut self.observer {
                    Some(observer) => observer.end_stage(ReadStage::Count),
                    // The count is cached, because a request for the next page needs the same count.
                    None => {
                        let response = new_count_response(count, self.target, JsonLayout::Indented);
                        self.read_service.response_cache.cache_count(cache_key, response).await
                    }
                }
                matches = Some(count);
            }
        }
        Ok(SelectedEntities { reader, outcome, matches, engine, cost_class, permit })
    }

    /// Step 4 of a read: fetches documents and writes the body. A heavy query releases its permit before the body.
    async fn encode(mut self, selected: SelectedEntities) -> Result<ReadResponse> {
        let SelectedEntities { mut reader, outcome, matches, engine, cost_class, permit } = selected;
        let total = outcome.len();
        let selection = match outcome {
            QueryOutcome::Count(count) => {
                let layout = JsonLayout::from_request(&self.request);
                return Ok(ReadResponse { matches, ..new_count_response(count, self.target, layout) });
            }
            QueryOutcome::Selection(selection) => selection,
        };
        self.observe(|observer| reader = reader.with_metrics(observer.response_metrics.clone()));
        let request = self.request.clone();
        let limits = &self.read_service.config.limits;
        let documents = SelectedDocuments::open(&engine, reader, selection);
        let documents = with_query_timeout(&engine, async { Ok(documents.await?) }).await?;
        if let Some(spilled_bytes) = documents.spilled_bytes() {
            self.observe(|observer| observer.end_order_stage(spilled_bytes));
        }
        let source = Arc::new(EntitySource { documents, projection: EntityProjection::from_request(&request) });
        let columns = match request.format.is_table() {
            true => Arc::new(Box::pin(text_body::find_table_columns(&engine, &source, limits)).await?),
            false => Arc::default(),
        };
        let types = match request.typed && request.format.has_column_types() {
            true => Some(Box::pin(with_query_timeout(&engine, infer_column_types(&engine, &source, &columns))).await?),
            false => None,
        };
        if request.format.is_table() {
            self.observe(|observer| observer.end_columns_stage(columns.len()));
        }
        let permit = (cost_class != CostClass::Heavy).then_some(permit);
        let column_names = text_body::reserve_column_names(&engine, &columns)?;
        let size_limit = EncodedSizeLimit::new(limits.encoded_entity_bytes);
        let body = match encode::new_text_encoder(&request, Some(columns.clone()), size_limit) {
            Some(encoder) => {
                let document_form = match encode::is_plain_indented_json(&request) && source.projection.is_identity() {
                    true => DocumentForm::PreferIndented,
                    false => DocumentForm::Stored,
                };
                let text = Arc::new(TextBody { source, encoder, document_form, _column_names: column_names });
                match text.clone().try_encode_whole(self.resources).await? {
                    Some(body) => body,
                    None => {
                        // The query permit is released, because slow readers can delay the stream permit of the body.
                        drop(permit);
                        text.encode_stream(self.resources).await?
                    }
                }
            }
            None if request.format == ResponseFormat::Arrow => {
                drop(permit);
                arrow::build_arrow(self.resources, source, columns, types.unwrap_or_default(), column_names).await?
            }
            None => {
                drop(permit);
                // The body is built in its own task, because the schema of thousands of columns takes milliseconds.
                let resources = self.resources.clone();
                let consumer = self.consumer;
                let body = async move { parquet::build_parquet(&resources, source, columns, types, consumer).await };
                engine.spawn(body).await.map_err(QueryError::from)??
            }
        };
        let content_type = request.format.content_type();
        Ok(ReadResponse { total, matches, content_type, coding: ContentCoding::Identity, body })
    }
}

fn new_count_response(count: u64, target: &AuthorizedTarget, layout: JsonLayout) -> ReadResponse {
    let body = encode::format_count_response(count, target.dataset_id, target.version, target.variant, layout);
    ReadResponse {
        total: count,
        matches: None,
        content_type: ResponseFormat::Json.content_type(),
        coding: ContentCoding::Identity,
        body: ResponseBody::Whole(body.into()),
    }
}
