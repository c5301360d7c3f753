//! The POST that tells a dataset's owner of a new version: its body, its signature, and how it is sent once.
//!
//! The catalog knows when a POST is due, where it goes, and its outcome. Rules: docs/semantics.md, Webhooks.

mod payload;
mod send;
mod signature;

pub use self::payload::RefreshEvent;
pub use self::send::WebhookSender;
pub use self::signature::{SIGNATURE_HEADER, sign};
