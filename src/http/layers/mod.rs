//! The layers around every handler.
//!
//! | Module | Holds |
//! |---|---|
//! | `access_log` | the id of each request, its line in the log, and its metrics |
//! | `drain` | bodies that nobody takes: read to their end, within bounds |
//! | `host` | requests without the header `Host` |
//! | `panics` | a panic as an answer |

pub(super) mod access_log;
pub(super) mod drain;
pub(super) mod host;
pub(super) mod panics;
