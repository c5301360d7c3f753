//! The server: routes, parameters, headers, connections.

pub mod around;
pub mod compression;
pub mod conditional;
pub mod connections;
pub mod examples;
pub mod fields;
pub mod management;
pub mod mcp;
pub mod openapi;
pub mod params;
pub mod ranges;
pub mod read;
pub mod read_limits;
pub mod readiness;
pub mod request_lines;
pub mod server;
pub mod stops;
pub mod urls;
