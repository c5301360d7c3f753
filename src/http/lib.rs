//! The outermost layer: HTTP in, HTTP out. Handlers extract, call one function of `service`, and encode its result.
//!
//! A module uses only modules that come after it in this order: `server`, `router`, `page_support`, `openapi`, `mcp`,
//! `health`, `metrics`, `management`, `read`, `openapi_components`, `params`, `endpoint`, `layers`, `large_responses`,
//! `streamed_body`, `headers`, `error`, `display_text`, `scalar_parsers`.

mod display_text;
mod endpoint;
pub mod error;
pub mod headers;
mod health;
pub mod large_responses;
mod layers;
pub mod management;
pub mod mcp;
mod metrics;
pub mod openapi;
mod openapi_components;
pub mod page_support;
pub mod params;
pub mod read;
pub mod router;
mod scalar_parsers;
pub mod server;
mod streamed_body;

pub use router::router;
pub use server::{ServeError, ServerLimits, serve, serve_app};

pub type AppState = std::sync::Arc<strata_service::Services>;
