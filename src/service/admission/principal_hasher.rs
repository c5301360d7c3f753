//! Keyed hashes of principals, for queries that several nodes of a cluster execute.
//!
//! A node that runs a task of another node charges the principal of the query. The other node sends a hash of the
//! principal, not a user ID or an address. Nodes with the same `cluster.secret` compute the same hash, so a client has
//! one share of a node's memory, regardless of which nodes it sends requests to. Because the hash has a key, no client
//! can choose an address whose hash collides with another client.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use strata_cluster::token::NodeSecret;
use strata_limits::HashedPrincipal;

use crate::{ClientNetwork, Principal};

#[derive(Clone)]
pub(crate) struct PrincipalHasher {
    keyed_hasher: SipHasher13,
}

impl PrincipalHasher {
    /// Creates a hasher with the key of the cluster. Without a secret, the key is random, so that only clones of the
    /// hasher compute the same hashes.
    pub(crate) fn new(secret: Option<&NodeSecret>) -> PrincipalHasher {
        let key = secret.and_then(|secret| secret.derive_key("tenants")).unwrap_or_else(rand::random);
        PrincipalHasher { keyed_hasher: SipHasher13::new_with_key(&key) }
    }

    pub(crate) fn hash(&self, principal: Principal) -> HashedPrincipal {
        // The hashed bytes are chosen here, because the trait `Hash` writes bytes that can differ between machines.
        let (kind, bytes): (u8, &[u8]) = match &principal {
            Principal::User(user) => (0, &user.get().to_le_bytes()),
            Principal::Operator => (1, &[]),
            Principal::Anonymous(ClientNetwork::V4(address)) => (2, address),
            Principal::Anonymous(ClientNetwork::V6(network)) => (3, network),
            Principal::Anonymous(ClientNetwork::Unspecified) => (4, &[]),
            Principal::Anonymous(ClientNetwork::HashedAccount(account)) => (5, &account.to_le_bytes()),
            Principal::Hashed(hashed) => return *hashed,
        };
        let mut hasher = self.keyed_hasher;
        hasher.write(&[kind]);
        hasher.write(bytes);
        HashedPrincipal { key: hasher.finish(), is_anonymous: principal.is_anonymous() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use strata_types::ids::UserId;
    use strata_types::secret::Secret;

    fn principals() -> Vec<Principal> {
        let mut principals = vec![Principal::Operator, Principal::Anonymous(ClientNetwork::Unspecified)];
        principals.extend((1..100).map(|id| Principal::User(UserId::new(id))));
        principals.extend((0..100).map(|last| Principal::Anonymous(ClientNetwork::V4([10, 0, 0, last]))));
        principals
            .extend((0..100).map(|last| Principal::Anonymous(ClientNetwork::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, last]))));
        principals.push(Principal::Anonymous(ClientNetwork::HashedAccount(7)));
        principals
    }

    fn hashes(hasher: &PrincipalHasher) -> Vec<HashedPrincipal> {
        principals().into_iter().map(|principal| hasher.hash(principal)).collect()
    }

    #[test]
    fn nodes_with_one_secret_compute_equal_hashes() {
        let with_secret =
            |secret: &str| PrincipalHasher::new(Some(&NodeSecret::new(Secret::from_stored(secret.to_owned()))));
        let hasher = with_secret("a secret of the nodes");
        assert_eq!(hashes(&hasher), hashes(&with_secret("a secret of the nodes")));
        let keys = |hasher: &PrincipalHasher| hashes(hasher).iter().map(|hashed| hashed.key).collect::<HashSet<_>>();
        assert_eq!(keys(&hasher).len(), principals().len(), "hashes are distinct");
        let others = [with_secret("another secret"), PrincipalHasher::new(None), PrincipalHasher::new(None)];
        for (number, other) in others.iter().enumerate() {
            assert!(keys(other).is_disjoint(&keys(&hasher)), "{number}");
        }
        assert!(keys(&others[1]).is_disjoint(&keys(&others[2])));
        // During an upgrade, old and new nodes must compute the same hash.
        let user = hasher.hash(Principal::User(UserId::new(7)));
        assert_eq!(user, HashedPrincipal { key: KEY_OF_USER_7, is_anonymous: false });
    }

    const KEY_OF_USER_7: u64 = 2_906_982_212_557_779_888;
}
