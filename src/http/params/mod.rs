//! The query parameters of the read endpoint as data: name, documentation, and parser. `registry` lists them in order,
//! and parses a query string into a `ReadRequest`.
//!
//! To add a parameter, write its constant, its line in `registry::PARAMETERS`, and its row in the table of
//! docs/reference/query-semantics.md, Parameters. The OpenAPI document and the tool `read` of the MCP server are
//! generated from the registry.
//!
//! Parsing validates one value at a time, without I/O and without a dataset.

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

/// Writes a decoded value into the request. Called for each occurrence, in the order of the query string.
type Apply = fn(&str, &mut ReadRequest) -> Result<(), InvalidValue>;

#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: ParameterKind,
    /// The default, as in docs/reference/query-semantics.md, Parameters ("false", "all", "none").
    pub default_text: &'static str,
    /// Full sentences, in Markdown.
    pub documentation: &'static str,
    /// A decoded value that matches entities of the demo dataset `world-countries`, also together with the examples of
    /// all other parameters. `None` if the kind is enough.
    pub example: Option<&'static str>,
    pub repetition: Repetition,
    apply: Apply,
}

/// How often a request can contain a parameter (docs/reference/query-semantics.md, Parameters).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetition {
    Single,
    /// Any number of times. Each occurrence counts separately.
    Repeat,
    /// Any number of times. The comma-separated lists are joined in order.
    List,
}

/// Completes the sentence `"value" {problem}; valid: {valid}`.
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
