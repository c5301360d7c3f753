//! The methods of the protocol: server information, the list of tools, and tool calls.

use std::sync::Arc;
use std::time::Duration;

use axum::http::request::Parts;
use futures::{FutureExt, future};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult, ContentBlock,
    CustomRequest, CustomResult, ErrorCode, Implementation, JsonObject, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as Described,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use strata_runtime::metrics::metrics;
use tracing::Instrument;

use super::Caller;
use super::registry::{self, NamedTool};
use super::tool::{Output, ToolError, ToolResult};
use crate::error::CallError;
use crate::layers::caught;
use crate::management::Fields;
use crate::text::quoted;

/// The instructions for the model of a client.
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

type Page = Option<PaginatedRequestParams>;
type Context = RequestContext<RoleServer>;
type Answer<T> = Result<T, ErrorData>;

pub(super) struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let about = "Versioned datasets of JSON entities: read, compare, edit as alternates";
        let server =
            Implementation::new("strata", env!("CARGO_PKG_VERSION")).with_title("strata").with_description(about);
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(server)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(&self, _: Page, _: Context) -> Answer<ListToolsResult> {
        Ok(ListToolsResult::with_all_items(registry::TOOLS.iter().map(|tool| tool.described.clone()).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Described> {
        registry::find(name).map(|tool| tool.described.clone())
    }

    /// Methods without a handler, and invalid parameters of methods with a handler.
    async fn on_custom_request(&self, request: CustomRequest, _: Context) -> Answer<CustomResult> {
        let form = match request.method.as_str() {
            "tools/call" => Some(r#"an object with "name", a string, and optionally "arguments", an object"#),
            "initialize" => Some(r#"an object with "protocolVersion", "capabilities", and "clientInfo""#),
            "tools/list" | "ping" => Some("an object, or no params"),
            _ => None,
        };
        if let Some(form) = form {
            let text = format!(r#"Invalid "params" for {}; valid: {form}."#, request.method);
            return Err(ErrorData::invalid_params(text, None));
        }
        Err(no_method(&request.method))
    }

    async fn list_prompts(&self, _: Page, _: Context) -> Answer<ListPromptsResult> {
        Err(no_method("prompts/list"))
    }

    async fn list_resources(&self, _: Page, _: Context) -> Answer<ListResourcesResult> {
        Err(no_method("resources/list"))
    }

    async fn list_resource_templates(&self, _: Page, _: Context) -> Answer<ListResourceTemplatesResult> {
        Err(no_method("resources/templates/list"))
    }

    async fn complete(&self, _: CompleteRequestParams, _: Context) -> Answer<CompleteResult> {
        Err(no_method("completion/complete"))
    }

    /// Fails only for an unknown tool, as the protocol requires. Any other error is the result of the tool.
    async fn call_tool(&self, request: CallToolRequestParams, context: Context) -> Answer<CallToolResponse> {
        let caller = context.extensions.get::<Parts>().and_then(|head| head.extensions.get::<Arc<Caller>>());
        let caller = caller.ok_or_else(|| ErrorData::internal_error("the request context is missing", None))?.clone();
        let Some(named) = registry::find(&request.name) else {
            count("none", "refused");
            let valid = registry::names().collect::<Vec<_>>().join(", ");
            let text = format!("Unknown tool {}; valid: {valid}.", quoted(&request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let called = tokio::select! {
            called = call(named, &caller, arguments) => called,
            () = context.ct.cancelled() => Err(ToolError::Left),
        };
        Ok(result(named.tool.name, &caller, called).into())
    }
}

/// The service declares only tools, so it has no other methods.
fn no_method(name: &str) -> ErrorData {
    let text = format!("Unknown method {}; valid: initialize, ping, tools/list, tools/call.", quoted(name));
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None)
}

fn count(tool: &'static str, outcome: &'static str) {
    metrics().tool_calls.of([tool.into(), outcome.into()]).increment(1);
}

/// Runs a tool with the span and the log context of the request, within `server.answer_timeout_s`.
async fn call(NamedTool { tool, argument_names, .. }: &NamedTool, caller: &Caller, given: JsonObject) -> ToolResult {
    if !caller.scope.allows(tool.scope) {
        return Err(CallError::ReadOnly.into());
    }
    // No typo in the name of an argument is ignored.
    let known = argument_names.to_vec();
    if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(ToolError::NoSuchArgument { name: name.clone(), known });
    }
    let arguments = Fields::new(given, known);
    let seconds = caller.services.config.server.answer_timeout_s;
    let running = tokio::time::timeout(Duration::from_secs(seconds), (tool.call)(caller, arguments));
    let running = running.map(|done| done.map_err(|_| ToolError::TooSlow { seconds }).flatten());
    let running = match &caller.log_context {
        Some(log_context) => future::Either::Left(log_context.clone().scope(running)),
        None => future::Either::Right(running),
    };
    caught(running).instrument(caller.span.clone()).await?
}

fn result(tool: &'static str, caller: &Caller, called: ToolResult) -> CallToolResult {
    let _entered = caller.span.enter();
    match called {
        Ok(Output(texts)) => {
            count(tool, "done");
            CallToolResult::success(texts.into_iter().map(ContentBlock::text).collect())
        }
        Err(ToolError::Left) => {
            count(tool, "left");
            CallToolResult::error(Vec::new())
        }
        Err(error) => {
            let (is_failure, mut text) = error.log_and_render();
            count(tool, if is_failure { "failed" } else { "refused" });
            if let Some(id) = caller.request_id.as_ref().filter(|_| is_failure) {
                text = id.named_in(&text);
            }
            CallToolResult::error(vec![ContentBlock::text(text)])
        }
    }
}
