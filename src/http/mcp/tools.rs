//! The one list of tools, and what they have in common.

use std::sync::{Arc, LazyLock};

use futures::future::BoxFuture;
use rmcp::model::{JsonObject, Tool as Described, ToolAnnotations};

use super::output::Output;
use super::{Caller, datasets, edits, inspect, read};
use crate::http::error::HttpError;
use crate::http::management::Fields;
use crate::http::text::quoted;
use crate::model::similar;

/// A tool.
pub(super) struct Tool {
    /// What it is called by.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, in one line without a final full stop, for tables.
    pub summary: &'static str,
    /// What a model must know to use it, after the summary.
    pub details: &'static str,
    /// What it changes.
    pub effect: Effect,
    /// The schema of its arguments: an object whose properties are all there are.
    pub arguments: fn() -> JsonObject,
    /// The schema of its result, where that is one JSON object.
    pub result: Option<fn() -> JsonObject>,
    /// Runs it.
    pub call: for<'a> fn(&'a Caller, Fields) -> BoxFuture<'a, Result<Output, ToolError>>,
}

/// What calling a tool changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// It replaces what is there; once more is refused.
    Replaces,
}

/// Every tool, in the order in which clients show them.
pub(super) const TOOLS: &[Tool] = &[
    datasets::LIST_DATASETS,
    inspect::PROFILE,
    read::READ,
    read::EXPLAIN,
    inspect::DIFF,
    edits::PULL_FOR_EDIT,
    edits::PUSH_ALT_VERSION,
];

/// Why a tool has no result.
#[derive(Debug)]
pub(super) enum ToolError {
    /// What the same call over HTTP would be refused with.
    Http(HttpError),
    /// An argument that the tool does not have.
    NoSuchArgument {
        name: String,
        /// Those that it has.
        known: String,
        /// The one that was perhaps meant.
        nearest: Option<String>,
    },
    /// The result would be too long; says what to do instead.
    TooLong { limit_bytes: usize, instead: &'static str },
    /// It took too long.
    TooSlow { seconds: u64 },
    /// The client left.
    Left,
}

impl<E: Into<HttpError>> From<E> for ToolError {
    fn from(error: E) -> Self {
        ToolError::Http(error.into())
    }
}

impl ToolError {
    /// Whether the service is to blame, and the text for the caller. What is not told is logged.
    pub(super) fn told(&self) -> (bool, String) {
        match self {
            ToolError::Http(error) => {
                let (status, text) = error.told();
                (status.is_server_error(), text)
            }
            ToolError::NoSuchArgument { name, known, nearest } => {
                let meant = nearest.as_ref().map_or_else(String::new, |nearest| format!(" did you mean {nearest}?"));
                let valid = format!("valid: {known}");
                (false, format!("Invalid request: {}: there is no such argument;{meant} {valid}.", quoted(name)))
            }
            ToolError::TooLong { limit_bytes, instead } => {
                (false, format!("The result would be longer than {limit_bytes} bytes. {instead}"))
            }
            ToolError::TooSlow { seconds } => (true, format!("The tool was stopped after {seconds} s.")),
            ToolError::Left => (false, "The client left.".to_owned()),
        }
    }
}

/// The tool of that name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// A slip in the name of an argument must not go unnoticed.
///
/// # Errors
/// [`ToolError::NoSuchArgument`].
pub(super) fn check_names(tool: &Tool, arguments: &Fields) -> Result<(), ToolError> {
    let described = described().iter().find(|described| described.name == tool.name);
    let known = described.and_then(|described| described.input_schema.get("properties")?.as_object());
    let is_known = |name: &str| known.is_some_and(|known| known.contains_key(name));
    match arguments.members.keys().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = known.into_iter().flat_map(|known| known.keys().map(String::as_str)).collect();
            let nearest = similar::nearest(name, known.iter().copied()).map(str::to_owned);
            Err(ToolError::NoSuchArgument { name: name.clone(), known: known.join(", "), nearest })
        }
    }
}

static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| TOOLS.iter().map(describe).collect());

/// Every tool as the protocol has it.
pub(super) fn described() -> &'static [Described] {
    &DESCRIBED
}

fn describe(tool: &Tool) -> Described {
    let reads = tool.effect == Effect::Nothing;
    let hints =
        ToolAnnotations::with_title(tool.title).read_only(reads).destructive(!reads).idempotent(true).open_world(false);
    let described = Described::new(tool.name, format!("{}. {}", tool.summary, tool.details), (tool.arguments)())
        .with_title(tool.title)
        .with_annotations(hints);
    match tool.result {
        Some(schema) => described.with_raw_output_schema(Arc::new(schema())),
        None => described,
    }
}
