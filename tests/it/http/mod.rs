//! The server: routes, parameters, headers, connections.

mod agent_tools;
mod clients;
mod compression;
mod conditional;
mod downloads;
mod examples;
mod file_digests;
mod management;
mod mcp;
mod openapi;
mod pages;
mod ranges;
mod read;
mod read_limits;
mod readiness;
mod recipes;
mod server;
mod stops;
mod urls;
