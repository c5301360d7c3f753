//! The page links of a response (docs/reference/query-semantics.md, Pages).

use strata_types::read_request::ReadRequest;

/// Returns the relations and query strings of the links in the response to `query` that returned `returned` entities.
pub fn pages(query: &str, request: &ReadRequest, returned: u64) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if request.count || (request.sample.is_some() && request.seed.is_none()) {
        return found;
    }
    if let Some(limit) = request.limit.filter(|limit| *limit != 0 && *limit == returned) {
        found.push(("next", with_offset(query, request.offset.saturating_add(limit))));
    }
    if request.offset != 0 {
        let offset = request.limit.map_or(0, |limit| request.offset.saturating_sub(limit));
        found.push(("prev", with_offset(query, offset)));
    }
    found
}

/// Returns the query with this offset, in place of an existing offset or at the end.
fn with_offset(query: &str, offset: u64) -> String {
    let offset = format!("offset={offset}");
    let mut parameters: Vec<&str> = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
    match parameters.iter().position(|parameter| parameter.starts_with("offset=")) {
        Some(place) => parameters[place] = &offset,
        None => parameters.push(&offset),
    }
    parameters.join("&")
}
