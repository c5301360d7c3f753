//! The outermost layer: HTTP in, HTTP out. Handlers extract, call one function of `service`, and encode its result.
//!
//! | Module | Holds |
//! |---|---|
//! | `router` | every route, in one table, and the layers around them |
//! | `server`, `listener`, `connections`, `activity`, `timed_stream`, `frames`, `request_lines`, `timed_body` | connections: accepting, limits, graceful shutdown |
//! | `read` | the read endpoint |
//! | `content_encoding`, `range` | which coding of a body, and which part of it |
//! | `path`, `params/`, `auth` | what a read request says: its path, its query string, its `Authorization` |
//! | `client`, `rate` | whose request it is, and where it stands with its requests |
//! | `caching`, `cors` | what caches may keep of an answer, and which origins may read it |
//! | `management/` | the operations of owners: accounts, datasets, webhooks |
//! | `mcp/` | the service as tools for agents |
//! | `ping` | `/ping/{token}` |
//! | `health`, `metrics` | `/healthz`, `/readyz` and `/metrics` |
//! | `openapi/` | `/openapi.json`: the service described for tools |
//! | `error` | every error answer: its status and its text |
//! | `access_log`, `panics` | the layers around every handler |
//! | `text` | input made fit to be shown |

mod access_log;
mod activity;
mod auth;
mod caching;
mod client_ip;
mod connections;
pub mod content_encoding;
mod cors;
mod drain;
pub mod error;
mod frames;
mod health;
mod host;
mod listener;
pub mod management;
pub mod mcp;
mod metrics;
pub mod openapi;
mod panics;
pub mod params;
pub mod path;
mod ping;
pub mod range;
mod rate;
pub mod read;
mod request_lines;
pub mod router;
pub mod server;
mod text;
mod timed_body;
mod timed_stream;

pub use router::router;
pub use server::{ServeError, ServerLimits, serve};
