//! The list of tools and their descriptions for clients.

use std::sync::LazyLock;

use rmcp::model::{Tool as ToolDefinition, ToolAnnotations};
use strata_types::token_scope::TokenScope;

use super::tool::ToolSpec;
use super::{argument_schemas, datasets, edits, inspect, read};

/// A tool, the definition that clients receive, and its argument names, including those inherited from another tool.
pub(super) struct RegisteredTool {
    pub tool: ToolSpec,
    pub definition: ToolDefinition,
    pub argument_names: Vec<&'static str>,
}

/// All tools, in the order in which clients show them.
pub(super) static TOOLS: LazyLock<[RegisteredTool; 10]> = LazyLock::new(|| {
    [
        datasets::LIST_DATASETS_TOOL,
        datasets::LIST_PUBLIC_DATASETS_TOOL,
        inspect::PROFILE_TOOL,
        read::READ_TOOL,
        read::EXPLAIN_TOOL,
        inspect::DIFF_TOOL,
        inspect::CHANGES_TOOL,
        edits::PULL_FOR_EDIT_TOOL,
        edits::EDIT_ALT_VERSION_TOOL,
        edits::PUSH_ALT_VERSION_TOOL,
    ]
    .map(|tool| {
        let inherited = tool.inherited_arguments.map_or_else(Vec::new, |(_, arguments)| arguments());
        let argument_names = (tool.arguments)().into_iter().chain(inherited).map(|(name, _)| name).collect();
        RegisteredTool { definition: tool_definition(&tool), argument_names, tool }
    })
});

pub(super) fn find_tool(name: &str) -> Option<&'static RegisteredTool> {
    TOOLS.iter().find(|registered| registered.tool.name == name)
}

pub fn tool_names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|registered| registered.tool.name)
}

fn tool_definition(tool: &ToolSpec) -> ToolDefinition {
    let annotations = match tool.scope {
        TokenScope::Read => ToolAnnotations::new().read_only(true).open_world(false),
        TokenScope::Write => {
            ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
        }
    };
    let description = format!("{}. {}", tool.summary, tool.details);
    ToolDefinition::new(tool.name, description, argument_schemas::arguments_schema(tool)).with_annotations(annotations)
}
