//! For whom the units of gates are held.

use strata_types::ids::UserId;

use crate::rate_limit::Client;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A user: by a session or a token, by the private key of one of the user's datasets, or by what runs for one.
    User(UserId),
    /// Who uses the command line, as one more user.
    Operator,
    /// All clients of a network: an IPv4 address or an IPv6 network of 64 bits.
    Anonymous(Client),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderKind {
    User,
    Anonymous,
}

impl HolderKind {
    pub(crate) fn other(self) -> HolderKind {
        match self {
            HolderKind::User => HolderKind::Anonymous,
            HolderKind::Anonymous => HolderKind::User,
        }
    }
}

impl Holder {
    pub(crate) fn is_anonymous(self) -> bool {
        self.kind() == HolderKind::Anonymous
    }

    pub(crate) fn kind(self) -> HolderKind {
        match self {
            Holder::User(_) | Holder::Operator => HolderKind::User,
            Holder::Anonymous(_) => HolderKind::Anonymous,
        }
    }
}
