//! Tokens with which the nodes of a cluster authenticate their calls.

use strata_cluster::token::{NodeSecret, RequestClaims};
pub use strata_cluster::token::{TOKEN_HEADER, unix_now_s};
use strata_types::secret::Secret;

/// A call between nodes.
#[derive(Clone, Copy)]
pub struct NodeCall<'a> {
    pub sender: &'a str,
    pub receiver: &'a str,
    /// The path, which is called with POST.
    pub target: &'a str,
    /// The user for whom the node works; empty for none.
    pub user: &'a str,
}

/// Returns the token of a call by a node with this secret. `time_s` is a Unix time in seconds.
pub fn node_token(secret: &str, call: NodeCall<'_>, time_s: u64) -> String {
    let secret = NodeSecret::new(Secret::from_stored(secret.to_owned()));
    let claim = RequestClaims { receiver: call.receiver, method: "POST", target: call.target, tenant: call.user };
    secret.create_token(call.sender, &claim, time_s).expect("missing token")
}
