//! What the processes of one service have in common besides catalog and store.

pub mod affinity;
pub mod distributed;
pub mod identity;
pub mod nodes;
pub mod redis;
pub mod tls;
pub mod token;
