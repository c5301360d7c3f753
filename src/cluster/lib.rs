//! Cooperation of the nodes of a service: registration, distributed queries, mutual TLS, node tokens and Redis.

pub mod affinity;
pub mod distributed;
pub mod identity;
pub mod nodes;
pub mod redis;
pub mod tls;
pub mod token;
