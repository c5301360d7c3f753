//! Helpers that all tests share.

#![allow(clippy::new_without_default, reason = "a test makes each of these once, by name")]

pub mod agents;
pub mod api_reference;
pub mod binary;
pub mod catalog;
pub mod certificates;
pub mod databases;
pub mod diffs;
pub mod engines;
pub mod entities;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod faultfs;
pub mod files;
pub mod fixtures;
pub mod forged_parquet;
pub mod html;
pub mod keywords;
pub mod log;
pub mod loopback_server;
pub mod machine;
pub mod maintenance;
pub mod metrics;
pub mod network;
pub mod node_tokens;
pub mod openapi;
pub mod owned;
pub mod packed;
pub mod pages;
pub mod persistent_clients;
pub mod postgres;
pub mod reads;
pub mod recording_proxy;
pub mod redis;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub mod s3_server;
pub mod scripts;
pub mod service;
pub mod serving;
pub mod tests;
pub mod versions;
pub mod wait;
pub mod watched_store;
pub mod waves;

pub use files::{files, seal};
pub use fixtures::{FIXTURE_FILES, FIXTURES, fixture, fixture_entities};
pub use log::CapturedLog;
pub use network::{http_client, loopback, loopback_client};
pub use service::{Answer, DEMO_OWNER, ImportedSource, OWNER, PASSWORD, TestService};
pub use wait::{comes_about, eventually};
