//! What the processes of one service have in common besides catalog and store.
//!
//! | Module | Holds |
//! |---|---|
//! | `redis` | a connection to Redis that is kept up, and calls that never wait for long |

pub mod redis;
