//! The one list of tools.

use std::sync::LazyLock;

use rmcp::model::{JsonObject, Tool as Described, ToolAnnotations};

use super::tool::{Effect, Tool, ToolError};
use super::{datasets, edits, inspect, read, schemas};
use crate::http::management::Fields;

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

pub(super) fn find(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// The arguments of a tool. A slip in the name of one must not go unnoticed.
pub(super) fn arguments(tool: &Tool, given: JsonObject) -> Result<Fields, ToolError> {
    let known =
        ARGUMENT_NAMES.iter().find(|(name, _)| *name == tool.name).map_or_else(Vec::new, |(_, known)| known.clone());
    match given.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(Fields::new(given, known)),
        Some(name) => Err(ToolError::NoSuchArgument { name: name.clone(), known }),
    }
}

/// The names of the arguments of each tool, by the name of the tool.
static ARGUMENT_NAMES: LazyLock<Vec<(&str, Vec<&str>)>> = LazyLock::new(|| {
    let known = |tool: &Tool| {
        let others = tool.like.map_or_else(Vec::new, |(_, arguments)| arguments());
        (tool.arguments)().into_iter().chain(others).map(|(name, _)| name).collect()
    };
    TOOLS.iter().map(|tool| (tool.name, known(tool))).collect()
});

pub(super) static DESCRIBED: LazyLock<Vec<Described>> = LazyLock::new(|| TOOLS.iter().map(describe).collect());

fn describe(tool: &Tool) -> Described {
    // What only reads destroys nothing, whatever else it is said to be.
    let hints = match tool.effect {
        Effect::Nothing => ToolAnnotations::new().read_only(true).open_world(false),
        Effect::Replaces => {
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
        }
    };
    let about = format!("{}. {}", tool.summary, tool.details);
    Described::new(tool.name, about, schemas::object(tool)).with_annotations(hints)
}
