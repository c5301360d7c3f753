//! The one integration-test binary: a module per area, so that the crate is linked once.

mod catalog;
mod cli;
mod conditional;
mod config;
mod document;
mod encode;
mod examples;
mod http;
mod layers;
mod metrics;
mod openapi;
mod params;
mod pipeline;
mod postgres;
mod query;
mod read;
mod read_limits;
mod refresh;
mod server;
mod storage;
mod support;
mod tools;
mod twin;
