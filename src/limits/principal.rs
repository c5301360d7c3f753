//! Who units are charged to.

use std::net::IpAddr;

use strata_types::ids::UserId;

/// A user or a client network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A user: identified by a session, a token, the private key of a dataset of the user, or a job that runs for one.
    User(UserId),
    /// Who uses the command line. Counts as one more user.
    Operator,
    /// All clients without a user in one network.
    Anonymous(Client),
    /// Any of the above in a query, which can come from another node.
    Hashed(HashedPrincipal),
}

/// A principal as all nodes of a cluster know it, by a keyed hash that does not disclose who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashedPrincipal {
    pub key: u64,
    pub anonymous: bool,
}

/// The network of a client. Rate limits and limits for anonymous clients apply to all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// An IPv4 address, or the IPv6 address that is mapped to it (`::ffff:a.b.c.d`).
    V4([u8; 4]),
    /// An IPv6 network of 64 bits, the least that a subscriber gets.
    V6([u8; 8]),
    /// All requests that did not arrive over a network.
    Unspecified,
    /// The keyed hash of an account, which rate limits count like an address.
    Account(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrincipalClass {
    User,
    Anonymous,
}

impl PrincipalClass {
    pub(crate) fn other(self) -> PrincipalClass {
        match self {
            PrincipalClass::User => PrincipalClass::Anonymous,
            PrincipalClass::Anonymous => PrincipalClass::User,
        }
    }
}

impl Principal {
    pub fn is_anonymous(self) -> bool {
        match self {
            Principal::User(_) | Principal::Operator => false,
            Principal::Anonymous(_) => true,
            Principal::Hashed(hashed) => hashed.anonymous,
        }
    }

    pub(crate) fn class(self) -> PrincipalClass {
        if self.is_anonymous() { PrincipalClass::Anonymous } else { PrincipalClass::User }
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Client {
        match address.to_canonical() {
            IpAddr::V4(address) => Client::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Client::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}
