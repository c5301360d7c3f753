//! The pages beside an answer (docs/reference/query-semantics.md, Pages).

use strata_types::request::ReadRequest;

/// The relations and the query strings of the links of an answer with so many entities to a request that was sent as
/// `query`.
pub fn pages(query: &str, request: &ReadRequest, returned: u64) -> Vec<(&'static str, String)> {
    let mut found = Vec::new();
    if request.count || (request.sample.is_some() && request.seed.is_none()) {
        return found;
    }
    if let Some(limit) = request.limit.filter(|limit| *limit != 0 && *limit == returned) {
        found.push(("next", at(query, request.offset.saturating_add(limit))));
    }
    if request.offset != 0 {
        let offset = request.limit.map_or(0, |limit| request.offset.saturating_sub(limit));
        found.push(("prev", at(query, offset)));
    }
    found
}

/// The query with this offset: where one stood, or last.
fn at(query: &str, offset: u64) -> String {
    let offset = format!("offset={offset}");
    let mut parameters: Vec<&str> = query.split('&').filter(|parameter| !parameter.is_empty()).collect();
    match parameters.iter().position(|parameter| parameter.starts_with("offset=")) {
        Some(place) => parameters[place] = &offset,
        None => parameters.push(&offset),
    }
    parameters.join("&")
}
