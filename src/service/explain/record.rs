//! The explanation of a read as data. It is serialized as the JSON response, and `strata explain` and the dashboard
//! page render it. The OpenAPI document shows the doc comments of the fields.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use strata_query::distribution::DistributionReport;
use strata_query::explain::PlanOperator;
use strata_query::scan::scan_report::ScanReport;
use utoipa::ToSchema;

use crate::admission::CostClass;
use crate::export_cache::ExportState;
use crate::read::observer::ReadStage;

/// An explanation of a request: its plans, and the cost of running them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ReadExplanation {
    /// Always true.
    pub ok: bool,
    /// The ID of the dataset.
    pub dataset_id: u64,
    /// The slug of the dataset.
    pub name_slug: String,
    /// The number of the version.
    pub version: u64,
    /// Whether the request is for the alternate of the version.
    pub alt: bool,
    /// Whether the dataset is frozen. Requests for a frozen dataset return 410.
    pub frozen: bool,
    /// The number of entities in the version or alternate.
    pub entity_count: u64,
    /// The size of all documents in bytes.
    pub document_bytes: u64,
    /// The parameters that differ from their defaults, in the order in which strata applies them.
    pub request: Vec<RequestParameter>,
    /// The names of unknown parameters, which strata ignored.
    #[schema(value_type = Vec<String>)]
    pub ignored: Vec<IgnoredParameter>,
    /// The response, which strata built and discarded.
    pub answer: ResponseReport,
    /// The stages of the request, in the order in which they ran.
    pub stages: Vec<StageDuration>,
    /// The time in microseconds from the start of the first stage to the end of the last one.
    pub total_us: u64,
    /// The estimated work of the request.
    pub work: WorkEstimate,
    /// Whether the response was already cached. Null on the command line, which has no response cache.
    pub kept: Option<CachedResponses>,
    /// The logical plan, with one operator per line, indented by depth.
    pub logical_plan: String,
    /// The logical plan after optimization. Null if the optimizer changed nothing.
    pub optimized_plan: Option<String>,
    /// The operators of the physical plan. Each operator precedes its inputs.
    pub operators: Vec<PlanOperator>,
    /// The scan of the version. Null if nothing had to be scanned, or if other nodes scanned a part.
    pub scan: Option<ScanReport>,
    /// How other nodes helped to select entities. Null if the query was not distributed.
    pub distributed: Option<DistributionReport>,
    /// The document pages that the request read.
    pub documents: DocumentPageReport,
    /// The parts of the file that the request read from the cache or from the store.
    pub parts: FilePartReport,
    /// Suggestions for making the request cheaper, and possible mistakes in the request.
    pub hints: Vec<String>,
}

/// An unknown parameter, which strata ignores. Its JSON form is its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct IgnoredParameter {
    /// The name of the parameter.
    pub name: String,
    /// The known parameter with the most similar name.
    #[serde(skip)]
    pub nearest: Option<&'static str>,
}

impl fmt::Display for IgnoredParameter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Ignored unknown parameter `{}`.", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(out, " Did you mean `{nearest}`?"))
    }
}

/// A parameter of the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequestParameter {
    /// The name of the parameter.
    pub name: &'static str,
    /// The value of the parameter, as strata parsed it.
    pub value: String,
}

/// The response, which strata built and discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ResponseReport {
    /// The number of entities in the response. With `count=true`, the count that the response contains.
    pub total: u64,
    /// The number of entities that match. Null unless the request sets `total`.
    pub matches: Option<u64>,
    /// The content type of the response.
    pub content_type: &'static str,
    /// The size of the uncompressed body in bytes.
    pub body_bytes: u64,
    /// Whether strata streamed the response.
    pub streamed: bool,
    /// The number of columns if the response is a table. Null for other formats.
    pub columns: Option<u64>,
}

/// The duration of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StageDuration {
    /// The stage.
    pub stage: ReadStage,
    /// The duration in microseconds.
    pub duration_us: u64,
}

/// The work of a request, which strata estimates before it runs the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WorkEstimate {
    /// The estimated work in bytes, in the worst case.
    pub work_bytes: u64,
    /// The value of `query.medium_bytes`. A query with more work is medium or heavy.
    pub medium_bytes: u64,
    /// The value of `query.heavy_bytes`. A query with more work is heavy.
    pub heavy_bytes: u64,
    /// The class of the query. Each class has its own permits and threads.
    pub weight: CostClass,
    /// Whether the query is heavy.
    pub heavy: bool,
}

/// The cached responses to the same request, as of the start of the explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CachedResponses {
    /// Whether strata can cache the response. strata does not cache samples without a seed.
    pub cacheable: bool,
    /// The content encodings in which the response was already cached.
    pub response: Vec<&'static str>,
    /// The state of the Parquet export in the export cache: `made`, `being_made`, or `too_large`. `too_large` means
    /// that the export did not fit into the cache. Null if the cache did not contain the export.
    #[schema(value_type = Option<String>)]
    pub export: Option<ExportState>,
}

/// Document pages. Each page is counted once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DocumentPageReport {
    /// The number of document pages in the file.
    pub pages: u64,
    /// Pages that strata read to select entities: to verify predicates, or because no column contained the keys for
    /// `sort` or `dedup`.
    pub pages_to_select: u64,
    /// Pages that strata read to build the response.
    pub pages_to_answer: u64,
    /// Pages that strata did not read.
    pub pages_not_read: u64,
    /// The size in bytes of the documents that strata sorted on disk. Null if strata sorted no documents on disk.
    pub spilled_bytes: Option<u64>,
}

/// The parts of the file that the request read from the cache or from the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FilePartReport {
    /// The footer.
    pub footers: CacheLookups,
    /// Column chunks.
    pub columns: CacheLookups,
    /// Entries and posting lists of the keyword index.
    pub keyword_index: CacheLookups,
    /// Document pages.
    pub document_pages: CacheLookups,
    /// The number of requests to the store.
    pub requests: u64,
    /// The number of bytes that strata fetched from the store.
    pub request_bytes: u64,
}

/// Lookups in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct CacheLookups {
    /// Lookups that found the part in the cache.
    pub hits: u64,
    /// Lookups that did not find the part in the cache.
    pub misses: u64,
}

pub(super) fn duration_to_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
