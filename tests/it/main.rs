//! Tests of the whole service from outside, in one binary.
//!
//! | Module | Contents |
//! |---|---|
//! | `resilience` | the service under attack, or without a resource that it needs |
//! | `cluster` | several nodes as one service, with and without attacks |
//! | `repository` | the repository itself: its promises and packages |
//!
//! The tests of one crate are in the folder of its name in `tests/`. `strata-testing` in `tests/support` contains code
//! that tests share, and `strata-reference` in `tests/reference` contains a naive implementation of the rules.

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]
#![allow(clippy::large_futures, reason = "a test polls few futures")]

mod cli;
#[cfg(target_os = "linux")]
mod cluster;
mod dashboard;
mod documentation;
mod encode;
mod http;
mod metrics;
mod repository;
mod resilience;
mod service;
