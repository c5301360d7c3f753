//! Tests of sources and request bodies that attack the service, for example with endless bodies or unresponsive name
//! servers.

mod bodies;
mod memory;
mod names;
mod queries;
