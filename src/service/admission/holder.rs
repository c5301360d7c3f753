//! For whom the units of gates are held.

use crate::model::ids::UserId;
use crate::service::rate_limit::Client;

/// For whom units are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A user: by a session or a token, by the private key of one of the user's datasets, or by what runs for one.
    User(UserId),
    /// Who uses the command line, as one more user.
    Operator,
    /// All clients of a network: an IPv4 address or an IPv6 network of 64 bits.
    Anonymous(Client),
}

/// The two kinds of holders that take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::service) enum HolderKind {
    User,
    Anonymous,
}

impl HolderKind {
    pub(in crate::service) fn other(self) -> HolderKind {
        match self {
            HolderKind::User => HolderKind::Anonymous,
            HolderKind::Anonymous => HolderKind::User,
        }
    }
}

impl Holder {
    /// It as a word, for other servers of the service.
    pub(in crate::service) fn name(self) -> String {
        match self {
            Holder::User(user) => format!("user:{}", user.get()),
            Holder::Operator => "operator".to_owned(),
            Holder::Anonymous(Client::V4(address)) => format!("v4:{}", hex::encode(address)),
            Holder::Anonymous(Client::V6(network)) => format!("v6:{}", hex::encode(network)),
            Holder::Anonymous(Client::Unspecified) => "unspecified".to_owned(),
            Holder::Anonymous(Client::Account(account)) => format!("account:{account}"),
        }
    }

    /// The holder of a name; `None` if it is nobody's.
    pub fn of_name(name: &str) -> Option<Holder> {
        let bytes = |text: &str| hex::decode(text).ok();
        Some(match name.split_once(':') {
            None if name == "operator" => Holder::Operator,
            None if name == "unspecified" => Holder::Anonymous(Client::Unspecified),
            Some(("user", id)) => Holder::User(UserId::new(id.parse().ok()?)),
            Some(("v4", address)) => Holder::Anonymous(Client::V4(bytes(address)?.try_into().ok()?)),
            Some(("v6", network)) => Holder::Anonymous(Client::V6(bytes(network)?.try_into().ok()?)),
            Some(("account", account)) => Holder::Anonymous(Client::Account(account.parse().ok()?)),
            _ => return None,
        })
    }

    /// Whether it is nobody known.
    pub(in crate::service) fn is_anonymous(self) -> bool {
        self.kind() == HolderKind::Anonymous
    }

    pub(in crate::service) fn kind(self) -> HolderKind {
        match self {
            Holder::User(_) | Holder::Operator => HolderKind::User,
            Holder::Anonymous(_) => HolderKind::Anonymous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_a_name_of_its_own() {
        let clients = [Client::V6([1, 2, 3, 4, 5, 6, 7, 255]), Client::Unspecified, Client::Account(u64::MAX)];
        let anonymous =
            clients.map(Holder::Anonymous).into_iter().chain([Holder::Anonymous(Client::V4([192, 0, 2, 7]))]);
        for holder in anonymous.chain([Holder::User(UserId::new(7)), Holder::Operator]) {
            let name = holder.name();
            assert!(!name.contains(' '), "{name}");
            assert_eq!(Holder::of_name(&name), Some(holder), "{name}");
        }
        for wrong in ["", "user", "user:", "user:x", "user:-1", "v4:00", "v4:zz", "v6:", "operator:1", "admin"] {
            assert_eq!(Holder::of_name(wrong), None, "{wrong}");
        }
    }
}
