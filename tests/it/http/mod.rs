//! The server: routes, parameters, headers, connections.

mod agent_tools;
mod around;
mod clients;
mod compression;
mod conditional;
mod connections;
mod downloads;
mod examples;
mod fields;
mod management;
mod mcp;
mod openapi;
mod pages;
mod ranges;
mod read;
mod read_limits;
mod readiness;
mod recipes;
mod request_lines;
mod server;
mod stops;
mod urls;
