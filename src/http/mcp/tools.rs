//! The one list of tools.

use std::sync::LazyLock;

use rmcp::model::{JsonObject, Tool as Described, ToolAnnotations};
use serde_json::Value;

use super::error::ToolError;
use super::tool::{Effect, Tool};
use super::{datasets, edits, inspect, read};
use crate::http::management::Fields;
use crate::model::similar;

/// Every tool, in the order in which clients show them.
pub(super) const TOOLS: &[Tool] = &[
    datasets::LIST_DATASETS,
    datasets::LIST_PUBLIC_DATASETS,
    inspect::PROFILE,
    read::READ,
    read::EXPLAIN,
    inspect::DIFF,
    edits::PULL_FOR_EDIT,
    edits::EDIT_ALT_VERSION,
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
    let known = KNOWN.iter().find(|(name, _)| *name == tool.name);
    let known: Vec<&str> = known.into_iter().flat_map(|(_, known)| known.iter().map(String::as_str)).collect();
    match given.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(Fields::new(given, known)),
        Some(name) => {
            let nearest = similar::nearest(name, known.iter().copied()).map(str::to_owned);
            Err(ToolError::NoSuchArgument { name: name.clone(), known: known.join(", "), nearest })
        }
    }
}

/// The names of the arguments of each tool.
static KNOWN: LazyLock<Vec<(&str, Vec<String>)>> = LazyLock::new(|| {
    let names = |schema: JsonObject| match schema.get("properties") {
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    };
    let known = |tool: &Tool| {
        let mut own: Vec<String> = names((tool.arguments)());
        let others = tool.like.map_or_else(Vec::new, |like| names(like()));
        own.extend(others.into_iter().filter(|name| !own.contains(name)).collect::<Vec<_>>());
        own
    };
    TOOLS.iter().map(|tool| (tool.name, known(tool))).collect()
});

static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| TOOLS.iter().map(describe).collect());

/// Every tool as the protocol has it.
pub(super) fn described() -> &'static [Described] {
    &DESCRIBED
}

fn describe(tool: &Tool) -> Described {
    // What only reads destroys nothing, whatever else it is said to be.
    let hints = match tool.effect {
        Effect::Nothing => ToolAnnotations::new().read_only(true).open_world(false),
        Effect::Replaces => {
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
        }
    };
    Described::new(tool.name, format!("{}. {}", tool.summary, tool.details), (tool.arguments)()).with_annotations(hints)
}
