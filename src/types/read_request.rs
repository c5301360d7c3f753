//! Parsed read requests as plain data, before they are resolved against a dataset.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::field_path::FieldPath;
use super::version::VersionVariant;

/// A response format (docs/reference/formats.md, Formats). Its name is also the file name extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResponseFormat {
    Json,
    Jsonl,
    Csv,
    Tsv,
    Xml,
    Parquet,
    /// An Arrow IPC stream, which is only a format of files, not a value of the parameter `format`.
    Arrow,
}

names!(
    ResponseFormat { Json = "json", Jsonl = "jsonl", Csv = "csv", Tsv = "tsv", Xml = "xml", Parquet = "parquet" } and
        { Arrow = "arrow" },
    UnknownResponseFormat,
    "{0:?} is not a response format; valid: json, jsonl, csv, tsv, xml, parquet"
);

impl ResponseFormat {
    /// The formats under `/files/`, whose names are the extensions.
    pub const FILE_FORMATS: [ResponseFormat; 7] = {
        let [json, jsonl, csv, tsv, xml, parquet] = ResponseFormat::ALL;
        [json, jsonl, csv, tsv, xml, parquet, ResponseFormat::Arrow]
    };

    /// The `Content-Type` of a body, exactly as docs/reference/formats.md, Content types and file names, writes it.
    pub fn content_type(self) -> &'static str {
        match self {
            ResponseFormat::Json => "application/json",
            ResponseFormat::Jsonl => "application/x-ndjson",
            ResponseFormat::Csv => "text/csv",
            ResponseFormat::Tsv => "text/tab-separated-values",
            ResponseFormat::Xml => "application/xml",
            ResponseFormat::Parquet => "application/octet-stream",
            ResponseFormat::Arrow => "application/vnd.apache.arrow.stream",
        }
    }

    /// Returns true for table formats, whose entities are flattened and whose responses have a file name.
    pub fn is_table(self) -> bool {
        matches!(self, ResponseFormat::Csv | ResponseFormat::Tsv | ResponseFormat::Parquet | ResponseFormat::Arrow)
    }

    /// Returns true for formats whose columns can have types other than text.
    pub fn has_column_types(self) -> bool {
        matches!(self, ResponseFormat::Parquet | ResponseFormat::Arrow)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathValue {
    pub path: FieldPath,
    pub value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RangeBound {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl RangeBound {
    pub const ALL: [RangeBound; 4] =
        [RangeBound::Greater, RangeBound::GreaterOrEqual, RangeBound::Less, RangeBound::LessOrEqual];

    pub const fn parameter_name(self) -> &'static str {
        match self {
            RangeBound::Greater => "filter_gt",
            RangeBound::GreaterOrEqual => "filter_gte",
            RangeBound::Less => "filter_lt",
            RangeBound::LessOrEqual => "filter_lte",
        }
    }

    /// Returns true if the range filter matches a scalar whose comparison with the filter's value is `ordering`.
    pub fn accepts(self, ordering: Ordering) -> bool {
        match self {
            RangeBound::Greater => ordering.is_gt(),
            RangeBound::GreaterOrEqual => ordering.is_ge(),
            RangeBound::Less => ordering.is_lt(),
            RangeBound::LessOrEqual => ordering.is_le(),
        }
    }

    pub fn is_lower_bound(self) -> bool {
        matches!(self, RangeBound::Greater | RangeBound::GreaterOrEqual)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeywordsMode {
    #[default]
    Or,
    /// All keywords must occur in an entity, in any fields.
    And,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortField {
    /// The name of a top-level field. Dots are part of the name.
    pub field: String,
    /// Whether the order is descending. Values that cannot be sorted are last in both directions.
    pub descending: bool,
}

/// The parameters of a read request, in the order of the query steps (docs/reference/query-semantics.md, Steps).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    pub include_source: bool,
    pub denull: bool,
    /// The fields that `keep_field` lists. If empty, all fields remain.
    pub keep_fields: Vec<FieldPath>,
    pub drop_fields: Vec<FieldPath>,
    pub filters: Vec<PathValue>,
    pub contains_filters: Vec<PathValue>,
    /// One list of range filters for each of [`RangeBound::ALL`]. An entity must match all of them.
    pub range_filters: [Vec<PathValue>; RangeBound::ALL.len()],
    /// The keywords, without surrounding whitespace and without empty keywords.
    pub keywords: Vec<String>,
    pub keywords_mode: KeywordsMode,
    pub sort: Option<SortField>,
    pub dedup: bool,
    /// The paths that `dedup` compares. If empty, it compares whole entities without `_source`.
    pub dedup_key: Vec<FieldPath>,
    pub sample: Option<u64>,
    /// The seed of the sample. `None` draws a new sample for each request.
    pub seed: Option<u64>,
    pub offset: u64,
    pub limit: Option<u64>,
    /// Whether entities are flattened. Tables are flattened even if this is false.
    pub flatten: bool,
    pub format: ResponseFormat,
    pub typed: bool,
    pub pretty: bool,
    /// Whether the response is only the number of entities.
    pub count: bool,
    pub alt: bool,
    /// Whether unknown parameters and fields are rejected. Has no effect on successful responses.
    pub strict: bool,
    /// Whether the response also reports how many entities match. Has no effect on the body.
    pub total: bool,
}

impl ReadRequest {
    /// Returns an equal request in a single form: resets parameters without effect, and sorts conjunctive conditions.
    pub fn canonicalize(&self) -> ReadRequest {
        let mut canonical = ReadRequest { strict: false, ..self.clone() };
        let in_order = |conditions: &mut Vec<PathValue>| {
            conditions.sort_unstable_by_key(|condition| (condition.path.keys().to_vec(), condition.value.clone()));
            conditions.dedup();
        };
        in_order(&mut canonical.filters);
        in_order(&mut canonical.contains_filters);
        canonical.range_filters.iter_mut().for_each(in_order);
        canonical.keywords.sort_unstable();
        canonical.keywords.dedup();
        if canonical.keywords.len() < 2 {
            canonical.keywords_mode = KeywordsMode::Or;
        }
        if !canonical.dedup {
            canonical.dedup_key.clear();
        }
        if canonical.count {
            // A response to `count` has no format and no order.
            canonical.format = ResponseFormat::Json;
            canonical.flatten = false;
        } else if canonical.format != ResponseFormat::Json {
            canonical.pretty = true;
            canonical.flatten |= canonical.format.is_table();
        }
        canonical.typed &= canonical.format.has_column_types();
        canonical
    }

    pub fn variant(&self) -> VersionVariant {
        VersionVariant::from_alt(self.alt)
    }

    pub fn returns_whole_entities(&self) -> bool {
        let ReadRequest { include_source, denull, keep_fields, drop_fields, flatten, format, .. } = self;
        let is_json = matches!(format, ResponseFormat::Json | ResponseFormat::Jsonl);
        *include_source && !denull && keep_fields.is_empty() && drop_fields.is_empty() && !flatten && is_json
    }

    pub fn has_predicates(&self) -> bool {
        let ReadRequest { filters, contains_filters, range_filters, keywords, .. } = self;
        let has_ranges = range_filters.iter().any(|conditions| !conditions.is_empty());
        has_ranges || !(filters.is_empty() && contains_filters.is_empty() && keywords.is_empty())
    }

    pub fn has_field_paths(&self) -> bool {
        let lists = [&self.keep_fields, &self.drop_fields, &self.dedup_key];
        let mut filters = self.range_filters.iter().chain([&self.filters, &self.contains_filters]);
        let is_filtered = filters.any(|conditions| !conditions.is_empty());
        is_filtered || self.sort.is_some() || lists.iter().any(|paths| !paths.is_empty())
    }

    pub fn range_filters(&self) -> impl Iterator<Item = (RangeBound, &PathValue)> {
        let by_bound = RangeBound::ALL.into_iter().zip(&self.range_filters);
        by_bound.flat_map(|(bound, conditions)| conditions.iter().map(move |condition| (bound, condition)))
    }

    /// Returns the request that counts the entities before the step `sample`.
    pub fn to_count_request(&self) -> ReadRequest {
        let all = ReadRequest { sort: None, sample: None, seed: None, offset: 0, limit: None, ..self.clone() };
        // Parameters that do not affect the count have defaults, as in the count requests that clients usually send.
        ReadRequest { count: true, total: false, pretty: true, ..all }.canonicalize()
    }

    pub fn is_random(&self) -> bool {
        self.sample.is_some() && self.seed.is_none()
    }

    /// Returns the number of entities before the step `sample`, if a response with `returned` entities determines it.
    pub fn infer_match_count(&self, returned: u64) -> Option<u64> {
        let is_truncated = self.limit.is_some_and(|limit| returned >= limit);
        if is_truncated || (returned == 0 && self.offset > 0) {
            return None;
        }
        let match_count = self.offset.checked_add(returned)?;
        self.sample.is_none_or(|sample| match_count < sample).then_some(match_count)
    }

    /// Returns the paths in the request with their parameters, in the order of the query steps.
    pub fn paths_by_parameter(&self) -> Vec<(&'static str, FieldPath)> {
        let listed = |name: &'static str, paths: &[FieldPath]| -> Vec<_> {
            paths.iter().map(|path| (name, path.clone())).collect()
        };
        let compared = |name: &'static str, conditions: &[PathValue]| -> Vec<_> {
            conditions.iter().map(|condition| (name, condition.path.clone())).collect()
        };
        let ranges = self.range_filters().map(|(bound, condition)| (bound.parameter_name(), condition.path.clone()));
        let sort = self.sort.as_ref().and_then(|sort| FieldPath::from_keys([sort.field.as_str()]).ok());
        [
            listed("keep_field", &self.keep_fields),
            listed("drop_field", &self.drop_fields),
            compared("filter", &self.filters),
            compared("filter_contains", &self.contains_filters),
            ranges.collect(),
            sort.map(|path| ("sort", path)).into_iter().collect(),
            listed("dedup_key", &self.dedup_key),
        ]
        .concat()
    }

    /// Returns the parameters that differ from their defaults, in the order of the query steps.
    pub fn non_default_parameters(&self) -> Vec<(&'static str, String)> {
        let defaults = ReadRequest::default();
        let mut parameters = Vec::new();
        let mut add = |name, differs: bool, value: String| {
            if differs {
                parameters.push((name, value));
            }
        };
        add("include_source", self.include_source != defaults.include_source, self.include_source.to_string());
        add("denull", self.denull != defaults.denull, self.denull.to_string());
        add("keep_field", !self.keep_fields.is_empty(), FieldPath::format_list(&self.keep_fields));
        add("drop_field", !self.drop_fields.is_empty(), FieldPath::format_list(&self.drop_fields));
        let mut add_condition =
            |name, PathValue { path, value }: &PathValue| add(name, true, format!("{path}:{value}"));
        self.filters.iter().for_each(|condition| add_condition("filter", condition));
        self.contains_filters.iter().for_each(|condition| add_condition("filter_contains", condition));
        self.range_filters().for_each(|(bound, condition)| add_condition(bound.parameter_name(), condition));
        add("keywords", !self.keywords.is_empty(), self.keywords.join(","));
        add("keywords_mode", self.keywords_mode == KeywordsMode::And, "and".to_owned());
        if let Some(SortField { field, descending }) = &self.sort {
            add("sort", true, format!("{field}:{}", if *descending { "desc" } else { "asc" }));
        }
        add("dedup", self.dedup, self.dedup.to_string());
        add("dedup_key", !self.dedup_key.is_empty(), FieldPath::format_list(&self.dedup_key));
        add("sample", self.sample.is_some(), self.sample.unwrap_or_default().to_string());
        add("seed", self.seed.is_some(), self.seed.unwrap_or_default().to_string());
        add("offset", self.offset != defaults.offset, self.offset.to_string());
        add("limit", self.limit.is_some(), self.limit.unwrap_or_default().to_string());
        add("flatten", self.flatten, self.flatten.to_string());
        add("format", self.format != defaults.format, self.format.name().to_owned());
        add("typed", self.typed, self.typed.to_string());
        add("pretty", self.pretty != defaults.pretty, self.pretty.to_string());
        add("count", self.count, self.count.to_string());
        add("alt", self.alt, self.alt.to_string());
        add("strict", self.strict, self.strict.to_string());
        add("total", self.total, self.total.to_string());
        parameters
    }
}

impl Default for ReadRequest {
    fn default() -> Self {
        ReadRequest {
            include_source: true,
            denull: false,
            keep_fields: Vec::new(),
            drop_fields: Vec::new(),
            filters: Vec::new(),
            contains_filters: Vec::new(),
            range_filters: Default::default(),
            keywords: Vec::new(),
            keywords_mode: KeywordsMode::Or,
            sort: None,
            dedup: false,
            dedup_key: Vec::new(),
            sample: None,
            seed: None,
            offset: 0,
            limit: None,
            flatten: false,
            format: ResponseFormat::Json,
            typed: false,
            pretty: true,
            count: false,
            alt: false,
            strict: false,
            total: false,
        }
    }
}
