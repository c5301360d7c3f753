//! The request of one read, after parsing and before anything is resolved: plain data, no I/O.

use super::path::Path;

/// The serialization of a response (docs/semantics.md, Formats).
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

    /// The names of all, in the same order.
    pub const NAMES: [&str; 6] = {
        let mut names = [""; Format::ALL.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Format::ALL[index].name();
            index += 1;
        }
        names
    };

    /// The name in a URL, which is also the file name extension.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Xml => "xml",
            Format::Parquet => "parquet",
        }
    }

    /// The `Content-Type` of a body, exactly as docs/semantics.md, Content types and file names, writes it.
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

/// A path and the text with which its values are compared (`filter`, `filter_contains`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PathValue {
    /// The path.
    pub path: Path,
    /// The value as it came, not folded.
    pub value: String,
}

/// How several keywords combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KeywordsMode {
    /// Any keyword is enough.
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

/// The parameters of a read, with defaults applied. Fields stand in the order of docs/semantics.md, Steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// `include_source`.
    pub include_source: bool,
    /// `denull`.
    pub denull: bool,
    /// `keep_field`; empty keeps everything.
    pub keep: Vec<Path>,
    /// `drop_field`.
    pub drop: Vec<Path>,
    /// `filter`: all must match.
    pub filters: Vec<PathValue>,
    /// `filter_contains`: all must match.
    pub filters_contain: Vec<PathValue>,
    /// `keywords`, trimmed and none empty; none is no step.
    pub keywords: Vec<String>,
    /// `keywords_mode`.
    pub keywords_mode: KeywordsMode,
    /// `sort`.
    pub sort: Option<Sort>,
    /// `dedup`.
    pub dedup: bool,
    /// `dedup_key`; none is the whole entity without `_source`.
    pub dedup_key: Vec<Path>,
    /// `sample`.
    pub sample: Option<u64>,
    /// `offset`: entities skipped.
    pub offset: u64,
    /// `limit`: most entities returned; `None` is all.
    pub limit: Option<u64>,
    /// `flatten`; tables are flattened without it.
    pub flatten: bool,
    /// `format`.
    pub format: Format,
    /// `pretty`: indented JSON.
    pub pretty: bool,
    /// `count`: answer only the number of entities.
    pub count: bool,
    /// `alt`, or the path suffix `/alt/`.
    pub alt: bool,
    /// `strict`: refuse unknown parameters and fields. Does not change an answer.
    pub strict: bool,
}

impl ReadRequest {
    /// One form for all requests that ask for the same: parameters without an effect are reset, and lists of which all
    /// must match are sorted.
    pub fn canonical(&self) -> ReadRequest {
        let mut canonical = ReadRequest { strict: false, ..self.clone() };
        let in_order = |conditions: &mut Vec<PathValue>| {
            conditions.sort_unstable_by(|one, other| {
                let key = |condition: &PathValue| (condition.path.keys().to_vec(), condition.value.clone());
                key(one).cmp(&key(other))
            });
            conditions.dedup();
        };
        in_order(&mut canonical.filters);
        in_order(&mut canonical.filters_contain);
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
        canonical
    }

    /// The paths that the request names, each with the parameter that names it, in the order of docs/semantics.md,
    /// Steps.
    pub fn named_paths(&self) -> Vec<(&'static str, Path)> {
        let listed =
            |name: &'static str, paths: &[Path]| -> Vec<_> { paths.iter().map(|path| (name, path.clone())).collect() };
        let compared = |name: &'static str, conditions: &[PathValue]| -> Vec<_> {
            conditions.iter().map(|condition| (name, condition.path.clone())).collect()
        };
        let sort = self.sort.as_ref().and_then(|sort| Path::from_keys([sort.field.as_str()]).ok());
        [
            listed("keep_field", &self.keep),
            listed("drop_field", &self.drop),
            compared("filter", &self.filters),
            compared("filter_contains", &self.filters_contain),
            sort.map(|path| ("sort", path)).into_iter().collect(),
            listed("dedup_key", &self.dedup_key),
        ]
        .concat()
    }

    /// The parameters that differ from their defaults, in the order of docs/semantics.md, Steps, as they could stand in
    /// a query string before it is encoded.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let plain = ReadRequest::default();
        let mut given = Vec::new();
        let mut add = |name, differs: bool, value: String| {
            if differs {
                given.push((name, value));
            }
        };
        let list = |paths: &[Path]| paths.iter().map(Path::to_string).collect::<Vec<_>>().join(",");
        add("include_source", self.include_source != plain.include_source, self.include_source.to_string());
        add("denull", self.denull != plain.denull, self.denull.to_string());
        add("keep_field", !self.keep.is_empty(), list(&self.keep));
        add("drop_field", !self.drop.is_empty(), list(&self.drop));
        for (name, conditions) in [("filter", &self.filters), ("filter_contains", &self.filters_contain)] {
            conditions.iter().for_each(|condition| add(name, true, format!("{}:{}", condition.path, condition.value)));
        }
        add("keywords", !self.keywords.is_empty(), self.keywords.join(","));
        add("keywords_mode", self.keywords_mode == KeywordsMode::And, "and".to_owned());
        if let Some(Sort { field, descending }) = &self.sort {
            add("sort", true, format!("{field}:{}", if *descending { "desc" } else { "asc" }));
        }
        add("dedup", self.dedup, self.dedup.to_string());
        add("dedup_key", !self.dedup_key.is_empty(), list(&self.dedup_key));
        add("sample", self.sample.is_some(), self.sample.unwrap_or_default().to_string());
        add("offset", self.offset != plain.offset, self.offset.to_string());
        add("limit", self.limit.is_some(), self.limit.unwrap_or_default().to_string());
        add("flatten", self.flatten, self.flatten.to_string());
        add("format", self.format != plain.format, self.format.name().to_owned());
        add("pretty", self.pretty != plain.pretty, self.pretty.to_string());
        add("count", self.count, self.count.to_string());
        add("alt", self.alt, self.alt.to_string());
        add("strict", self.strict, self.strict.to_string());
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
            keywords: Vec::new(),
            keywords_mode: KeywordsMode::Or,
            sort: None,
            dedup: false,
            dedup_key: Vec::new(),
            sample: None,
            offset: 0,
            limit: None,
            flatten: false,
            format: Format::Json,
            pretty: true,
            count: false,
            alt: false,
            strict: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_effect_is_not_told_apart() {
        let plain = ReadRequest { format: Format::Csv, ..ReadRequest::default() };
        let same = [
            ReadRequest { pretty: false, ..plain.clone() },
            ReadRequest { flatten: true, ..plain.clone() },
            ReadRequest { keywords_mode: KeywordsMode::And, ..plain.clone() },
            ReadRequest { strict: true, ..plain.clone() },
        ];
        for request in same {
            assert_eq!(request.canonical(), plain.canonical(), "{request:?}");
        }
        let words = |words: [&str; 2]| ReadRequest { keywords: words.map(str::to_owned).into(), ..plain.clone() };
        assert_eq!(words(["a", "b"]).canonical(), words(["b", "a"]).canonical());
    }

    #[test]
    fn what_has_an_effect_is() {
        let plain = ReadRequest::default();
        let others = [
            ReadRequest { pretty: false, ..plain.clone() },
            ReadRequest { flatten: true, ..plain.clone() },
            ReadRequest { format: Format::Xml, ..plain.clone() },
            ReadRequest { count: true, ..plain.clone() },
            ReadRequest { alt: true, ..plain.clone() },
            ReadRequest { offset: 1, ..plain.clone() },
            ReadRequest { limit: Some(1), ..plain.clone() },
            ReadRequest { dedup: true, ..plain.clone() },
        ];
        for request in others {
            assert_ne!(request.canonical(), plain.canonical(), "{request:?}");
        }
    }
}
