//! Query strings of management calls.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::DATASET_ID;
use crate::http::endpoint::{Endpoint, names};
use crate::http::error::CallError;
use crate::http::params;
use crate::http::text::quoted;
use crate::http::values::{boolean, positive};
use crate::model::ids::DatasetId;
use crate::model::version::{VERSION_FORM, VersionSelector};
use crate::service::App;

/// The parameters of a call. To take one that is not listed is a mistake of the program, and panics where debug
/// assertions are on.
pub(super) struct Query {
    parameters: Vec<(String, String)>,
    /// The names of those that are the endpoint's own.
    listed: Vec<&'static str>,
}

/// The query string of a call, whose parameters are taken once their names are checked.
pub(super) struct QueryString {
    parameters: Vec<(String, String)>,
    /// What of it is not UTF-8, as it was written.
    not_utf8: Option<String>,
}

impl From<Vec<(String, String)>> for QueryString {
    fn from(parameters: Vec<(String, String)>) -> QueryString {
        QueryString { parameters, not_utf8: None }
    }
}

impl FromRequestParts<App> for QueryString {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(QueryString {
            parameters: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            not_utf8: params::not_utf8(query).map(str::to_owned),
        })
    }
}

impl QueryString {
    /// The parameters of an endpoint.
    ///
    /// # Errors
    /// [`CallError::NotUtf8`]; [`CallError::NoSuchField`] for one that it does not list.
    pub(super) fn of(self, endpoint: &Endpoint) -> Result<Query, CallError> {
        if let Some(raw) = self.not_utf8 {
            return Err(CallError::NotUtf8 { raw });
        }
        let query = Query { parameters: self.parameters, listed: names(endpoint.parameters()) };
        CallError::check_known(query.parameters.iter().map(|(name, _)| name.as_str()), &query.listed)?;
        Ok(query)
    }

    /// The parameters of an endpoint that takes those of a read, too: their parser knows all names, and refuses what is
    /// not UTF-8.
    pub(super) fn beside_a_read(self, endpoint: &Endpoint) -> Query {
        Query { parameters: self.parameters, listed: names(endpoint.parameters()) }
    }
}

impl Query {
    /// A parameter that may be absent.
    ///
    /// # Errors
    /// [`CallError::Field`] when it is given twice.
    pub(crate) fn optional(&self, name: &'static str) -> Result<Option<&str>, CallError> {
        debug_assert!(self.listed.contains(&name), "{name} is taken, but not listed");
        let mut values = self.parameters.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(CallError::field(name, "it is given twice")),
        }
    }

    /// A positive integer that may be absent.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn optional_positive(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let wrong = || CallError::field(name, format!("{} is not valid; valid: a positive integer", quoted(text)));
        positive(text).map(Some).ok_or_else(wrong)
    }

    /// A positive integer.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn positive(&self, name: &'static str) -> Result<u64, CallError> {
        let missing = || CallError::field(name, "it is missing; valid: a positive integer");
        self.optional_positive(name)?.ok_or_else(missing)
    }

    /// Which version, where that may be absent: `active`, `latest`, or a number with or without a `v`.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn optional_version(&self, name: &'static str) -> Result<Option<VersionSelector>, CallError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let wrong = |_| CallError::field(name, format!("{} is not valid; valid: {VERSION_FORM}", quoted(text)));
        VersionSelector::parse_or_number(text).map(Some).map_err(wrong)
    }

    /// Which version.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn version(&self, name: &'static str) -> Result<VersionSelector, CallError> {
        let missing = || CallError::field(name, format!("it is missing; valid: {VERSION_FORM}"));
        self.optional_version(name)?.ok_or_else(missing)
    }

    /// A boolean that may be absent, as in reads.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn optional_boolean(&self, name: &'static str) -> Result<Option<bool>, CallError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let wrong = || CallError::field(name, format!("{} is not valid; valid: true, false, 1 or 0", quoted(text)));
        boolean(text).map(Some).ok_or_else(wrong)
    }

    /// A whole number that may be absent. One past `u64` is well formed and becomes `u64::MAX`.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn optional_whole_number(&self, name: &'static str) -> Result<Option<u64>, CallError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let wrong =
            || CallError::field(name, format!("{} is not valid; valid: a whole number, 0 or more", quoted(text)));
        digits.then(|| Some(text.parse().unwrap_or(u64::MAX))).ok_or_else(wrong)
    }

    /// One of some values, by its name; it may be absent.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn one_of<T: Copy, const N: usize>(
        &self,
        name: &'static str,
        values: [T; N],
        name_of: fn(T) -> &'static str,
    ) -> Result<Option<T>, CallError> {
        let Some(text) = self.optional(name)? else { return Ok(None) };
        let found = values.into_iter().find(|value| name_of(*value) == text);
        let valid = || values.map(name_of).join(", ");
        found
            .map(Some)
            .ok_or_else(|| CallError::field(name, format!("{} is not valid; valid: {}", quoted(text), valid())))
    }

    /// `dataset_id`.
    ///
    /// # Errors
    /// [`CallError::Field`].
    pub(crate) fn dataset_id(&self) -> Result<DatasetId, CallError> {
        self.positive(DATASET_ID).map(DatasetId::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "limit is taken, but not listed")]
    fn a_parameter_that_is_not_listed_is_not_taken() {
        let query = Query { parameters: Vec::new(), listed: vec!["offset"] };
        let _ = query.optional_whole_number("limit");
    }
}
