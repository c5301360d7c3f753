//! The explanation: the JSON response, and what the text and the page are made from. Its doc comments describe the
//! fields in the OpenAPI document.

use std::fmt;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use crate::query::distribute::DistributedUse;
use crate::query::explain::PlanOperator;
use crate::query::scan::report::ScanUse;
use crate::service::admission::Weight;
use crate::service::export_cache::ExportState;
use crate::service::read::observer::StageName;

/// What a read did, and what it took.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Explanation {
    /// Always true.
    pub ok: bool,
    /// The dataset.
    pub dataset_id: u64,
    /// Its slug.
    pub name_slug: String,
    /// The number of the version that was read.
    pub version: u64,
    /// Whether its alternate was read.
    pub alt: bool,
    /// Whether the dataset is frozen, so that reads of it are refused.
    pub frozen: bool,
    /// Entities in what was read.
    pub entity_count: u64,
    /// Bytes of all their documents.
    pub document_bytes: u64,
    /// The parameters that differ from their defaults, in the order in which they are applied.
    pub request: Vec<RequestParameter>,
    /// Parameters that no read takes.
    #[schema(value_type = Vec<String>)]
    pub ignored: Vec<IgnoredParameter>,
    /// The answer.
    pub answer: AnswerUse,
    /// The stages that there were, one after the other.
    pub stages: Vec<StageTime>,
    /// Microseconds from the first to the last of them.
    pub total_us: u64,
    /// The work that the read was held for before it ran.
    pub work: WorkUse,
    /// Where the answer to the same read lay ready; null from the command line, which knows no server's caches.
    pub kept: Option<KeptAnswer>,
    /// The logical plan, an operator on each line, indented.
    pub logical_plan: String,
    /// What was made of it; null where nothing changed.
    pub optimized_plan: Option<String>,
    /// The physical plan, each operator before its inputs.
    pub operators: Vec<PlanOperator>,
    /// The scan of the version; null where nothing had to be scanned, and where other nodes scanned a part.
    pub scan: Option<ScanUse>,
    /// How other nodes helped to select; null where none was asked.
    pub distributed: Option<DistributedUse>,
    /// Pages of documents.
    pub documents: DocumentUse,
    /// Parts of the file, from the cache or from the store.
    pub parts: PartUse,
    /// What could make it cheaper, and what to know.
    pub hints: Vec<String>,
}

/// A parameter that no read takes. Its JSON form is its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct IgnoredParameter {
    /// Its name.
    pub name: String,
    /// The parameter that it was perhaps meant to be.
    #[serde(skip)]
    pub nearest: Option<&'static str>,
}

impl fmt::Display for IgnoredParameter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "`{}` is ignored, because no read knows it", self.name)?;
        self.nearest.map_or(Ok(()), |nearest| write!(out, ". Did you mean `{nearest}`?"))
    }
}

/// A parameter of a read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct RequestParameter {
    /// Its name.
    pub name: &'static str,
    /// Its value as it was understood.
    pub value: String,
}

/// The answer that was made and discarded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct AnswerUse {
    /// Entities in it, or the count that it holds.
    pub total: u64,
    /// Entities that match, where `total` asks for them; null otherwise.
    pub matches: Option<u64>,
    /// Its content type.
    pub content_type: &'static str,
    /// Bytes of its body, not compressed.
    pub body_bytes: u64,
    /// Whether it came in parts.
    pub streamed: bool,
    /// Columns of a table; null for other formats.
    pub columns: Option<u64>,
}

/// How long a stage took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct StageTime {
    /// The stage.
    pub stage: StageName,
    /// Microseconds.
    pub duration_us: u64,
}

/// The work of a read as it is estimated before it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct WorkUse {
    /// Its work in bytes, for the worst case.
    pub work_bytes: u64,
    /// Above this, `query.medium_bytes`, it is not light.
    pub medium_bytes: u64,
    /// Above this, `query.heavy_bytes`, it is heavy.
    pub heavy_bytes: u64,
    /// Its weight, which decides whose permits it takes and whose threads execute it.
    pub weight: Weight,
    /// Whether it is heavy.
    pub heavy: bool,
}

/// Where the answer lay ready when the explanation was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct KeptAnswer {
    /// Whether it may be kept at all: no sample without a seed is.
    pub cacheable: bool,
    /// The codings in which it was in the cache of small answers.
    pub response: Vec<&'static str>,
    /// What the cache of Parquet exports had of it: `made`, `being_made`, or `too_large` if it did not fit; null
    /// for nothing.
    #[schema(value_type = Option<String>)]
    pub export: Option<ExportState>,
}

/// Pages of documents, each counted once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct DocumentUse {
    /// All of the file's.
    pub pages: u64,
    /// Read to select: to verify predicates, and for keys that no column holds.
    pub pages_to_select: u64,
    /// Read for the answer.
    pub pages_to_answer: u64,
    /// Read for neither.
    pub pages_not_read: u64,
    /// Bytes of documents that were put in order by way of the disk; null where that was not needed.
    pub spilled_bytes: Option<u64>,
}

/// Parts of the file, from the cache or from the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct PartUse {
    /// The footer.
    pub footers: LookupUse,
    /// Columns of row groups.
    pub columns: LookupUse,
    /// Bloom filters.
    pub bloom_filters: LookupUse,
    /// Entries and lists of the keyword index.
    pub keyword_index: LookupUse,
    /// Shapes of row groups.
    pub shapes: LookupUse,
    /// Pages of documents.
    pub document_pages: LookupUse,
    /// Requests to the store.
    pub requests: u64,
    /// Bytes that they fetched.
    pub request_bytes: u64,
}

/// Look-ups in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LookupUse {
    /// Those that found the part.
    pub hits: u64,
    /// Those that did not.
    pub misses: u64,
}

pub(super) fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
