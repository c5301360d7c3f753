//! Principals: the users and client networks to which permits, memory, and disk space are charged.

use std::net::IpAddr;

use strata_types::ids::UserId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// A user, identified by a session, a token, a private key of the user's datasets, or a job of the user.
    User(UserId),
    /// The operator on the command line, who counts as one more user.
    Operator,
    /// All clients in one network that are not identified as users.
    Anonymous(ClientNetwork),
    /// The hash of another principal. Queries have hashed principals, because they can come from another node.
    Hashed(HashedPrincipal),
}

/// A keyed hash of a principal that is the same on all nodes and does not disclose the principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HashedPrincipal {
    pub key: u64,
    pub is_anonymous: bool,
}

/// The network of a client. Rate limits and limits for anonymous clients apply to the whole network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientNetwork {
    /// An IPv4 address, including an IPv4-mapped IPv6 address (`::ffff:a.b.c.d`).
    V4([u8; 4]),
    /// A 64-bit IPv6 network, the smallest one that a subscriber gets.
    V6([u8; 8]),
    /// All requests that did not arrive over a network, as if they came from one client.
    Unspecified,
    /// The keyed hash of an account, which rate limits count like an address.
    HashedAccount(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrincipalClass {
    User,
    Anonymous,
}

impl PrincipalClass {
    pub(crate) fn opposite(self) -> PrincipalClass {
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
            Principal::Hashed(hashed) => hashed.is_anonymous,
        }
    }

    pub(crate) fn class(self) -> PrincipalClass {
        if self.is_anonymous() { PrincipalClass::Anonymous } else { PrincipalClass::User }
    }
}

impl From<IpAddr> for ClientNetwork {
    fn from(address: IpAddr) -> ClientNetwork {
        match address.to_canonical() {
            IpAddr::V4(address) => ClientNetwork::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                ClientNetwork::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}
