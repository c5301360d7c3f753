//! The list of tools and their descriptions for clients.

use std::sync::LazyLock;

use rmcp::model::{Tool as Described, ToolAnnotations};
use strata_types::scope::Scope;

use super::tool::Tool;
use super::{datasets, edits, inspect, read, schemas};

/// A tool with its description for clients, and the names of all its arguments.
pub(super) struct NamedTool {
    pub tool: Tool,
    pub described: Described,
    pub argument_names: Vec<&'static str>,
}

/// All tools, in the order in which clients show them.
pub(super) static TOOLS: LazyLock<[NamedTool; 9]> = LazyLock::new(|| {
    [
        datasets::LIST_DATASETS,
        datasets::LIST_PUBLIC_DATASETS,
        inspect::PROFILE,
        read::READ,
        read::EXPLAIN,
        inspect::DIFF,
        edits::PULL_FOR_EDIT,
        edits::EDIT_ALT_VERSION,
        edits::PUSH_ALT_VERSION,
    ]
    .map(|tool| {
        let others = tool.like.map_or_else(Vec::new, |(_, arguments)| arguments());
        let argument_names = (tool.arguments)().into_iter().chain(others).map(|(name, _)| name).collect();
        NamedTool { described: described(&tool), argument_names, tool }
    })
});

pub(super) fn find(name: &str) -> Option<&'static NamedTool> {
    TOOLS.iter().find(|named| named.tool.name == name)
}

pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|named| named.tool.name)
}

fn described(tool: &Tool) -> Described {
    let hints = match tool.scope {
        Scope::Read => ToolAnnotations::new().read_only(true).open_world(false),
        Scope::Write => ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false),
    };
    let about = format!("{}. {}", tool.summary, tool.details);
    Described::new(tool.name, about, schemas::object(tool)).with_annotations(hints)
}
