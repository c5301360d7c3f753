//! The one integration-test binary: a module per area, so that the crate is linked once.

mod catalog;
mod cli;
mod config;
mod document;
mod http;
mod layers;
mod params;
mod postgres;
mod refresh;
mod twin;
