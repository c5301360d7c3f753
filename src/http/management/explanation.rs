//! The JSON form of an explanation: records with the fields of the plain data that `service` and `query` give.

use serde::Serialize;
use utoipa::ToSchema;

/// What the records are made of. Each record has the name of its plain data, and documents it for callers.
mod plain {
    pub(super) use crate::query::distribute::{DistributedUse, NodeUse};
    pub(super) use crate::query::explain::PlanOperator;
    pub(super) use crate::query::scan::report::{
        AccessName, KeyUse, KeywordIndexUse, PredicateUse, RowGroupUse, ScanUse, ShapeUse, VerificationUse,
    };
    pub(super) use crate::service::{
        AnswerUse, DocumentUse, Explanation, IgnoredParameter, KeptAnswer, LookupUse, PartUse, RequestParameter,
        StageName, StageTime, Weight, WorkUse,
    };
}

/// Plain data whose JSON form is a `Record`.
trait IntoRecord<Record> {
    fn into_record(self) -> Record;
}

/// Declares records, and how each is made of the plain data of its name: field by field but for those with a value, or
/// variant by variant.
macro_rules! records {
    () => {};
    (
        $(#[$about:meta])+
        struct $name:ident { $( $(#[$doc:meta])+ $field:ident: $type:ty $(= $value:expr)?, )+ }
        $($more:tt)*
    ) => {
        $(#[$about])+
        #[derive(Serialize, ToSchema)]
        pub(crate) struct $name { $( $(#[$doc])+ $field: $type, )+ }

        impl IntoRecord<$name> for plain::$name {
            fn into_record(self) -> $name {
                let plain = self;
                $name { $( $field: records!(@value plain $field $($value)?), )+ }
            }
        }

        records! { $($more)* }
    };
    (
        $(#[$about:meta])+
        enum $name:ident { $( $(#[$doc:meta])+ $variant:ident, )+ }
        $($more:tt)*
    ) => {
        $(#[$about])+
        #[derive(Serialize, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub(crate) enum $name { $( $(#[$doc])+ $variant, )+ }

        impl IntoRecord<$name> for plain::$name {
            fn into_record(self) -> $name {
                match self { $( plain::$name::$variant => $name::$variant, )+ }
            }
        }

        records! { $($more)* }
    };
    (@value $plain:ident $field:ident) => { $plain.$field.into_record() };
    (@value $plain:ident $field:ident $value:expr) => { $value };
    (@same $($type:ty),+) => {
        $( impl IntoRecord<$type> for $type {
            fn into_record(self) -> $type {
                self
            }
        } )+
    };
}

records! { @same bool, u32, u64, &'static str, String }

impl<Record, Plain: IntoRecord<Record>> IntoRecord<Option<Record>> for Option<Plain> {
    fn into_record(self) -> Option<Record> {
        self.map(Plain::into_record)
    }
}

impl<Record, Plain: IntoRecord<Record>> IntoRecord<Vec<Record>> for Vec<Plain> {
    fn into_record(self) -> Vec<Record> {
        self.into_iter().map(Plain::into_record).collect()
    }
}

impl IntoRecord<String> for plain::IgnoredParameter {
    fn into_record(self) -> String {
        self.name
    }
}

impl From<plain::Explanation> for Explanation {
    fn from(plain: plain::Explanation) -> Self {
        plain.into_record()
    }
}

records! {
    /// What a read did, and what it took.
    struct Explanation {
        /// Always true.
        ok: bool = true,
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
        request: Vec<RequestParameter>,
        /// Parameters that no read takes.
        ignored: Vec<String>,
        /// The answer.
        answer: AnswerUse,
        /// The stages that there were, one after the other.
        stages: Vec<StageTime>,
        /// Microseconds from the first to the last of them.
        total_us: u64,
        /// The work that the read was held for before it ran.
        work: WorkUse,
        /// Where the answer to the same read lay ready; null from the command line, which knows no server's caches.
        kept: Option<KeptAnswer>,
        /// The logical plan, an operator on each line, indented.
        logical_plan: String,
        /// What was made of it; null where nothing changed.
        optimized_plan: Option<String>,
        /// The physical plan, each operator before its inputs.
        operators: Vec<PlanOperator>,
        /// The scan of the version; null where nothing had to be scanned, and where other nodes scanned a part.
        scan: Option<ScanUse>,
        /// How other nodes helped to select; null where none was asked.
        distributed: Option<DistributedUse>,
        /// Pages of documents.
        documents: DocumentUse,
        /// Parts of the file, from the cache or from the store.
        parts: PartUse,
        /// What could make it cheaper, and what to know.
        hints: Vec<String>,
    }

    /// A parameter of a read.
    struct RequestParameter {
        /// Its name.
        name: &'static str,
        /// Its value as it was understood.
        value: String,
    }

    /// The answer that was made and discarded.
    struct AnswerUse {
        /// Entities in it, or the count that it holds.
        total: u64,
        /// Entities that match, where `total` asks for them; null otherwise.
        matches: Option<u64>,
        /// Its content type.
        content_type: &'static str,
        /// Bytes of its body, not compressed.
        body_bytes: u64,
        /// Whether it came in parts.
        streamed: bool,
        /// Columns of a table; null for other formats.
        columns: Option<u64>,
    }

    /// How long a stage took.
    struct StageTime {
        /// The stage.
        stage: StageName,
        /// Microseconds.
        duration_us: u64,
    }

    /// A part of the work on a read.
    enum StageName {
        /// The file's footer.
        Open,
        /// Waiting for a permit.
        Wait,
        /// The plans.
        Plan,
        /// The selection: which entities, in which order.
        Select,
        /// The count that `total` asks for.
        Count,
        /// Documents in the order of the answer, where they are many and it is not the file's.
        Order,
        /// The columns of a table.
        Columns,
        /// The documents, and the bytes of the body.
        Encode,
    }

    /// The work of a read as it is estimated before it runs.
    struct WorkUse {
        /// Its work in bytes, for the worst case.
        work_bytes: u64,
        /// Above this, `query.medium_bytes`, it is not light.
        medium_bytes: u64,
        /// Above this, `query.heavy_bytes`, it is heavy.
        heavy_bytes: u64,
        /// Its weight, which decides whose permits it takes and whose threads execute it.
        weight: Weight,
        /// Whether it is heavy.
        heavy: bool,
    }

    /// How much work a query is.
    enum Weight {
        /// At most `query.medium_bytes`, such as a page without a filter.
        Light,
        /// More than that.
        Medium,
        /// More than `query.heavy_bytes`.
        Heavy,
    }

    /// Where the answer lay ready when the explanation was asked for.
    struct KeptAnswer {
        /// Whether it may be kept at all: no sample without a seed is.
        cacheable: bool,
        /// The codings in which it was in the cache of small answers.
        response: Vec<&'static str>,
        /// What the cache of Parquet exports had of it: `made`, `being_made`, or `too_large` if it did not fit; null
        /// for nothing.
        export: Option<&'static str>,
    }

    /// An operator of the physical plan, and what it did.
    struct PlanOperator {
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

    /// How other nodes helped.
    struct DistributedUse {
        /// The nodes that took part, by their names.
        nodes: Vec<NodeUse>,
        /// Why the query then ran again on one node alone; null if it did not.
        fallback: Option<String>,
    }

    /// What a node did to select.
    struct NodeUse {
        /// Its name.
        node: String,
        /// Whether it is the one that answers.
        is_own: bool,
        /// Row groups that it was given.
        row_groups: u64,
        /// Bytes that it had to read, about, by what the node that answers has in its cache.
        stored_bytes: u64,
        /// Rows that it gave.
        rows: u64,
        /// Bytes of these in memory.
        bytes: u64,
    }

    /// What the scan of the version did.
    struct ScanUse {
        /// The first position that was looked at.
        first_position: u64,
        /// The position after the last one.
        end_position: u64,
        /// The row groups.
        row_groups: RowGroupUse,
        /// Entities in the row groups that were scanned, as far as their positions count.
        rows_tested: u64,
        /// Entities that it gave.
        rows_selected: u64,
        /// The predicates, in the order in which they ran.
        predicates: Vec<PredicateUse>,
        /// What reading documents for predicates did; null where none needs them.
        verification: Option<VerificationUse>,
        /// Entities left out because they could not be among the first of the order; null where that was not tried.
        left_out_early: Option<u64>,
        /// Entities left out because another one with the same key comes first; null where that was not tried.
        duplicates_left_out: Option<u64>,
        /// Where the keys of `sort` came from; null where nothing was sorted.
        sort: Option<KeyUse>,
        /// Where the keys of `dedup` came from; null where none was asked for.
        dedup: Option<KeyUse>,
    }

    /// What became of the row groups. All but `total` add up to it.
    struct RowGroupUse {
        /// All of the version's.
        total: u64,
        /// Outside of the positions that `offset` and `limit` leave.
        outside_positions: u64,
        /// Left out because a bloom filter says that the text is not there.
        pruned_by_bloom_filter: u64,
        /// Left out because the number lies outside of what the statistics say, nor is its text there; or because no
        /// number lies in the range.
        pruned_by_numbers: u64,
        /// Left out because the statistics say that no string lies in the range.
        pruned_by_texts: u64,
        /// Left out because the keyword index says that the text is not there.
        pruned_by_keyword_index: u64,
        /// Left out because the hash index of a column names none of their entities.
        pruned_by_hash_index: u64,
        /// Left out because the statistics say that all of the first of the order lie elsewhere.
        pruned_by_order: u64,
        /// Scanned.
        scanned: u64,
        /// Not looked at, because there were enough entities before.
        not_reached: u64,
    }

    /// What became of a predicate.
    struct PredicateUse {
        /// The predicate, as the parameter that asks for it.
        predicate: String,
        /// What answered it.
        access: AccessName,
        /// The path of the shredded column, where it is one.
        column: Option<String>,
        /// Entities that it was asked about; null where documents alone answer, which all predicates share.
        rows_in: Option<u64>,
        /// Entities that were left.
        rows_out: Option<u64>,
        /// What the keyword index said; null where it was not asked.
        keyword_index: Option<KeywordIndexUse>,
        /// What shapes did; null where they were not asked.
        shapes: Option<ShapeUse>,
        /// Row groups where the statistics of the shredded column say that every entity fits a range filter; null for
        /// other predicates and columns.
        settled_by_statistics: Option<u64>,
    }

    /// How a predicate on paths was answered in the row groups that have shapes. Those that were pruned do not count.
    struct ShapeUse {
        /// Row groups where search text and shapes settled it, without documents.
        settled: u64,
        /// Row groups where its candidates were verified in documents, because that reads less.
        left_to_documents: u64,
    }

    /// What the keyword index said of a predicate's texts, in row groups. Those that other predicates pruned do not
    /// count.
    struct KeywordIndexUse {
        /// Row groups where it named the entities that hold the text.
        exact: u64,
        /// Row groups where it named entities that may hold the text, to be verified.
        candidates: u64,
        /// Row groups where it did not tell, so that the search text was scanned.
        left_to_scan: u64,
        /// Entities that it named.
        rows: u64,
    }

    /// Where something was read from.
    enum AccessName {
        /// The columns of one path.
        ShreddedColumn,
        /// The search text, which decides.
        SearchText,
        /// The search text, and the shapes that name the path of each of its texts.
        SearchTextAndShapes,
        /// The search text; what it found was verified in documents.
        SearchTextThenDocuments,
        /// Documents.
        Documents,
        /// The stored hash of every entity.
        StoredHashes,
        /// A code for what a path reaches in each entity, made once for a version.
        Codes,
        /// The order of all entities by a column, made once for a version.
        KeptOrder,
        /// The first entity of every group, found once for a version.
        KeptSet,
        /// The hash index of a column, made once for a version, and the column's values of the entities that it names.
        HashIndex,
    }

    /// What reading documents for predicates did.
    struct VerificationUse {
        /// Entities whose documents were looked at.
        rows_in: u64,
        /// Entities that matched.
        rows_out: u64,
        /// Pages that these documents lie in.
        pages: u64,
    }

    /// Where the keys of an order or of groups came from.
    struct KeyUse {
        /// The fields.
        by: String,
        /// What held the keys.
        access: AccessName,
        /// The path of the shredded column, where it is one.
        column: Option<String>,
        /// Pages of documents that were looked at: with a shredded column, for values that it cannot hold.
        pages: u64,
    }

    /// Pages of documents, each counted once.
    struct DocumentUse {
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

    /// Parts of the file, from the cache or from the store.
    struct PartUse {
        /// The footer.
        footers: LookupUse,
        /// Columns of row groups.
        columns: LookupUse,
        /// Bloom filters.
        bloom_filters: LookupUse,
        /// Entries and lists of the keyword index.
        keyword_index: LookupUse,
        /// Shapes of row groups.
        shapes: LookupUse,
        /// Pages of documents.
        document_pages: LookupUse,
        /// Requests to the store.
        requests: u64,
        /// Bytes that they fetched.
        request_bytes: u64,
    }

    /// Look-ups in the cache.
    struct LookupUse {
        /// Those that found the part.
        hits: u64,
        /// Those that did not.
        misses: u64,
    }
}
