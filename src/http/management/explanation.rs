//! The JSON form of an explanation.

use serde::Serialize;
use utoipa::ToSchema;

use crate::query::explain::PlanOperator;
use crate::query::scan::report::{
    AccessName, KeyUse, KeywordIndexUse, PredicateUse, RowGroupUse, ScanUse, VerificationUse,
};
use crate::service::{
    AnswerUse, DocumentUse, Explanation, KeptAnswer, LookupUse, PartUse, RequestParameter, StageName, StageTime,
    Weight, WorkUse,
};

/// What a read did, and what it took.
#[derive(Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplanationAnswer {
    /// Always true.
    ok: bool,
    /// The dataset.
    dataset_id: u64,
    /// Its slug.
    name_slug: String,
    /// The number of the version that was read.
    version: u64,
    /// Whether its alternate was read.
    alt: bool,
    /// Whether the dataset is frozen, so that reads of it are refused.
    frozen: bool,
    /// Entities in what was read.
    entity_count: u64,
    /// Bytes of all their documents.
    document_bytes: u64,
    /// The parameters that differ from their defaults, in the order in which they are applied.
    request: Vec<RequestParameterRecord>,
    /// Parameters that no read takes.
    ignored: Vec<String>,
    /// The answer.
    answer: AnswerRecord,
    /// The stages that there were, one after the other.
    stages: Vec<StageTimeRecord>,
    /// Microseconds from the first to the last of them.
    total_us: u64,
    /// The work that the read was held for before it ran.
    work: WorkRecord,
    /// Where the answer to the same read lay ready; null from the command line, which knows no server's caches.
    kept: Option<KeptAnswerRecord>,
    /// The logical plan, an operator on each line, indented.
    logical_plan: String,
    /// What was made of it; null where nothing changed.
    optimized_plan: Option<String>,
    /// The physical plan, each operator before its inputs.
    operators: Vec<OperatorRecord>,
    /// The scan of the version; null where nothing had to be scanned.
    scan: Option<ScanRecord>,
    /// Pages of documents.
    documents: DocumentRecord,
    /// Parts of the file, from the cache or from the store.
    parts: PartRecord,
    /// What could make it cheaper, and what to know.
    hints: Vec<String>,
}

impl From<Explanation> for ExplanationAnswer {
    fn from(plain: Explanation) -> Self {
        ExplanationAnswer {
            ok: true,
            dataset_id: plain.dataset_id,
            name_slug: plain.name_slug,
            version: plain.version,
            alt: plain.alt,
            frozen: plain.frozen,
            entity_count: plain.entity_count,
            document_bytes: plain.document_bytes,
            request: plain.request.into_iter().map(RequestParameterRecord::from).collect(),
            ignored: plain.ignored.into_iter().map(|ignored| ignored.name).collect(),
            answer: plain.answer.into(),
            stages: plain.stages.into_iter().map(StageTimeRecord::from).collect(),
            total_us: plain.total_us,
            work: plain.work.into(),
            kept: plain.kept.map(KeptAnswerRecord::from),
            logical_plan: plain.logical_plan,
            optimized_plan: plain.optimized_plan,
            operators: plain.operators.into_iter().map(OperatorRecord::from).collect(),
            scan: plain.scan.map(ScanRecord::from),
            documents: plain.documents.into(),
            parts: plain.parts.into(),
            hints: plain.hints,
        }
    }
}

/// A parameter of a read.
#[derive(Serialize, ToSchema)]
#[schema(as = RequestParameter)]
struct RequestParameterRecord {
    /// Its name.
    name: &'static str,
    /// Its value as it was understood.
    value: String,
}

impl From<RequestParameter> for RequestParameterRecord {
    fn from(plain: RequestParameter) -> Self {
        RequestParameterRecord { name: plain.name, value: plain.value }
    }
}

/// The answer that was made and discarded.
#[derive(Serialize, ToSchema)]
#[schema(as = AnswerUse)]
struct AnswerRecord {
    /// Entities in it, or the count that it holds.
    total: u64,
    /// Its content type.
    content_type: &'static str,
    /// Bytes of its body, not compressed.
    body_bytes: u64,
    /// Whether it came in parts.
    streamed: bool,
    /// Columns of a table; null for other formats.
    columns: Option<u64>,
}

impl From<AnswerUse> for AnswerRecord {
    fn from(plain: AnswerUse) -> Self {
        AnswerRecord {
            total: plain.total,
            content_type: plain.content_type,
            body_bytes: plain.body_bytes,
            streamed: plain.streamed,
            columns: plain.columns,
        }
    }
}

/// How long a stage took.
#[derive(Serialize, ToSchema)]
#[schema(as = StageTime)]
struct StageTimeRecord {
    /// The stage.
    stage: StageRecord,
    /// Microseconds.
    duration_us: u64,
}

impl From<StageTime> for StageTimeRecord {
    fn from(plain: StageTime) -> Self {
        StageTimeRecord { stage: plain.stage.into(), duration_us: plain.duration_us }
    }
}

/// A part of the work on a read.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = StageName)]
enum StageRecord {
    /// The file's footer.
    Open,
    /// Waiting for a permit.
    Wait,
    /// The plans.
    Plan,
    /// The selection: which entities, in which order.
    Select,
    /// Documents in the order of the answer, where they are many and it is not the file's.
    Order,
    /// The columns of a table.
    Columns,
    /// The documents, and the bytes of the body.
    Encode,
}

impl From<StageName> for StageRecord {
    fn from(plain: StageName) -> Self {
        match plain {
            StageName::Open => StageRecord::Open,
            StageName::Wait => StageRecord::Wait,
            StageName::Plan => StageRecord::Plan,
            StageName::Select => StageRecord::Select,
            StageName::Order => StageRecord::Order,
            StageName::Columns => StageRecord::Columns,
            StageName::Encode => StageRecord::Encode,
        }
    }
}

/// The work of a read as it is estimated before it runs.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkUse)]
struct WorkRecord {
    /// Its work in bytes, for the worst case.
    work_bytes: u64,
    /// Above this, `query.medium_bytes`, it is not light.
    medium_bytes: u64,
    /// Above this, `query.heavy_bytes`, it is heavy.
    heavy_bytes: u64,
    /// Its weight, which decides whose permits it takes and whose threads execute it.
    weight: WeightRecord,
    /// Whether it is heavy.
    heavy: bool,
}

impl From<WorkUse> for WorkRecord {
    fn from(plain: WorkUse) -> Self {
        WorkRecord {
            work_bytes: plain.work_bytes,
            medium_bytes: plain.medium_bytes,
            heavy_bytes: plain.heavy_bytes,
            weight: plain.weight.into(),
            heavy: plain.heavy,
        }
    }
}

/// How much work a query is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Weight)]
enum WeightRecord {
    /// At most `query.medium_bytes`, such as a page without a filter.
    Light,
    /// More than that.
    Medium,
    /// More than `query.heavy_bytes`.
    Heavy,
}

impl From<Weight> for WeightRecord {
    fn from(plain: Weight) -> Self {
        match plain {
            Weight::Light => WeightRecord::Light,
            Weight::Medium => WeightRecord::Medium,
            Weight::Heavy => WeightRecord::Heavy,
        }
    }
}

/// Where the answer lay ready when the explanation was asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = KeptAnswer)]
struct KeptAnswerRecord {
    /// Whether it may be kept at all: no sample is.
    cacheable: bool,
    /// The codings in which it was in the cache of small answers.
    response: Vec<&'static str>,
    /// What the cache of Parquet exports had of it: `made`, `being_made`, or `too_large` if it did not fit; null for
    /// nothing.
    export: Option<&'static str>,
}

impl From<KeptAnswer> for KeptAnswerRecord {
    fn from(plain: KeptAnswer) -> Self {
        KeptAnswerRecord { cacheable: plain.cacheable, response: plain.response, export: plain.export }
    }
}

/// An operator of the physical plan, and what it did.
#[derive(Serialize, ToSchema)]
#[schema(as = PlanOperator)]
struct OperatorRecord {
    /// How many operators are above it.
    depth: u32,
    /// What it is.
    operator: String,
    /// Entities that it gave; null where it does not count them.
    rows: Option<u64>,
    /// Bytes in memory of what it gave; null where it does not count them.
    bytes: Option<u64>,
    /// Microseconds that it kept threads busy, its inputs not included; null where it does not measure them.
    compute_us: Option<u64>,
    /// How often it wrote to disk what did not fit into memory.
    spills: u64,
    /// Bytes that it wrote so.
    spilled_bytes: u64,
}

impl From<PlanOperator> for OperatorRecord {
    fn from(plain: PlanOperator) -> Self {
        OperatorRecord {
            depth: plain.depth,
            operator: plain.operator,
            rows: plain.rows,
            bytes: plain.bytes,
            compute_us: plain.compute_us,
            spills: plain.spills,
            spilled_bytes: plain.spilled_bytes,
        }
    }
}

/// What the scan of the version did.
#[derive(Serialize, ToSchema)]
#[schema(as = ScanUse)]
struct ScanRecord {
    /// The first position that was looked at.
    first_position: u64,
    /// The position after the last one.
    end_position: u64,
    /// The row groups.
    row_groups: RowGroupRecord,
    /// Entities in the row groups that were scanned, as far as their positions count.
    rows_tested: u64,
    /// Entities that it gave.
    rows_selected: u64,
    /// The predicates, in the order in which they ran.
    predicates: Vec<PredicateRecord>,
    /// What reading documents for predicates did; null where none needs them.
    verification: Option<VerificationRecord>,
    /// Entities left out because they could not be among the first of the order; null where that was not tried.
    left_out_early: Option<u64>,
    /// Where the keys of `sort` came from; null where nothing was sorted.
    sort: Option<KeyRecord>,
    /// Where the keys of `dedup` came from; null where none was asked for.
    dedup: Option<KeyRecord>,
}

impl From<ScanUse> for ScanRecord {
    fn from(plain: ScanUse) -> Self {
        ScanRecord {
            first_position: plain.first_position,
            end_position: plain.end_position,
            row_groups: plain.row_groups.into(),
            rows_tested: plain.rows_tested,
            rows_selected: plain.rows_selected,
            predicates: plain.predicates.into_iter().map(PredicateRecord::from).collect(),
            verification: plain.verification.map(VerificationRecord::from),
            left_out_early: plain.left_out_early,
            sort: plain.sort.map(KeyRecord::from),
            dedup: plain.dedup.map(KeyRecord::from),
        }
    }
}

/// What became of the row groups. All but `total` add up to it.
#[derive(Serialize, ToSchema)]
#[schema(as = RowGroupUse)]
struct RowGroupRecord {
    /// All of the version's.
    total: u64,
    /// Outside of the positions that `offset` and `limit` leave.
    outside_positions: u64,
    /// Left out because a bloom filter says that the text is not there.
    pruned_by_bloom_filter: u64,
    /// Left out because the number lies outside of what the statistics say, nor is its text there.
    pruned_by_numbers: u64,
    /// Left out because the keyword index says that the text is not there.
    pruned_by_keyword_index: u64,
    /// Scanned.
    scanned: u64,
    /// Not looked at, because there were enough entities before.
    not_reached: u64,
}

impl From<RowGroupUse> for RowGroupRecord {
    fn from(plain: RowGroupUse) -> Self {
        RowGroupRecord {
            total: plain.total,
            outside_positions: plain.outside_positions,
            pruned_by_bloom_filter: plain.pruned_by_bloom_filter,
            pruned_by_numbers: plain.pruned_by_numbers,
            pruned_by_keyword_index: plain.pruned_by_keyword_index,
            scanned: plain.scanned,
            not_reached: plain.not_reached,
        }
    }
}

/// What became of a predicate.
#[derive(Serialize, ToSchema)]
#[schema(as = PredicateUse)]
struct PredicateRecord {
    /// The predicate, as the parameter that asks for it.
    predicate: String,
    /// What answered it.
    access: AccessRecord,
    /// The path of the shredded column, where it is one.
    column: Option<String>,
    /// Entities that it was asked about; null where documents alone answer, which all predicates share.
    rows_in: Option<u64>,
    /// Entities that were left.
    rows_out: Option<u64>,
    /// What the keyword index said; null where it was not asked.
    keyword_index: Option<KeywordIndexRecord>,
}

impl From<PredicateUse> for PredicateRecord {
    fn from(plain: PredicateUse) -> Self {
        PredicateRecord {
            predicate: plain.predicate,
            access: plain.access.into(),
            column: plain.column,
            rows_in: plain.rows_in,
            rows_out: plain.rows_out,
            keyword_index: plain.keyword_index.map(KeywordIndexRecord::from),
        }
    }
}

/// What the keyword index said of a predicate's texts, in row groups. Those that other predicates pruned do not count.
#[derive(Serialize, ToSchema)]
#[schema(as = KeywordIndexUse)]
struct KeywordIndexRecord {
    /// Row groups where it named the entities that hold the text.
    exact: u64,
    /// Row groups where it named entities that may hold the text, to be verified.
    candidates: u64,
    /// Row groups where it did not tell, so that the search text was scanned.
    left_to_scan: u64,
    /// Entities that it named.
    rows: u64,
}

impl From<KeywordIndexUse> for KeywordIndexRecord {
    fn from(plain: KeywordIndexUse) -> Self {
        KeywordIndexRecord {
            exact: plain.exact,
            candidates: plain.candidates,
            left_to_scan: plain.left_to_scan,
            rows: plain.rows,
        }
    }
}

/// Where something was read from.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = AccessName)]
enum AccessRecord {
    /// The columns of one path.
    ShreddedColumn,
    /// The search text, which decides.
    SearchText,
    /// The search text; what it found was verified in documents.
    SearchTextThenDocuments,
    /// Documents.
    Documents,
    /// The stored hash of every entity.
    StoredHashes,
}

impl From<AccessName> for AccessRecord {
    fn from(plain: AccessName) -> Self {
        match plain {
            AccessName::ShreddedColumn => AccessRecord::ShreddedColumn,
            AccessName::SearchText => AccessRecord::SearchText,
            AccessName::SearchTextThenDocuments => AccessRecord::SearchTextThenDocuments,
            AccessName::Documents => AccessRecord::Documents,
            AccessName::StoredHashes => AccessRecord::StoredHashes,
        }
    }
}

/// What reading documents for predicates did.
#[derive(Serialize, ToSchema)]
#[schema(as = VerificationUse)]
struct VerificationRecord {
    /// Entities whose documents were looked at.
    rows_in: u64,
    /// Entities that matched.
    rows_out: u64,
    /// Pages that these documents lie in.
    pages: u64,
}

impl From<VerificationUse> for VerificationRecord {
    fn from(plain: VerificationUse) -> Self {
        VerificationRecord { rows_in: plain.rows_in, rows_out: plain.rows_out, pages: plain.pages }
    }
}

/// Where the keys of an order or of groups came from.
#[derive(Serialize, ToSchema)]
#[schema(as = KeyUse)]
struct KeyRecord {
    /// The fields.
    by: String,
    /// What held the keys.
    access: AccessRecord,
    /// The path of the shredded column, where it is one.
    column: Option<String>,
    /// Pages of documents that were looked at: with a shredded column, for values that it cannot hold.
    pages: u64,
}

impl From<KeyUse> for KeyRecord {
    fn from(plain: KeyUse) -> Self {
        KeyRecord { by: plain.by, access: plain.access.into(), column: plain.column, pages: plain.pages }
    }
}

/// Pages of documents, each counted once.
#[derive(Serialize, ToSchema)]
#[schema(as = DocumentUse)]
struct DocumentRecord {
    /// All of the file's.
    pages: u64,
    /// Read to select: to verify predicates, and for keys that no column holds.
    pages_to_select: u64,
    /// Read for the answer.
    pages_to_answer: u64,
    /// Read for neither.
    pages_not_read: u64,
    /// Bytes of documents that were put in order by way of the disk; null where that was not needed.
    spilled_bytes: Option<u64>,
}

impl From<DocumentUse> for DocumentRecord {
    fn from(plain: DocumentUse) -> Self {
        DocumentRecord {
            pages: plain.pages,
            pages_to_select: plain.pages_to_select,
            pages_to_answer: plain.pages_to_answer,
            pages_not_read: plain.pages_not_read,
            spilled_bytes: plain.spilled_bytes,
        }
    }
}

/// Parts of the file, from the cache or from the store.
#[derive(Serialize, ToSchema)]
#[schema(as = PartUse)]
struct PartRecord {
    /// The footer.
    footers: LookupRecord,
    /// Columns of row groups.
    columns: LookupRecord,
    /// Bloom filters.
    bloom_filters: LookupRecord,
    /// Entries and lists of the keyword index.
    keyword_index: LookupRecord,
    /// Pages of documents.
    document_pages: LookupRecord,
    /// Requests to the store.
    requests: u64,
    /// Bytes that they fetched.
    request_bytes: u64,
}

impl From<PartUse> for PartRecord {
    fn from(plain: PartUse) -> Self {
        PartRecord {
            footers: plain.footers.into(),
            columns: plain.columns.into(),
            bloom_filters: plain.bloom_filters.into(),
            keyword_index: plain.keyword_index.into(),
            document_pages: plain.document_pages.into(),
            requests: plain.requests,
            request_bytes: plain.request_bytes,
        }
    }
}

/// Look-ups in the cache.
#[derive(Serialize, ToSchema)]
#[schema(as = LookupUse)]
struct LookupRecord {
    /// Those that found the part.
    hits: u64,
    /// Those that did not.
    misses: u64,
}

impl From<LookupUse> for LookupRecord {
    fn from(plain: LookupUse) -> Self {
        LookupRecord { hits: plain.hits, misses: plain.misses }
    }
}
