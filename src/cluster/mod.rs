//! What the processes of one service have in common besides catalog and store.
//!
//! | Module | Holds |
//! |---|---|
//! | `address` | how a server registers where it is reached |
//! | [`affinity`] | which node something belongs to |
//! | `distributed` | large queries that other nodes help with |
//! | `identity` | the name of this server |
//! | `nodes` | the servers of the service: names, roles, signs of life |
//! | `redis` | a connection to Redis that is kept up, and calls that never wait for long |
//! | [`tls`] | TLS between servers, and the files of its certificates |
//! | [`token`] | what proves that a request is from a server of the service |

mod address;
pub mod affinity;
pub mod distributed;
pub mod identity;
pub mod nodes;
pub mod redis;
pub mod tls;
pub mod token;
