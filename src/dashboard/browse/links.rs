//! The paths of pages that a page of entities leads to.

use strata_types::path::Path;

use super::{COLUMNS, VIEW};
use crate::query::Query;
use crate::urls::Place;

pub(super) const FILTER: &str = "filter";

/// The parts of a condition that the form adds.
pub(super) const ADD_PATH: &str = "add_path";
pub(super) const ADD_OPERATOR: &str = "add_operator";
pub(super) const ADD_VALUE: &str = "add_value";

const ADD_ANCHOR: &str = "#add_value";

/// Bytes of a query string that links to fields and columns repeat: there are hundreds of them.
const REPEATED_BYTES: usize = 1_024;

/// Bytes of a query string that a few links repeat, such as those to the query without one of its first parts.
const FEW_REPEATED_BYTES: usize = 4_096;

/// The link that counts all matches, for the visitor or the script.
pub(super) struct Counting {
    pub(super) page: String,
    pub(super) call: String,
    pub(super) limit: u64,
}

pub(super) struct Links<'a> {
    pub(super) place: &'a Place,
    /// The page's query string without parameters that only the form has.
    pub(super) query: Query,
    /// The filters among the pairs of the query; empty if no link repeats them.
    filters: Vec<Option<(Path, String)>>,
    /// Whether the query is short enough for links to columns, fields and other conditions.
    repeated: bool,
    few_repeated: bool,
}

impl<'a> Links<'a> {
    pub(super) fn new(place: &'a Place, query: Query, text: Option<&str>) -> Links<'a> {
        let bytes = text.unwrap_or_default().len();
        let repeated = bytes <= REPEATED_BYTES;
        let filter = |(name, given): &(String, String)| {
            let (path, value) = Path::parse_prefix(given).ok().filter(|_| name == FILTER)?;
            Some((path, value.to_owned()))
        };
        let filters = if repeated { query.pairs().iter().map(filter).collect() } else { Vec::new() };
        Links { place, query, filters, repeated, few_repeated: bytes <= FEW_REPEATED_BYTES }
    }

    pub(super) fn here(&self, query: &Query) -> String {
        query.at(&self.place.browse())
    }

    /// The first page of another query, if a few links can repeat it.
    pub(super) fn beginning_of(&self, query: &Query) -> Option<String> {
        self.few_repeated.then(|| self.here(&query.without(&["offset"])))
    }

    pub(super) fn with_condition(&self, name: &str, value: &str) -> Option<String> {
        self.repeated.then(|| self.here(&self.query.without(&["offset"]).and(name, value)))
    }

    /// The first page with this filter instead of those of the same path.
    pub(super) fn with_filter_alone(&self, path: &Path, value: &str) -> Option<String> {
        let is_other = |filter: &Option<(Path, String)>| filter.as_ref().is_none_or(|(other, _)| other != path);
        let pairs = self.query.pairs().iter().zip(&self.filters);
        let others = pairs.filter(|(_, filter)| is_other(filter)).map(|(pair, _)| pair.clone());
        let query = Query::from_iter(others).without(&["offset"]).and(FILTER, format!("{path}:{value}"));
        self.repeated.then(|| self.here(&query))
    }

    pub(super) fn has_filter(&self, path: &Path, value: &str) -> bool {
        self.filters.iter().flatten().any(|(filtered, by)| filtered == path && by == value)
    }

    /// This page with a condition begun in the form.
    pub(super) fn with_begun(&self, path: &str, operator: &str) -> Option<String> {
        let query = self.query.without(&["offset"]).and(ADD_PATH, path).and(ADD_OPERATOR, operator);
        self.repeated.then(|| self.here(&query) + ADD_ANCHOR)
    }

    pub(super) fn counting(&self, limit: u64) -> Counting {
        // These parameters do not change the count, so its cache key must not contain them.
        let count =
            self.query.without(&[VIEW, COLUMNS, "format", "typed", "pretty", "sort", "offset", "limit", "total"]);
        Counting {
            page: self.here(&self.query.with("total", true)),
            call: count.and("count", true).at(&self.place.page("download")),
            limit,
        }
    }

    pub(super) fn sorted_field(&self) -> Option<&str> {
        let sort = self.query.first("sort")?;
        Some(sort.strip_suffix(":asc").or_else(|| sort.strip_suffix(":desc")).unwrap_or(sort))
    }

    pub(super) fn sorted(&self, field: &str, direction: &str) -> Option<String> {
        let query = self.query.without(&["offset"]).with("sort", format!("{field}:{direction}"));
        self.repeated.then(|| self.here(&query))
    }
}
