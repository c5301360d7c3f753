//! Keyed hashes of principals, for queries that several nodes of a cluster execute.
//!
//! A node that helps with a query of another node charges it to the principal of the query. The other node sends a hash
//! and not a user ID or an address. Nodes with the same `cluster.secret` compute the same hash, so a client has one
//! share of a node's memory, regardless of which nodes it sends requests to. Because the hash has a key, no client can
//! choose an address whose hash is that of another client.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use strata_cluster::token::NodeSecret;
use strata_limits::HashedPrincipal;

use crate::{Client, Principal};

#[derive(Clone)]
pub(crate) struct PrincipalHasher {
    keyed: SipHasher13,
}

impl PrincipalHasher {
    /// Without a secret, the hashes are specific to this process.
    pub(crate) fn new(secret: Option<&NodeSecret>) -> PrincipalHasher {
        let key = secret.and_then(|secret| secret.key("tenants")).unwrap_or_else(rand::random);
        PrincipalHasher { keyed: SipHasher13::new_with_key(&key) }
    }

    pub(crate) fn hash(&self, principal: Principal) -> HashedPrincipal {
        // Not with the trait `Hash`, whose bytes can differ between machines.
        let (kind, bytes): (u8, &[u8]) = match &principal {
            Principal::User(user) => (0, &user.get().to_le_bytes()),
            Principal::Operator => (1, &[]),
            Principal::Anonymous(Client::V4(address)) => (2, address),
            Principal::Anonymous(Client::V6(network)) => (3, network),
            Principal::Anonymous(Client::Unspecified) => (4, &[]),
            Principal::Anonymous(Client::Account(account)) => (5, &account.to_le_bytes()),
            Principal::Hashed(hashed) => return *hashed,
        };
        let mut hasher = self.keyed;
        hasher.write(&[kind]);
        hasher.write(bytes);
        HashedPrincipal { key: hasher.finish(), anonymous: principal.is_anonymous() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use strata_types::ids::UserId;
    use strata_types::secret::Secret;

    fn principals() -> Vec<Principal> {
        let mut principals = vec![Principal::Operator, Principal::Anonymous(Client::Unspecified)];
        principals.extend((1..100).map(|id| Principal::User(UserId::new(id))));
        principals.extend((0..100).map(|last| Principal::Anonymous(Client::V4([10, 0, 0, last]))));
        principals.extend((0..100).map(|last| Principal::Anonymous(Client::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, last]))));
        principals.push(Principal::Anonymous(Client::Account(7)));
        principals
    }

    fn hashes(hasher: &PrincipalHasher) -> Vec<HashedPrincipal> {
        principals().into_iter().map(|principal| hasher.hash(principal)).collect()
    }

    #[test]
    fn nodes_with_one_secret_compute_equal_hashes() {
        let with = |text: &str| PrincipalHasher::new(Some(&NodeSecret::new(Secret::from_stored(text.to_owned()))));
        let one = with("a secret of the nodes");
        assert_eq!(hashes(&one), hashes(&with("a secret of the nodes")));
        let keys = |hasher: &PrincipalHasher| hashes(hasher).iter().map(|hashed| hashed.key).collect::<HashSet<_>>();
        assert_eq!(keys(&one).len(), principals().len(), "hashes are distinct");
        let others = [with("another secret"), PrincipalHasher::new(None), PrincipalHasher::new(None)];
        for (number, hasher) in others.iter().enumerate() {
            assert!(keys(hasher).is_disjoint(&keys(&one)), "{number}");
        }
        assert!(keys(&others[1]).is_disjoint(&keys(&others[2])));
        // During an upgrade, old and new nodes must agree.
        let user = one.hash(Principal::User(UserId::new(7)));
        assert_eq!(user, HashedPrincipal { key: KEY_OF_USER_7, anonymous: false });
    }

    const KEY_OF_USER_7: u64 = 2_906_982_212_557_779_888;
}
