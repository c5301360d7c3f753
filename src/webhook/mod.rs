//! The POST that tells a dataset's owner of a new version: its body, its signature, and sending it once.
//!
//! When one is due, to whom, and what came of it is the catalog's to know. Rules: docs/semantics.md, Webhooks.

mod payload;
mod send;
mod signature;

pub use self::payload::RefreshEvent;
pub use self::send::WebhookSender;
pub use self::signature::{SIGNATURE_HEADER, sign};
