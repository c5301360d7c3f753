//! The outermost layer: HTTP in, HTTP out. Handlers extract, call one function of `service`, and encode its result.
//!
//! | Module | Holds |
//! |---|---|
//! | `server/` | connections: accepting, limits, graceful shutdown |
//! | `router` | the routes that the modules offer, and the layers around them |
//! | `mcp/` | the service as tools for agents |
//! | `openapi/` | `/openapi.json`: the service described for tools |
//! | `management/` | the operations of owners: accounts, datasets, webhooks; `/ping/{token}` |
//! | `health`, `metrics` | `/healthz`, `/readyz` and `/metrics` |
//! | `visit` | what the pages of the dashboard have in common with operations |
//! | `read/` | the read endpoint: the path of a read, its answer, the rate of its client |
//! | `description/` | what the descriptions of endpoints share: headers, errors, parameters |
//! | `params/` | the query string of a read |
//! | `layers/` | the layers around every handler: log, panics, bodies that nobody takes |
//! | `endpoint` | an endpoint as data, for router, document and the check of names |
//! | `body` | bodies that come in parts |
//! | `large_responses` | memory and processor time of responses that are built as a whole |
//! | `headers/` | what headers say: client, credentials, coding, range, caching, origins |
//! | `error/` | every error answer: its status and its text |
//! | `text`, `values` | input made fit to be shown; values that several kinds of requests have |
//!
//! Each uses only what stands below it.

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
