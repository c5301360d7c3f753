//! The query string of a page, from which its links are derived.

use std::collections::HashSet;
use std::fmt;

use axum::http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_http::error::HttpError;
use strata_http::visit::quoted;

/// All characters that are special in a query string, in a shell's quotes, or in programs.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':').remove(b',').remove(b'/');

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the query string of a URL, without pairs that have neither name nor value.
    pub(super) fn parse(text: Option<&str>) -> Query {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes()).into_owned();
        Query(pairs.filter(|(name, value)| !(name.is_empty() && value.is_empty())).collect())
    }

    pub(super) fn first(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The value of a parameter of a page; 400 for a second one.
    pub(super) fn once(&self, name: &str) -> Result<Option<&str>, HttpError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(second)) => Err(invalid(name, second, "is a second value", &format!("{name} given at most once"))),
        }
    }

    /// A number of a parameter of a page; 400 for anything else.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let Some(text) = self.once(name)? else { return Ok(None) };
        let number = whole_number(text);
        let problem = if number.is_some() { "is too large" } else { "is not a whole number" };
        let valid = format!("decimal digits only, from 0 to {}", u64::MAX);
        number.and_then(|_| text.parse().ok()).map(Some).ok_or_else(|| invalid(name, text, problem, &valid))
    }

    /// A parameter of a page that has one of these values; 400 for any other.
    pub(super) fn one_of(&self, name: &str, values: &[&str]) -> Result<Option<&str>, HttpError> {
        match self.once(name)? {
            Some(text) if !values.contains(&text) => Err(invalid(name, text, "is not valid", &values.join(", "))),
            given => Ok(given),
        }
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.first(name).is_some_and(is_true)
    }

    /// All other names, each once.
    pub(super) fn others(&self, names: &[&str]) -> Vec<&str> {
        let mut seen: HashSet<&str> = names.iter().copied().collect();
        self.0.iter().map(|(name, _)| name.as_str()).filter(|name| seen.insert(name)).collect()
    }

    pub(super) fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.0.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Replaces all values of a name.
    pub(super) fn with(&self, name: &str, value: impl ToString) -> Query {
        self.without(&[name]).and(name, value)
    }

    pub(super) fn and(mut self, name: &str, value: impl ToString) -> Query {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn without(&self, names: &[&str]) -> Query {
        Query(self.0.iter().filter(|(name, _)| !names.contains(&name.as_str())).cloned().collect())
    }

    pub(super) fn without_place(&self, place: usize) -> Query {
        let mut query = self.clone();
        query.0.remove(place);
        query
    }

    /// Replaces the pairs for which `other` returns one.
    pub(super) fn mapped(&self, other: impl Fn(&str, &str) -> Option<(String, String)>) -> Query {
        Query(self.0.iter().map(|pair| other(&pair.0, &pair.1).unwrap_or_else(|| pair.clone())).collect())
    }

    /// The URL of a path with this query string.
    pub(super) fn at(&self, path: &str) -> String {
        if self.0.is_empty() { path.to_owned() } else { format!("{path}?{self}") }
    }
}

impl FromIterator<(String, String)> for Query {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Query(pairs.into_iter().collect())
    }
}

impl fmt::Display for Query {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, value)) in self.0.iter().enumerate() {
            let separator = if place > 0 { "&" } else { "" };
            let name = utf8_percent_encode(name, ESCAPED);
            write!(formatter, "{separator}{name}={}", utf8_percent_encode(value, ESCAPED))?;
        }
        Ok(())
    }
}

/// A number of decimal digits only; the largest one where it is larger.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    let has_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    has_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Whether reads take the value of a parameter as true.
pub(super) fn is_true(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("true")
}

/// The error for an invalid value of a parameter, in the words of reads.
pub(super) fn invalid(name: &str, value: &str, problem: &str, valid: &str) -> HttpError {
    HttpError::Invalid { status: StatusCode::BAD_REQUEST, text: invalid_text(name, value, problem, valid) }
}

pub(super) fn invalid_text(name: &str, value: &str, problem: &str, valid: &str) -> String {
    format!("Invalid query: parameter {name}: {} {problem}; valid: {valid}.", quoted(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_string_is_escaped_and_keeps_its_order() {
        let query = Query::parse(Some("filter=a:1&&filter=b%26:%22'&offset=3&x=%F0%9F%A6%80+%3c"));
        assert_eq!(query.to_string(), "filter=a:1&filter=b%26:%22%27&offset=3&x=%F0%9F%A6%80%20%3C");
        assert_eq!(query.with("offset", 7).to_string(), "filter=a:1&filter=b%26:%22%27&x=%F0%9F%A6%80%20%3C&offset=7");
        assert_eq!(query.without_place(0).first("filter"), Some("b&:\"'"));
        assert_eq!(query.without(&["filter", "x"]).at("/a"), "/a?offset=3");
        assert_eq!(Query::parse(None).at("/a"), "/a");
        let hostile: String = (0..=255u8).map(char::from).collect();
        let text = Query::default().and("a", &hostile).to_string();
        assert!(!text.contains(['\'', '"', '\\', '$', '`', '<', '>', ' ', '\n', '{']), "{text}");
        assert_eq!(Query::parse(Some(&text)).first("a"), Some(hostile.as_str()));
    }
}
