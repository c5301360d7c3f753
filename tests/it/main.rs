//! The one integration-test binary, so that the crate is linked once: a module for each layer of `src/`, and
//!
//! | Module | Holds |
//! |---|---|
//! | `resilience` | the whole service under attack, or without what it needs |
//! | `cluster` | several servers as one service, in quiet and under attack |
//! | `repository` | what holds of the repository itself |
//! | `reference` | the rules once more, naive and independent of the service |
//! | `support` | what tests share |

#![allow(unreachable_pub, reason = "nothing is exported: `pub` is for the other modules")]

mod catalog;
mod cli;
#[cfg(target_os = "linux")]
mod cluster;
mod config;
mod dashboard;
mod diff;
mod document;
mod documentation;
mod encode;
mod http;
mod metrics;
mod net;
mod query;
#[allow(dead_code, reason = "the fuzz targets use the rest of it")]
mod reference;
mod repository;
mod resilience;
mod service;
mod source;
mod storage;
mod support;
mod webhook;
