//! The query string of a page. The links on the page are derived from it.

use std::collections::HashSet;
use std::fmt;

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_http::error::HttpError;
use strata_http::page_support::quote_for_page;

/// Percent-encodes every character that is special in a query string, in shell quotes, or in program code.
const QUERY_ESCAPE_SET: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b',').remove(b'/');

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Parses the query string of a URL. Pairs without name and value are skipped.
    pub(super) fn parse(text: Option<&str>) -> QueryParams {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned();
        QueryParams(pairs.filter(|(name, value)| !(name.is_empty() && value.is_empty())).collect())
    }

    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    /// Returns the value of a parameter; 400 if it is repeated.
    pub(super) fn single(&self, name: &str) -> Result<Option<&str>, HttpError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(second)) => {
                Err(invalid_parameter_error(name, second, "is a second value", &format!("{name} given at most once")))
            }
        }
    }

    /// Returns the value of a numeric parameter; 400 if it is not a `u64`.
    pub(super) fn parse_number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let Some(text) = self.single(name)? else { return Ok(None) };
        let number = parse_whole_number(text);
        let problem = if number.is_some() { "is too large" } else { "is not a whole number" };
        let valid = format!("decimal digits only, from 0 to {}", u64::MAX);
        let parsed = number.and_then(|_| text.parse().ok());
        parsed.map(Some).ok_or_else(|| invalid_parameter_error(name, text, problem, &valid))
    }

    /// Returns the value of a parameter if it is one of `values`; 400 otherwise.
    pub(super) fn parse_choice(&self, name: &str, values: &[&str]) -> Result<Option<&str>, HttpError> {
        match self.single(name)? {
            Some(text) if !values.contains(&text) => {
                Err(invalid_parameter_error(name, text, "is not valid", &values.join(", ")))
            }
            value => Ok(value),
        }
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.first(name).is_some_and(is_true_value)
    }

    pub(super) fn names_except(&self, names: &[&str]) -> Vec<&str> {
        let mut seen: HashSet<&str> = names.iter().copied().collect();
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| seen.insert(name)).collect()
    }

    pub(super) fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    pub(super) fn with_replaced(&self, name: &str, value: impl ToString) -> QueryParams {
        self.without(&[name]).with_added(name, value)
    }

    pub(super) fn with_added(mut self, name: &str, value: impl ToString) -> QueryParams {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn with_optional(self, name: &str, value: Option<impl ToString>) -> QueryParams {
        if let Some(value) = value { self.with_added(name, value) } else { self }
    }

    pub(super) fn without(&self, names: &[&str]) -> QueryParams {
        QueryParams(self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect())
    }

    pub(super) fn without_index(&self, index: usize) -> QueryParams {
        let mut query = self.clone();
        query.0.remove(index);
        query
    }

    pub(super) fn replace_pairs(&self, other: impl Fn(&str, &str) -> Option<(String, String)>) -> QueryParams {
        QueryParams(self.0.iter().map(|pair| other(&pair.0, &pair.1).unwrap_or_else(|| pair.clone())).collect())
    }

    pub(super) fn to_url(&self, path: &str) -> String {
        if self.0.is_empty() { path.to_owned() } else { format!("{path}?{self}") }
    }
}

impl FromIterator<(String, String)> for QueryParams {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        QueryParams(pairs.into_iter().collect())
    }
}

impl fmt::Display for QueryParams {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.0.iter().enumerate() {
            let separator = if index > 0 { "&" } else { "" };
            let name = utf8_percent_encode(name, QUERY_ESCAPE_SET);
            write!(formatter, "{separator}{name}={}", utf8_percent_encode(value, QUERY_ESCAPE_SET))?;
        }
        Ok(())
    }
}

/// Parses a number that consists of decimal digits only. Returns `u64::MAX` for larger numbers.
pub(super) fn parse_whole_number(text: &str) -> Option<u64> {
    let has_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    has_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Returns whether reads interpret a boolean parameter value as true.
pub(super) fn is_true_value(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

pub(super) fn invalid_parameter_error(name: &str, value: &str, problem: &str, valid: &str) -> HttpError {
    let text = invalid_parameter_text(name, value, problem, valid);
    HttpError::InvalidRequest { status: StatusCode::BAD_REQUEST, text }
}

pub(super) fn invalid_parameter_text(name: &str, value: &str, problem: &str, valid: &str) -> String {
    format!("Invalid query: parameter {name}: {} {problem}; valid: {valid}.", quote_for_page(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_is_escaped_and_keeps_its_order() {
        let query = QueryParams::parse(Some("filter=a:1&&filter=b%26:%22'&offset=3&x=%F0%9F%A6%80+%3c"));
        assert_eq!(query.to_string(), "filter=a:1&filter=b%26:%22%27&offset=3&x=%F0%9F%A6%80%20%3C");
        assert_eq!(
            query.with_replaced("offset", 7).to_string(),
            "filter=a:1&filter=b%26:%22%27&x=%F0%9F%A6%80%20%3C&offset=7"
        );
        assert_eq!(query.without_index(0).first("filter"), Some("b&:\"'"));
        assert_eq!(query.without(&["filter", "x"]).to_url("/a"), "/a?offset=3");
        assert_eq!(QueryParams::parse(None).to_url("/a"), "/a");
        let hostile: String = (0..=255u8).map(char::from).collect();
        let text = QueryParams::default().with_added("a", &hostile).to_string();
        assert!(!text.contains(['\'', '"', '\\', '$', '`', '<', '>', ' ', '\n', '{']), "{text}");
        assert_eq!(QueryParams::parse(Some(&text)).first("a"), Some(hostile.as_str()));
    }
}
