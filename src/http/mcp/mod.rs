//! `/mcp`: the service as tools for agents, by the Model Context Protocol over streamable HTTP.
//!
//! Requests have no session, and responses are plain JSON, so any replica can handle any request. Checks run in this
//! order: 405; 403 for a `Host` or `Origin` that is not one of the service, as the protocol requires; 401 without an
//! API token (a cookie is not enough, so no page can use the cookie of its visitor); then 415, 413, 408, and the errors
//! of the protocol, as JSON-RPC errors with a text. After that, an error of a tool is its result, with the text of the
//! same call over HTTP.
//!
//! To add a tool, write its function, its line in `registry::TOOLS`, and its row in docs/guides/ai-agents.md.

mod datasets;
mod edits;
mod inspect;
mod message;
mod read;
mod registry;
mod schemas;
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
use strata_catalog::TokenUser;
use strata_runtime::metrics::request_log::{self, RequestLogContext};
use strata_service::{Authorization, BodyRoom, Client, Principal, Services};
use strata_types::scope::Scope;
use strata_types::user::User;
use tracing::Span;

use super::error::{CallError, HttpError};
use super::headers::auth::authorization;
use super::headers::base_url::{foreign_host, has_origin_outside};
use super::headers::client_ip;
use super::layers::access_log::RequestId;
use super::management::body;
use crate::AppState;
use message::Message;

pub use registry::names;

pub(super) const PATH: &str = "/mcp";

type Service = StreamableHttpService<server::Server, NeverSessionManager>;

/// The caller, and the request of the call.
struct Caller {
    services: AppState,
    user: User,
    scope: Scope,
    client: Client,
    /// The arguments of a tool call as canonical JSON.
    arguments: Option<Bytes>,
    request_id: Option<RequestId>,
    /// The span of the request, because tools run in tasks of their own.
    span: Span,
    log_context: Option<Arc<RequestLogContext>>,
    _room: Option<BodyRoom>,
}

pub(super) fn routes() -> Router<AppState> {
    Router::new().route(PATH, route())
}

fn route() -> MethodRouter<AppState> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        // Checked here, because the hosts depend on the configuration.
        .disable_allowed_hosts()
        .disable_allowed_origins()
        // Limited here.
        .with_max_request_body_bytes(usize::MAX);
    let service = Service::new(|| Ok(server::Server), Arc::default(), config);
    let wrong_method = async || HttpError::MethodNotAllowed { allowed: Some("POST") };
    post(async move |State(services): State<AppState>, request: Request| {
        let (head, body) = request.into_parts();
        let user = match check_host_and_origin(&services, &head) {
            Ok(()) => authenticated(&services, &head).await,
            Err(error) => Err(error.into()),
        };
        let request = Request::from_parts(head, body);
        let mut response = match user {
            Ok(user) => answer(&service, services, user, request).await.unwrap_or_else(refused),
            Err(error) => error.into_response(),
        };
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    })
    .fallback(wrong_method)
}

/// Rejects pages whose name resolves to this service (DNS rebinding), and pages of other origins.
fn check_host_and_origin(services: &Services, head: &Parts) -> Result<(), CallError> {
    let server = &services.config.server;
    if let Some(host) = foreign_host(head, server) {
        return Err(CallError::ForeignHost { host });
    }
    match has_origin_outside(head, server.public_url.as_ref(), &server.allowed_hosts) {
        true => Err(CallError::ForeignOrigin),
        false => Ok(()),
    }
}

async fn authenticated(services: &Services, head: &Parts) -> Result<TokenUser, HttpError> {
    let user = match authorization(&head.headers) {
        Authorization::Bearer(token) => {
            services.sessions.user_of_token(client_ip::client(head, services), token).await?
        }
        Authorization::Other | Authorization::None => None,
    };
    Ok(user.ok_or(CallError::NoToken)?)
}

fn refused(error: HttpError) -> Response {
    let (status, text) = error.log_and_render();
    let code = match error {
        HttpError::Call(CallError::NotJsonText { .. }) => ErrorCode::PARSE_ERROR,
        _ => ErrorCode::INVALID_REQUEST,
    };
    refusal(status, Value::Null, code, &text)
}

fn refusal(status: StatusCode, id: Value, code: ErrorCode, text: &str) -> Response {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.0, "message": text}});
    (status, Json(error)).into_response()
}

async fn answer(
    service: &Service,
    services: AppState,
    user: TokenUser,
    request: Request,
) -> Result<Response, HttpError> {
    let TokenUser { user, scope } = user;
    let (mut head, body) = request.into_parts();
    if !body::is_json(&head.headers) {
        return Err(CallError::NotMessage.into());
    }
    let collected = body::collect(&services, Principal::User(user.id), body, services.config.limits.body_bytes).await;
    let (bytes, room) = collected.map_err(|error| match error {
        HttpError::Call(CallError::TooLarge { limit, .. }) => CallError::TooLargeForTools { limit }.into(),
        other => other,
    })?;
    let client = client_ip::client(&head, &services);
    let request_id = head.extensions.get().cloned();
    let span = Span::current();
    let log_context = request_log::current();
    let message = body::apart(bytes, |bytes| Message::parse(bytes)).await?;
    if let Some(id) = message.removed_initialize(&head.headers) {
        let text = "This protocol revision has no initialize method; call server/discover.";
        return Ok(refusal(StatusCode::NOT_FOUND, id, ErrorCode::METHOD_NOT_FOUND, text));
    }
    let caller = Caller {
        services,
        user,
        scope,
        client,
        arguments: message.arguments,
        request_id,
        span,
        log_context,
        _room: room,
    };
    head.extensions.insert(Arc::new(caller));
    // Other JSON types are accepted above, but rmcp accepts only this one.
    head.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));

    let response = service.handle(Request::from_parts(head, Full::new(message.without_entities))).await;
    // Some errors of rmcp are plain text.
    let is_json = response.headers().get(CONTENT_TYPE).is_some_and(|value| value == "application/json");
    match response.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => Err(CallError::Body { problem: message::EXPECTED.to_owned() }.into()),
        status if status.is_client_error() && !is_json => {
            let text = match response.into_body().collect().await {
                Ok(text) => text.to_bytes(),
                Err(never) => match never {},
            };
            Ok(refusal(status, Value::Null, ErrorCode::INVALID_REQUEST, &String::from_utf8_lossy(&text)))
        }
        _ => Ok(response.map(Body::new)),
    }
}
