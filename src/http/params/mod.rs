//! The query parameters of the read endpoint, as data: name, documentation and parser of each, in files of those that
//! are alike; `registry` lists them in order and turns a query string into a `ReadRequest`.
//!
//! To add a parameter, write its constant and its line in `registry::PARAMETERS`. Nothing else lists parameters: the
//! table of docs/reference/query-semantics.md, Parameters, the OpenAPI document and the tool `read` of the MCP server
//! are generated from the registry.
//!
//! Parsing knows nothing of any dataset: it validates one value at a time and does no I/O.

mod decode;
mod kind;
mod registry;
mod result;
mod selection;
mod unknown;
mod value;

use std::borrow::Cow;

use strata_types::request::ReadRequest;

pub(crate) use decode::not_utf8;
pub use kind::ParameterKind;
pub use registry::{
    ITEMS_LIMIT, PARAMETERS, ParameterError, QUERY_BYTES_LIMIT, parse, parse_beside, parse_json, paths, with_offset,
};
pub(crate) use unknown::ESCAPED;
pub use unknown::{HEADER_BYTES_LIMIT, UnknownParameter, unknown_fields_header, unknown_parameters_header};
pub use value::PATH_KEYS_LIMIT;

/// Writes one decoded value into the request.
///
/// Called once per occurrence, in the order of the query string; never a second time for a parameter that may be given
/// only once. Errors when the value is not valid; the request is not used then.
type Apply = fn(&str, &mut ReadRequest) -> Result<(), InvalidValue>;

#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The name in a URL: exact, lower case.
    pub name: &'static str,
    pub kind: ParameterKind,
    /// What holds when it is not given, in the words of the table in docs/reference/query-semantics.md, Parameters
    /// ("false", "all", "none").
    pub default_text: &'static str,
    /// What it does, in one line without a final full stop, for tables. May hold Markdown.
    pub summary: &'static str,
    /// What it does, in full sentences, for reference documentation. May hold Markdown.
    pub documentation: &'static str,
    /// A value to show, decoded as for `apply`, that finds something in the demo's dataset `world-countries`, alone and
    /// beside those of all other parameters. `None` where the kind says all there is to say.
    pub example: Option<&'static str>,
    pub repetition: Repetition,
    apply: Apply,
}

/// How often one request may give a parameter (docs/reference/query-semantics.md, Parameters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    /// At most once; a second time is an error.
    Single,
    /// Any number of times; every occurrence counts on its own.
    Repeat,
    /// Any number of times; the comma lists of all occurrences are joined in order, as if they were one.
    List,
}

impl Repetition {
    pub fn text(self) -> &'static str {
        match self {
            Repetition::Single => "no",
            Repetition::Repeat => "yes",
            Repetition::List => "yes, lists are joined",
        }
    }
}

/// Why a parameter refused a value. The parts complete the sentence `"value" {problem}; valid: {valid}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    pub problem: Cow<'static, str>,
    pub valid: Cow<'static, str>,
}

impl InvalidValue {
    pub fn new(problem: impl Into<Cow<'static, str>>, valid: impl Into<Cow<'static, str>>) -> InvalidValue {
        InvalidValue { problem: problem.into(), valid: valid.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The request after these values of a parameter, all of which it takes.
    #[track_caller]
    pub(super) fn applied(parameter: &Parameter, values: &[&str]) -> ReadRequest {
        let mut request = ReadRequest::default();
        for value in values {
            assert_eq!((parameter.apply)(value, &mut request), Ok(()), "{} {value:?}", parameter.name);
        }
        request
    }
}
