//! `/mcp`: tools for agents, as specified by the Model Context Protocol over streamable HTTP.
//!
//! Requests have no session and responses are plain JSON, so any replica can handle any request. Checks run in this
//! order: 405; 403 for a `Host` or `Origin` that is not one of the service, as the protocol requires; 401 without an
//! API token (cookies are not accepted, so that pages cannot use a user's cookie); 415, 413, and 408; then the errors
//! of the protocol, as JSON-RPC errors. Errors of a tool are results, with the text of the same call over HTTP.
//!
//! To add a tool, add its function, an entry in `registry::TOOLS`, and a row in docs/guides/ai-agents.md.

mod argument_schemas;
mod datasets;
mod edits;
mod inspect;
mod message;
mod read;
mod registry;
mod server;
mod tool;

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use axum::{Json, Router};
use http_body_util::{BodyExt, Full};
use rmcp::model::ErrorCode;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use strata_catalog::TokenIdentity;
use strata_runtime::metrics::request_log::{self, RequestLogContext};
use strata_service::{AuthorizationHeader, BodyReservation, ClientNetwork, Principal, Services};
use strata_types::token_scope::TokenScope;
use strata_types::user::User;
use tracing::Span;

use super::error::{CallError, HttpError};
use super::headers::auth::parse_authorization;
use super::headers::base_url::{foreign_host, has_disallowed_origin};
use super::headers::client_ip;
use super::layers::access_log::RequestId;
use super::management::request_body;
use crate::AppState;
use message::ToolMessage;

pub use registry::tool_names;

pub(super) const MCP_PATH: &str = "/mcp";

type McpService = StreamableHttpService<server::McpServer, NeverSessionManager>;

struct ToolCaller {
    services: AppState,
    user: User,
    scope: TokenScope,
    client: ClientNetwork,
    /// The arguments of a tool call as canonical JSON.
    arguments: Option<Bytes>,
    request_id: Option<RequestId>,
    /// The tracing span of the request. Tools run in separate tasks, which do not inherit the span.
    span: Span,
    log_context: Option<Arc<RequestLogContext>>,
    _reservation: Option<BodyReservation>,
}

pub(super) fn routes() -> Router<AppState> {
    Router::new().route(MCP_PATH, method_router())
}

fn method_router() -> MethodRouter<AppState> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // `check_host_and_origin` replaces rmcp's checks, because the valid hosts and origins are configured.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        // `collect_body` limits the size of bodies instead of rmcp.
        .with_max_request_body_bytes(usize::MAX);
    let service = McpService::new(|| Ok(server::McpServer), Arc::default(), config);
    let wrong_method = async || HttpError::MethodNotAllowed { allowed: Some("POST") };
    post(async move |State(services): State<AppState>, request: Request| {
        let (head, body) = request.into_parts();
        let user = match check_host_and_origin(&services, &head) {
            Ok(()) => authenticate(&services, &head).await,
            Err(error) => Err(error.into()),
        };
        let request = Request::from_parts(head, body);
        let mut response = match user {
            Ok(user) => handle_request(&service, services, user, request).await.unwrap_or_else(error_response),
            Err(error) => error.into_response(),
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    })
    .fallback(wrong_method)
}

/// Rejects requests of web pages whose host name resolves to this service (DNS rebinding), or that have another origin.
fn check_host_and_origin(services: &Services, head: &Parts) -> Result<(), CallError> {
    let server = &services.config.server;
    if let Some(host) = foreign_host(head, server) {
        return Err(CallError::ForeignHost { host });
    }
    match has_disallowed_origin(head, server.public_url.as_ref(), &server.allowed_hosts) {
        true => Err(CallError::ForeignOrigin),
        false => Ok(()),
    }
}

async fn authenticate(services: &Services, head: &Parts) -> Result<TokenIdentity, HttpError> {
    let AuthorizationHeader::Bearer(token) = parse_authorization(&head.headers) else {
        return Err(CallError::TokenRequired.into());
    };
    let user = services.sessions.find_user_by_token(client_ip::request_client(head, services), token).await?;
    Ok(user.ok_or(CallError::TokenRequired)?)
}

fn error_response(error: HttpError) -> Response {
    let (status, text) = error.log_and_render();
    let code = match error {
        HttpError::Call(CallError::InvalidJsonText { .. }) => ErrorCode::PARSE_ERROR,
        _ => ErrorCode::INVALID_REQUEST,
    };
    json_rpc_error(status, Value::Null, code, &text)
}

fn json_rpc_error(status: StatusCode, id: Value, code: ErrorCode, text: &str) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": text}});
    (status, Json(error)).into_response()
}

async fn handle_request(
    service: &McpService,
    services: AppState,
    user: TokenIdentity,
    request: Request,
) -> Result<Response, HttpError> {
    let TokenIdentity { user, scope } = user;
    let (mut head, body) = request.into_parts();
    if !request_body::has_json_body(&head.headers) {
        return Err(CallError::JsonRpcRequired.into());
    }
    let collected =
        request_body::collect_body(&services, Principal::User(user.id), body, services.config.limits.body_bytes).await;
    let (bytes, reservation) = collected.map_err(|error| match error {
        HttpError::Call(CallError::BodyTooLarge { limit, .. }) => CallError::ToolBodyTooLarge { limit }.into(),
        other => other,
    })?;
    let client = client_ip::request_client(&head, &services);
    let message = request_body::parse_off_executor(bytes, |bytes| ToolMessage::parse(bytes)).await?;
    if let Some(id) = message.unsupported_initialize_id(&head.headers) {
        let text = "This protocol revision has no initialize method; call server/discover.";
        return Ok(json_rpc_error(StatusCode::NOT_FOUND, id, ErrorCode::METHOD_NOT_FOUND, text));
    }
    let caller = ToolCaller {
        services,
        user,
        scope,
        client,
        arguments: message.arguments,
        request_id: head.extensions.get().cloned(),
        span: Span::current(),
        log_context: request_log::current_context(),
        _reservation: reservation,
    };
    head.extensions.insert(Arc::new(caller));
    // rmcp accepts only the content type `application/json`, but strata accepts all JSON types.
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));

    let response = service.handle(Request::from_parts(head, Full::new(message.without_entities))).await;
    // Some error responses of rmcp are plain text instead of JSON.
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/json");
    match response.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Err(CallError::InvalidBody { problem: message::EXPECTED_MESSAGE.to_owned() }.into())
        }
        status if status.is_client_error() && !is_json => {
            let Ok(text) = response.into_body().collect().await;
            let text = text.to_bytes();
            Ok(json_rpc_error(status, Value::Null, ErrorCode::INVALID_REQUEST, &String::from_utf8_lossy(&text)))
        }
        _ => Ok(response.map(Body::new)),
    }
}
