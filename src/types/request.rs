//! The request of one read, after parsing and before anything is resolved: plain data, no I/O.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::path::Path;

/// The serialization of a response (docs/reference/formats.md, Formats).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// One array of entities, `application/json`.
    Json,
    /// One compact entity per line, `application/x-ndjson`.
    Jsonl,
    /// A header and one row per flattened entity, `text/csv`.
    Csv,
    /// As CSV, with tabs, `text/tab-separated-values`.
    Tsv,
    /// One element per entity, `application/xml`.
    Xml,
    /// Flattened columns of text, `application/octet-stream`.
    Parquet,
}

impl Format {
    /// Every format, in the order in which documentation lists them.
    pub const ALL: [Format; 6] = [Format::Json, Format::Jsonl, Format::Csv, Format::Tsv, Format::Xml, Format::Parquet];

    pub const NAMES: [&str; 6] = ["json", "jsonl", "csv", "tsv", "xml", "parquet"];

    /// The name in a URL, which is also the file name extension.
    pub fn name(self) -> &'static str {
        Format::NAMES[self as usize]
    }

    /// The `Content-Type` of a body, exactly as docs/reference/formats.md, Content types and file names, writes it.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Jsonl => "application/x-ndjson",
            Format::Csv => "text/csv",
            Format::Tsv => "text/tab-separated-values",
            Format::Xml => "application/xml",
            Format::Parquet => "application/octet-stream",
        }
    }

    /// Whether a body is a table: its entities are flattened, and it has a file name.
    pub fn is_table(self) -> bool {
        matches!(self, Format::Csv | Format::Tsv | Format::Parquet)
    }
}

/// A path and the text with which its values are compared (`filter`, `filter_contains`, `filter_gt` and the like).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathValue {
    pub path: Path,
    /// The value as it came, not folded.
    pub value: String,
}

/// On which side of its value a range filter looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum RangeBound {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl RangeBound {
    /// All of them, in the order in which documentation lists their parameters.
    pub const ALL: [RangeBound; 4] =
        [RangeBound::Greater, RangeBound::GreaterOrEqual, RangeBound::Less, RangeBound::LessOrEqual];

    pub const fn parameter(self) -> &'static str {
        match self {
            RangeBound::Greater => "filter_gt",
            RangeBound::GreaterOrEqual => "filter_gte",
            RangeBound::Less => "filter_lt",
            RangeBound::LessOrEqual => "filter_lte",
        }
    }

    /// Whether a scalar that compares so with the filter's value fits.
    pub fn admits(self, ordering: Ordering) -> bool {
        match self {
            RangeBound::Greater => ordering.is_gt(),
            RangeBound::GreaterOrEqual => ordering.is_ge(),
            RangeBound::Less => ordering.is_lt(),
            RangeBound::LessOrEqual => ordering.is_le(),
        }
    }

    pub fn is_lower(self) -> bool {
        matches!(self, RangeBound::Greater | RangeBound::GreaterOrEqual)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeywordsMode {
    #[default]
    Or,
    /// All keywords are needed, in any fields.
    And,
}

/// `sort`: one top-level field and a direction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The field's name, with its dots.
    pub field: String,
    /// Whether the order is reversed. Values that cannot be sorted still come last.
    pub descending: bool,
}

/// The parameters of a read, with defaults applied. Fields stand in the order of docs/reference/query-semantics.md,
/// Steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    pub include_source: bool,
    pub denull: bool,
    /// `keep_field`; empty keeps everything.
    pub keep: Vec<Path>,
    pub drop: Vec<Path>,
    pub filters: Vec<PathValue>,
    pub filters_contain: Vec<PathValue>,
    /// `filter_gt`, `filter_gte`, `filter_lt`, `filter_lte`, in the order of [`RangeBound::ALL`]: all must match.
    pub ranges: [Vec<PathValue>; RangeBound::ALL.len()],
    /// `keywords`, trimmed and none empty; none is no step.
    pub keywords: Vec<String>,
    pub keywords_mode: KeywordsMode,
    pub sort: Option<Sort>,
    pub dedup: bool,
    /// `dedup_key`; none is the whole entity without `_source`.
    pub dedup_key: Vec<Path>,
    pub sample: Option<u64>,
    /// `seed` of `sample`; `None` draws anew each time.
    pub seed: Option<u64>,
    pub offset: u64,
    /// `limit`: most entities returned; `None` is all.
    pub limit: Option<u64>,
    /// `flatten`; tables are flattened without it.
    pub flatten: bool,
    pub format: Format,
    pub typed: bool,
    pub pretty: bool,
    /// `count`: answer only the number of entities.
    pub count: bool,
    /// `alt`, or the path suffix `/alt/`.
    pub alt: bool,
    /// `strict`: refuse unknown parameters and fields. Does not change an answer.
    pub strict: bool,
    /// `total`: tell how many entities match. Does not change the body.
    pub total: bool,
}

impl ReadRequest {
    /// One form for all requests that ask for the same: parameters without an effect are reset, and lists of which all
    /// must match are sorted.
    pub fn canonical(&self) -> ReadRequest {
        let mut canonical = ReadRequest { strict: false, ..self.clone() };
        let in_order = |conditions: &mut Vec<PathValue>| {
            conditions.sort_unstable_by_key(|condition| (condition.path.keys().to_vec(), condition.value.clone()));
            conditions.dedup();
        };
        in_order(&mut canonical.filters);
        in_order(&mut canonical.filters_contain);
        canonical.ranges.iter_mut().for_each(in_order);
        canonical.keywords.sort_unstable();
        canonical.keywords.dedup();
        if canonical.keywords.len() < 2 {
            canonical.keywords_mode = KeywordsMode::Or;
        }
        if !canonical.dedup {
            canonical.dedup_key.clear();
        }
        if canonical.count {
            // A count has no format of its own, and no order.
            canonical.format = Format::Json;
            canonical.flatten = false;
        } else if canonical.format != Format::Json {
            canonical.pretty = true;
            canonical.flatten |= canonical.format.is_table();
        }
        canonical.typed &= canonical.format == Format::Parquet;
        canonical
    }

    /// Whether an answer holds entities with all that they have, as it is stored.
    pub fn shows_whole_entities(&self) -> bool {
        let ReadRequest { include_source, denull, keep, drop, flatten, format, .. } = self;
        let is_json = matches!(format, Format::Json | Format::Jsonl);
        *include_source && !denull && keep.is_empty() && drop.is_empty() && !flatten && is_json
    }

    pub fn has_conditions(&self) -> bool {
        let ReadRequest { filters, filters_contain, ranges, keywords, .. } = self;
        !(filters.is_empty() && filters_contain.is_empty() && ranges.iter().all(Vec::is_empty) && keywords.is_empty())
    }

    pub fn names_paths(&self) -> bool {
        let ReadRequest { keep, drop, filters, filters_contain, ranges, sort, dedup_key, .. } = self;
        let compared = !(filters.is_empty() && filters_contain.is_empty() && ranges.iter().all(Vec::is_empty));
        compared || sort.is_some() || !(keep.is_empty() && drop.is_empty() && dedup_key.is_empty())
    }

    pub fn ranges(&self) -> impl Iterator<Item = (RangeBound, &PathValue)> {
        let of_each = RangeBound::ALL.into_iter().zip(&self.ranges);
        of_each.flat_map(|(bound, conditions)| conditions.iter().map(move |condition| (bound, condition)))
    }

    /// The request whose count is how many entities the steps before `sample` leave.
    pub fn matching(&self) -> ReadRequest {
        let all = ReadRequest { sort: None, sample: None, seed: None, offset: 0, limit: None, ..self.clone() };
        // As it is by default: whoever asks for the count has that form in mind, or another key.
        ReadRequest { count: true, total: false, pretty: true, ..all }.canonical()
    }

    /// Whether every answer is another one: a sample that no seed determines.
    pub fn is_drawn_anew(&self) -> bool {
        self.sample.is_some() && self.seed.is_none()
    }

    /// How many entities the steps before `sample` leave, where an answer of so many tells.
    pub fn matches_told_by(&self, found: u64) -> Option<u64> {
        let is_cut = self.limit.is_some_and(|limit| found >= limit);
        if is_cut || (found == 0 && self.offset > 0) {
            return None;
        }
        let left = self.offset.checked_add(found)?;
        self.sample.is_none_or(|sample| left < sample).then_some(left)
    }

    /// The paths that the request names, each with its parameter, in the order of docs/reference/query-semantics.md,
    /// Steps.
    pub fn named_paths(&self) -> Vec<(&'static str, Path)> {
        let listed =
            |name: &'static str, paths: &[Path]| -> Vec<_> { paths.iter().map(|path| (name, path.clone())).collect() };
        let compared = |name: &'static str, conditions: &[PathValue]| -> Vec<_> {
            conditions.iter().map(|condition| (name, condition.path.clone())).collect()
        };
        let ranges = self.ranges().map(|(bound, condition)| (bound.parameter(), condition.path.clone()));
        let sort = self.sort.as_ref().and_then(|sort| Path::from_keys([sort.field.as_str()]).ok());
        [
            listed("keep_field", &self.keep),
            listed("drop_field", &self.drop),
            compared("filter", &self.filters),
            compared("filter_contains", &self.filters_contain),
            ranges.collect(),
            sort.map(|path| ("sort", path)).into_iter().collect(),
            listed("dedup_key", &self.dedup_key),
        ]
        .concat()
    }

    /// The parameters that differ from their defaults, in the order of docs/reference/query-semantics.md, Steps, as
    /// they could stand in a query string before it is encoded.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let plain = ReadRequest::default();
        let mut given = Vec::new();
        let mut add = |name, differs: bool, value: String| {
            if differs {
                given.push((name, value));
            }
        };
        add("include_source", self.include_source != plain.include_source, self.include_source.to_string());
        add("denull", self.denull != plain.denull, self.denull.to_string());
        add("keep_field", !self.keep.is_empty(), Path::list(&self.keep));
        add("drop_field", !self.drop.is_empty(), Path::list(&self.drop));
        let mut add_condition =
            |name, PathValue { path, value }: &PathValue| add(name, true, format!("{path}:{value}"));
        self.filters.iter().for_each(|condition| add_condition("filter", condition));
        self.filters_contain.iter().for_each(|condition| add_condition("filter_contains", condition));
        self.ranges().for_each(|(bound, condition)| add_condition(bound.parameter(), condition));
        add("keywords", !self.keywords.is_empty(), self.keywords.join(","));
        add("keywords_mode", self.keywords_mode == KeywordsMode::And, "and".to_owned());
        if let Some(Sort { field, descending }) = &self.sort {
            add("sort", true, format!("{field}:{}", if *descending { "desc" } else { "asc" }));
        }
        add("dedup", self.dedup, self.dedup.to_string());
        add("dedup_key", !self.dedup_key.is_empty(), Path::list(&self.dedup_key));
        add("sample", self.sample.is_some(), self.sample.unwrap_or_default().to_string());
        add("seed", self.seed.is_some(), self.seed.unwrap_or_default().to_string());
        add("offset", self.offset != plain.offset, self.offset.to_string());
        add("limit", self.limit.is_some(), self.limit.unwrap_or_default().to_string());
        add("flatten", self.flatten, self.flatten.to_string());
        add("format", self.format != plain.format, self.format.name().to_owned());
        add("typed", self.typed, self.typed.to_string());
        add("pretty", self.pretty != plain.pretty, self.pretty.to_string());
        add("count", self.count, self.count.to_string());
        add("alt", self.alt, self.alt.to_string());
        add("strict", self.strict, self.strict.to_string());
        add("total", self.total, self.total.to_string());
        given
    }
}

impl Default for ReadRequest {
    fn default() -> Self {
        ReadRequest {
            include_source: true,
            denull: false,
            keep: Vec::new(),
            drop: Vec::new(),
            filters: Vec::new(),
            filters_contain: Vec::new(),
            ranges: Default::default(),
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
            format: Format::Json,
            typed: false,
            pretty: true,
            count: false,
            alt: false,
            strict: false,
            total: false,
        }
    }
}
