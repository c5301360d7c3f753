//! The outermost layer: HTTP in, HTTP out. Handlers extract, call one function of `service`, and encode its result.
//!
//! A module uses only modules that come after it in this order: `server`, `router`, `openapi`, `mcp`, `health`,
//! `metrics`, `visit`, `management`, `read`, `description`, `params`, `endpoint`, `layers`, `large_responses`, `body`,
//! `headers`, `error`, `text`, `values`.

mod body;
mod description;
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
pub mod params;
pub mod read;
pub mod router;
pub mod server;
mod text;
mod values;
pub mod visit;

pub use router::router;
pub use server::{ServeError, ServerLimits, serve, serve_app};

/// The state of the handlers.
pub type AppState = std::sync::Arc<strata_service::Services>;
