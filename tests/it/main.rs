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
mod loopback_server;
mod net;
mod openapi;
mod params;
mod pipeline;
mod postgres;
mod query;
mod read;
mod read_limits;
mod refresh;
mod refresh_sources;
mod storage;
mod support;
mod tools;
mod twin;
mod webhook_sender;
