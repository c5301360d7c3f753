//! As whom the query engine knows holders: by a number that tells them apart and tells nobody who they are.
//!
//! Servers with the same `cluster.secret` give a holder the same number. So a client has one share of a server's memory
//! and permits, whether it asked that server, or others whose queries that one helps with. The numbers are hashes with
//! a key, so that nobody can choose an address that has the number of somebody else.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;
use strata_cluster::token::NodeSecret;
use strata_query::Tenant;

use crate::admission::holder::Holder;
use crate::rate_limit::Client;

#[derive(Clone)]
pub(crate) struct TenantNumbers {
    keyed: SipHasher13,
}

impl TenantNumbers {
    /// The same as with all servers of this secret; without one, others than those of any other process.
    pub(crate) fn of(secret: Option<&NodeSecret>) -> TenantNumbers {
        let key = secret.and_then(|secret| secret.key("tenants")).unwrap_or_else(rand::random);
        TenantNumbers { keyed: SipHasher13::new_with_key(&key) }
    }

    pub(crate) fn tenant(&self, holder: Holder) -> Tenant {
        // Not by `Hash`, whose bytes may be others on another machine.
        let (kind, bytes): (u8, &[u8]) = match &holder {
            Holder::User(user) => (0, &user.get().to_le_bytes()),
            Holder::Operator => (1, &[]),
            Holder::Anonymous(Client::V4(address)) => (2, address),
            Holder::Anonymous(Client::V6(network)) => (3, network),
            Holder::Anonymous(Client::Unspecified) => (4, &[]),
            Holder::Anonymous(Client::Account(account)) => (5, &account.to_le_bytes()),
        };
        let mut hasher = self.keyed;
        hasher.write(&[kind]);
        hasher.write(bytes);
        Tenant { key: hasher.finish(), anonymous: holder.is_anonymous() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use strata_types::ids::UserId;
    use strata_types::secret::Secret;

    fn holders() -> Vec<Holder> {
        let user = |id| Holder::User(UserId::new(id));
        let mut holders = vec![Holder::Operator, Holder::Anonymous(Client::Unspecified)];
        holders.extend((1..100).map(user));
        holders.extend((0..100).map(|last| Holder::Anonymous(Client::V4([10, 0, 0, last]))));
        holders.extend((0..100).map(|last| Holder::Anonymous(Client::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, last]))));
        holders.push(Holder::Anonymous(Client::Account(7)));
        holders
    }

    fn tenants(numbers: &TenantNumbers) -> Vec<Tenant> {
        holders().into_iter().map(|holder| numbers.tenant(holder)).collect()
    }

    #[test]
    fn a_holder_is_the_same_tenant_at_every_server_of_a_secret() {
        let with = |text: &str| TenantNumbers::of(Some(&NodeSecret::new(Secret::from_stored(text.to_owned()))));
        let (one, other) = (with("a secret of the nodes"), with("a secret of the nodes"));
        assert_eq!(tenants(&one), tenants(&other));
        let keys = |numbers: &TenantNumbers| tenants(numbers).iter().map(|tenant| tenant.key).collect::<HashSet<_>>();
        assert_eq!(keys(&one).len(), holders().len(), "each has a number of its own");
        let nobody_knows = [with("another secret"), TenantNumbers::of(None), TenantNumbers::of(None)];
        for (number, numbers) in nobody_knows.iter().enumerate() {
            assert!(keys(numbers).is_disjoint(&keys(&one)), "{number}");
        }
        assert!(keys(&nobody_knows[1]).is_disjoint(&keys(&nobody_knows[2])));
        // Whoever changes this parts a service while its servers are replaced.
        let user = one.tenant(Holder::User(UserId::new(7)));
        assert_eq!(user, Tenant { key: KEY_OF_USER_7, anonymous: false });
    }

    const KEY_OF_USER_7: u64 = 2_906_982_212_557_779_888;
}
