//! Headers as plain data, independent of endpoints.
//!
//! | Module | Holds |
//! |---|---|
//! | `auth` | `Authorization` |
//! | `base_url` | `Host`, `Origin`: the URL at which the client reaches the service |
//! | `client_ip` | whose request it is: the peer, `X-Forwarded-For`, `Forwarded` |
//! | `content_encoding` | `Accept-Encoding`: which coding of a body |
//! | `range` | `Range` and `If-Range`: which part of a body |
//! | `caching` | `ETag`, `If-None-Match`, `Cache-Control`, `Vary`: what caches may keep of an answer |
//! | `cors` | which origins may read an answer |

pub(super) mod auth;
pub(super) mod base_url;
pub(super) mod caching;
pub(super) mod client_ip;
pub mod content_encoding;
pub(super) mod cors;
pub mod range;
