//! The one integration-test binary: a module per area, so that the crate is linked once.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod agents;
mod alternates;
mod binding;
mod catalog;
mod catalog_damage;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod catalog_faults;
mod catalog_unavailable;
mod circles;
mod cli;
mod compression;
mod conditional;
mod config;
mod connections;
mod crash;
mod damage;
mod diff;
mod diffs;
mod docs;
mod document;
mod encode;
mod examples;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exhaustion;
mod explain;
mod fair;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod faultfs;
mod faults;
mod fields;
mod held;
mod hostile_sources;
mod http;
mod layers;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod leftovers;
mod limits;
mod loopback_server;
mod maintenance;
mod management;
mod many_conditions;
mod mcp;
mod metrics;
mod net;
mod openapi;
mod packaging;
mod params;
mod pipeline;
mod postgres;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod power_loss;
mod private_files;
mod profile;
mod query;
mod ranges;
mod read;
mod read_limits;
mod readiness;
mod refresh;
mod refresh_sources;
mod refreshes;
mod request_lines;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod s3_server;
mod security;
mod server;
mod stops;
mod storage;
mod support;
mod tools;
mod tuning;
mod twin;
mod urls;
mod webhook_sender;
