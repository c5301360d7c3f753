//! The links on a page of entities, which repeat its query with one change.

use strata_types::field_path::FieldPath;

use super::{COLUMNS_PARAM, VIEW_PARAM};
use crate::query_params::QueryParams;
use crate::urls::VersionUrls;

pub(super) const FILTER_PARAM: &str = "filter";
pub(super) const ADD_PATH_PARAM: &str = "add_path";
pub(super) const ADD_OPERATOR_PARAM: &str = "add_operator";
pub(super) const ADD_VALUE_PARAM: &str = "add_value";
const ADD_VALUE_ANCHOR: &str = "#add_value";

/// The maximum length of a query that the links to fields and columns repeat. A page has hundreds of these links.
const MAX_REPEATED_QUERY_BYTES: usize = 1_024;

const MAX_RARELY_REPEATED_QUERY_BYTES: usize = 4_096;

/// A link that counts all matches of a query. The page's script requests `call`; without scripts, `page` shows it.
pub(super) struct CountLink {
    pub(super) page: String,
    pub(super) call: String,
    pub(super) limit: u64,
}

pub(super) struct BrowseLinks<'a> {
    pub(super) urls: &'a VersionUrls,
    pub(super) query: QueryParams,
    /// For each parameter of the query, its path and value if it is a filter. Empty if `can_repeat_query` is false.
    filters: Vec<Option<(FieldPath, String)>>,
    can_repeat_query: bool,
    can_repeat_query_in_few_links: bool,
}

impl<'a> BrowseLinks<'a> {
    pub(super) fn new(urls: &'a VersionUrls, query: QueryParams, query_string: Option<&str>) -> BrowseLinks<'a> {
        let bytes = query_string.unwrap_or_default().len();
        let can_repeat_query = bytes <= MAX_REPEATED_QUERY_BYTES;
        let can_repeat_query_in_few_links = bytes <= MAX_RARELY_REPEATED_QUERY_BYTES;
        let filter = |(name, condition): &(String, String)| {
            let (path, value) = FieldPath::parse_path_value(condition).ok().filter(|_| name == FILTER_PARAM)?;
            Some((path, value.to_owned()))
        };
        let filters = if can_repeat_query { query.pairs().iter().map(filter).collect() } else { Vec::new() };
        BrowseLinks { urls, query, filters, can_repeat_query, can_repeat_query_in_few_links }
    }

    pub(super) fn page_url(&self, query: &QueryParams) -> String {
        query.to_url(&self.urls.browse_url())
    }

    /// Returns the URL of the first page of `query`; `None` if the query is too long.
    pub(super) fn first_page_url(&self, query: &QueryParams) -> Option<String> {
        self.can_repeat_query_in_few_links.then(|| self.page_url(&query.without(&["offset"])))
    }

    pub(super) fn condition_url(&self, name: &str, value: &str) -> Option<String> {
        self.can_repeat_query.then(|| self.page_url(&self.query.without(&["offset"]).with_added(name, value)))
    }

    /// Returns the URL of the first page with this filter instead of other filters of the same path.
    pub(super) fn url_with_replaced_filter(&self, path: &FieldPath, value: &str) -> Option<String> {
        let is_other = |filter: &Option<(FieldPath, String)>| filter.as_ref().is_none_or(|(other, _)| other != path);
        let pairs = self.query.pairs().iter().zip(&self.filters);
        let others = pairs.filter(|(_, filter)| is_other(filter)).map(|(pair, _)| pair.clone());
        let query =
            QueryParams::from_iter(others).without(&["offset"]).with_added(FILTER_PARAM, format!("{path}:{value}"));
        self.can_repeat_query.then(|| self.page_url(&query))
    }

    pub(super) fn has_filter(&self, path: &FieldPath, value: &str) -> bool {
        self.filters.iter().flatten().any(|(filtered, filter_value)| filtered == path && filter_value == value)
    }

    pub(super) fn draft_condition_url(&self, path: &str, operator: &str) -> Option<String> {
        let query =
            self.query.without(&["offset"]).with_added(ADD_PATH_PARAM, path).with_added(ADD_OPERATOR_PARAM, operator);
        self.can_repeat_query.then(|| self.page_url(&query) + ADD_VALUE_ANCHOR)
    }

    pub(super) fn count_link(&self, limit: u64) -> CountLink {
        // The parameters of presentation and paging do not change the count, so the cache key must not contain them.
        let omitted = [VIEW_PARAM, COLUMNS_PARAM, "format", "typed", "pretty", "sort", "offset", "limit", "total"];
        CountLink {
            page: self.page_url(&self.query.with_replaced("total", true)),
            call: self.query.without(&omitted).with_added("count", true).to_url(&self.urls.page_url("download")),
            limit,
        }
    }

    pub(super) fn sorted_field(&self) -> Option<&str> {
        let sort = self.query.first("sort")?;
        Some(sort.strip_suffix(":asc").or_else(|| sort.strip_suffix(":desc")).unwrap_or(sort))
    }

    pub(super) fn sort_url(&self, field: &str, direction: &str) -> Option<String> {
        let query = self.query.without(&["offset"]).with_replaced("sort", format!("{field}:{direction}"));
        self.can_repeat_query.then(|| self.page_url(&query))
    }
}
