//! The tokens by which the servers of a cluster prove to each other that a call is theirs.

use strata_cluster::token::{Claim, NodeSecret};
pub use strata_cluster::token::{TOKEN_HEADER, now_s};
use strata_types::secret::Secret;

/// A call from one server to another.
#[derive(Clone, Copy)]
pub struct NodeCall<'a> {
    pub sender: &'a str,
    pub receiver: &'a str,
    /// The path, which is called by POST.
    pub target: &'a str,
    /// The user for whom the sender works; empty for no user.
    pub user: &'a str,
}

/// The token of a call at a time, in seconds since 1970, by a server that has this secret.
pub fn node_token(secret: &str, call: NodeCall<'_>, time_s: u64) -> String {
    let secret = NodeSecret::new(Secret::from_stored(secret.to_owned()));
    let claim = Claim { receiver: call.receiver, method: "POST", target: call.target, said: call.user };
    secret.token(call.sender, &claim, time_s).expect("a token")
}
