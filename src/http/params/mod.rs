//! The query parameters of the read endpoint as data: name, documentation, and parser. `registry` contains all
//! parameters, and parses a query string into a `ReadRequest`.
//!
//! To add a parameter, add its constant, an entry in `registry::PARAMETERS`, and a row in
//! docs/reference/query-semantics.md, Parameters. The registry generates the OpenAPI document and the MCP tool `read`.
//!
//! Parsing validates one value at a time, without I/O and without a dataset.

mod filter_parameters;
mod form_decoder;
mod parameter_kind;
mod registry;
mod result_parameters;
mod unknown_names;
mod value_parsers;

use std::borrow::Cow;

use strata_types::read_request::ReadRequest;

pub(crate) use form_decoder::find_invalid_utf8;
pub use parameter_kind::ParameterKind;
pub use registry::{
    MAX_QUERY_BYTES, MAX_QUERY_ITEMS, PARAMETERS, ParameterError, parse_file_query, parse_json_members, parse_query,
    parse_query_except, parse_since, paths_in_query, replace_offset,
};
pub(crate) use unknown_names::PERCENT_ENCODED;
pub use unknown_names::{MAX_UNKNOWN_HEADER_BYTES, UnknownParameter, unknown_fields_header, unknown_parameters_header};
pub use value_parsers::MAX_PATH_KEYS;

/// Stores the decoded value of a parameter in the request. Called for each occurrence, in query string order.
type ApplyParameterFn = fn(&str, &mut ReadRequest) -> Result<(), InvalidValue>;

#[derive(Clone, Copy, Debug)]
pub struct QueryParameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    /// The default value of the parameter as in docs/reference/query-semantics.md, Parameters ("false", "all", "none").
    pub default_text: &'static str,
    /// The description of the parameter, in full sentences in Markdown.
    pub documentation: &'static str,
    /// A decoded value that matches entities of the demo dataset `world-countries`, also in combination with the
    /// examples of all other parameters. `None` if an example is unnecessary.
    pub example: Option<&'static str>,
    pub repetition: ParameterRepetition,
    apply: ApplyParameterFn,
}

/// How often a query string can contain a parameter (docs/reference/query-semantics.md, Parameters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterRepetition {
    Single,
    /// The parameter can occur any number of times. Each occurrence counts separately.
    Repeated,
    /// The parameter can occur any number of times. The comma-separated lists of all occurrences are joined in order.
    List,
}

/// The second part of the error message `"value" {problem}; valid: {valid}` about a parameter.
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
