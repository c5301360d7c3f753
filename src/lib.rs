//! strata serves versioned datasets of schemaless JSON entities.
//!
//! A dataset is refreshed from a source. Every refresh makes a new, permanent version: one immutable Parquet file. One
//! endpoint reads a version. Each request becomes a DataFusion plan over that file. The selected entities are copied
//! out of it, byte for byte.
//!
//! # Map
//!
//! | Module | Is for |
//! |---|---|
//! | [`cli`] | the command line: one file per command |
//! | [`dashboard`] | pages for people |
//! | [`http`] | the server: routes, query parameters, management, tools for agents, OpenAPI, errors |
//! | [`service`] | the use cases; the only place that combines the parts below |
//! | [`diff`] | two versions matched, on the query engine |
//! | [`cluster`] | what the processes of one service have in common besides catalog and store |
//! | [`query`] | a request as a DataFusion plan; the selection; documents fetched last; what a plan did |
//! | [`encode`] | documents to the bytes of an answer, one file per format |
//! | [`source`] | sources: fetch, decompress, decode |
//! | [`webhook`] | the POST after a refresh: its body, signature and delivery |
//! | [`catalog`] | users, datasets, versions in SQLite or PostgreSQL; the only SQL |
//! | [`storage`] | version files: layout, profile, keyword index, shapes, writer, reader, cache |
//! | [`net`] | outgoing requests: which addresses they may reach |
//! | [`strata_json`] | a crate of its own: one entity as JSON text, pure functions over bytes |
//! | [`config`] | the configuration, parsed once |
//! | [`metrics`] | what the service measures about itself |
//! | [`memory`] | how much memory the process may use |
//! | [`crash`] | where tests end the process |
//! | [`priority`] | threads that give way |
//! | [`strata_types`] | a crate of its own: plain types that all share |
//!
//! # The layer rule
//!
//! A module uses only modules of lower layers, none of its own or of a higher layer: `cli` > `dashboard` > `http` >
//! `service` > {`diff`, `cluster`} > {`query`, `encode`, `source`, `webhook`, `catalog`} > {`storage`, `net`} >
//! {`config`, `metrics`, `crash`, `memory`, `priority`}. A test reads the sources and checks it. The crates
//! `strata-json` and, below it, `strata-types` use none of them.
//!
//! # Where to add things
//!
//! | To add | Write |
//! |---|---|
//! | a query parameter | one file in `http/params/` and its registry line |
//! | a step of the pipeline | its place in `query/plan/pipeline.rs` |
//! | an output format | one file in `encode/` and its arm in `encode::text_encoder` |
//! | a source format | one file in `source/` and its arm in `source::open_as` |
//! | a migration | the same-named file in both folders of `sql/` |
//! | an operation of owners, or a field of one | its `Endpoint` and its handler, beside each other in `http/management/` |
//! | a tool for agents | one function in `http/mcp/` and its line in `http/mcp/tools.rs` |
//! | a page of the dashboard | one file in `dashboard/`, its template in `dashboard/templates/`, its route in `dashboard/mod.rs` |
//! | an error status | an arm of the one match in `http/error/` |
//! | a command | one file in `cli/` and its arm in `cli/mod.rs` |
//! | a configuration option | one documented field in a file of `config/`; its case in `tests/it/resilience/limits/options.rs` if it bounds requests |
//! | a fixed limit | one entry in `types/limits.rs`, its case in `tests/it/resilience/limits/fixed.rs` |
//! | a metric | one documented field in `metrics/mod.rs` |

#![warn(clippy::large_futures)]

pub mod blocking;
pub mod catalog;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod crash;
pub mod dashboard;
pub mod diff;
pub mod encode;
pub mod http;
pub mod memory;
pub mod metrics;
pub mod net;
pub mod priority;
pub mod query;
pub mod service;
pub mod source;
pub mod storage;
pub mod webhook;
