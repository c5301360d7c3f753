//! The one list of tools.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool as Described, ToolAnnotations};

use super::error::ToolError;
use super::tool::{Effect, Tool};
use super::{datasets, edits, inspect, read};
use crate::http::management::Fields;
use crate::model::similar;

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

/// The tool of that name.
pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// The arguments of a tool. A slip in the name of one must not go unnoticed.
///
/// # Errors
/// [`ToolError::NoSuchArgument`].
pub(super) fn arguments(tool: &Tool, given: JsonObject) -> Result<Fields, ToolError> {
    let described = described().iter().find(|described| described.name == tool.name);
    let properties = described.and_then(|described| described.input_schema.get("properties")?.as_object());
    let known: Vec<&str> = properties.into_iter().flat_map(|known| known.keys().map(String::as_str)).collect();
    match given.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(Fields::new(given, known)),
        Some(name) => {
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
