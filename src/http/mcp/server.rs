//! The protocol methods: server information, the list of tools, and tool calls.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use futures::{FutureExt, future};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, ContentBlock,
    CustomRequest, CustomResult, ErrorCode, Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool as ToolDefinition,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use strata_runtime::metrics::metrics;
use tracing::Instrument;

use super::ToolCaller;
use super::registry::{self, RegisteredTool};
use super::tool::{ToolError, ToolOutput, ToolResult};
use crate::display_text::quote_for_display;
use crate::error::CallError;
use crate::layers::catch_panic;
use crate::management::CallFields;

const INSTRUCTIONS: &str = "\
strata stores datasets: named lists of JSON entities. Every refresh of a dataset creates a new version, numbered from \
1, which never changes and is never deleted. `active` is the version that readers get: the newest one, unless the \
owner has pinned another one. `latest` is the newest version, and `v3` is the third.

Explore first, then fetch: `list_datasets` for your own datasets or `list_public_datasets` for other users' datasets, \
`profile` for the fields, and then `read` with a small limit, keep_field, filters, or count. Results are limited in \
size, so page through them with offset.

To edit entities, give a version an alternate: a second entity list next to it, which readers see with alt=true. The \
version itself does not change.
- A few changes: `read` with filters and positions=true (and alt=true if the version already has an alternate) returns \
the entities, their positions, and an etag. `edit_alt_version` with that etag sets, removes, and inserts at positions.
- A whole new list: `pull_for_edit` returns all entities and an etag, and `push_alt_version` saves the list.
Everything that should not change must stay exactly as you received it: number notation, nulls, and order. If a change \
reports that the etag is stale, nothing was saved: read again, redo the change on the current list, and use the new \
etag. Each change returns the next etag.";

type PageParams = Option<PaginatedRequestParams>;
type ServerContext = RequestContext<RoleServer>;
type ProtocolResult<T> = Result<T, ErrorData>;

pub(super) struct McpServer;

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let description = "Versioned datasets of JSON entities: read, compare, edit as alternates";
        let server =
            Implementation::new("strata", env!("CARGO_PKG_VERSION")).with_title("strata").with_description(description);
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(&self, _: PageParams, _: ServerContext) -> ProtocolResult<ListToolsResult> {
        Ok(ListToolsResult::with_all_items(registry::TOOLS.iter().map(|tool| tool.definition.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<ToolDefinition> {
        registry::find_tool(name).map(|tool| tool.definition.clone())
    }

    /// Responds to unknown methods, and to known methods with invalid parameters.
    async fn on_custom_request(&self, request: CustomRequest, _: ServerContext) -> ProtocolResult<CustomResult> {
        let form = match request.method.as_str() {
            "tools/call" => r#"an object with "name", a string, and optionally "arguments", an object"#,
            "initialize" => r#"an object with "protocolVersion", "capabilities", and "clientInfo""#,
            "tools/list" | "ping" => "an object, or no params",
            _ => return Err(unknown_method_error(&request.method)),
        };
        let text = format!(r#"Invalid "params" for {}; valid: {form}."#, request.method);
        Err(ErrorData::invalid_params(text, None))
    }

    async fn list_prompts(&self, _: PageParams, _: ServerContext) -> ProtocolResult<ListPromptsResult> {
        Err(unknown_method_error("prompts/list"))
    }

    async fn list_resources(&self, _: PageParams, _: ServerContext) -> ProtocolResult<ListResourcesResult> {
        Err(unknown_method_error("resources/list"))
    }

    async fn list_resource_templates(
        &self,
        _: PageParams,
        _: ServerContext,
    ) -> ProtocolResult<ListResourceTemplatesResult> {
        Err(unknown_method_error("resources/templates/list"))
    }

    async fn complete(&self, _: CompleteRequestParams, _: ServerContext) -> ProtocolResult<CompleteResult> {
        Err(unknown_method_error("completion/complete"))
    }

    /// Calls a tool. Fails only for an unknown tool, as the protocol requires. Other errors are results of the tool.
    async fn call_tool(&self, call: CallToolRequestParams, context: ServerContext) -> ProtocolResult<CallToolResponse> {
        let caller = context.extensions.get::<Parts>().and_then(|head| head.extensions.get::<Arc<ToolCaller>>());
        let caller = caller.ok_or_else(|| ErrorData::internal_error("the request context is missing", None))?.clone();
        let Some(registered) = registry::find_tool(&call.name) else {
            count_tool_call("none", "refused");
            let valid = registry::tool_names().collect::<Vec<_>>().join(", ");
            let text = format!("Unknown tool {}; valid: {valid}.", quote_for_display(&call.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = call.arguments.unwrap_or_default();
        let result = tokio::select! {
            result = run_tool(registered, &caller, arguments) => result,
            () = context.ct.cancelled() => Err(ToolError::ClientDisconnected),
        };
        Ok(tool_call_result(registered.tool.name, &caller, result).into())
    }
}

/// Returns the error for an unknown method. The service declares only tools, so clients must not call other methods.
fn unknown_method_error(name: &str) -> ErrorData {
    let text = format!("Unknown method {}; valid: initialize, ping, tools/list, tools/call.", quote_for_display(name));
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
}

fn count_tool_call(tool: &'static str, outcome: &'static str) {
    metrics().tool_calls.with_label_values([tool.into(), outcome.into()]).increment(1);
}

async fn run_tool(
    RegisteredTool { tool, argument_names, .. }: &RegisteredTool,
    caller: &ToolCaller,
    arguments: JsonObject,
) -> ToolResult {
    if !caller.scope.can_access(tool.scope) {
        return Err(CallError::ReadOnlyToken.into());
    }
    let known = argument_names.to_vec();
    if let Some(name) = arguments.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(ToolError::UnknownArgument { name: name.clone(), known });
    }
    let arguments = CallFields::new(arguments, known);
    let seconds = caller.services.config.server.answer_timeout_s;
    let running = tokio::time::timeout(Duration::from_secs(seconds), (tool.call)(caller, arguments));
    let running = running.map(|result| result.map_err(|_| ToolError::Timeout { seconds }).flatten());
    let running = match &caller.log_context {
        Some(log_context) => future::Either::Left(log_context.clone().run_scoped(running)),
        None => future::Either::Right(running),
    };
    catch_panic(running).instrument(caller.span.clone()).await?
}

fn tool_call_result(tool: &'static str, caller: &ToolCaller, result: ToolResult) -> CallToolResult {
    let _entered = caller.span.enter();
    match result {
        Ok(ToolOutput(texts)) => {
            count_tool_call(tool, "done");
            CallToolResult::success(texts.into_iter().map(ContentBlock::text).collect())
        }
        Err(ToolError::ClientDisconnected) => {
            count_tool_call(tool, "left");
            CallToolResult::error(Vec::new())
        }
        Err(error) => {
            let (is_failure, mut text) = error.log_and_render();
            count_tool_call(tool, if is_failure { "failed" } else { "refused" });
            if let Some(id) = caller.request_id.as_ref().filter(|_| is_failure) {
                text = id.append_to(&text);
            }
            CallToolResult::error(vec![ContentBlock::text(text)])
        }
    }
}
