//! `[net]`: where outgoing requests may go.

use ipnet::IpNet;
use serde::Deserialize;

use super::option::{OptionKind, OptionValue, section};

section! {
    /// Where outgoing requests may go.
    Net in "net" {
        /// Networks that sources and webhooks may be in besides public ones, as `10.0.0.0/8`, `fd00::/8` or a single
        /// address; none when not given.
        allow: Networks = Networks::default();
    }
}

/// Networks, each an address and a prefix length; an address alone is a network of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// The networks, their host bits cleared.
    pub fn as_slice(&self) -> &[IpNet] {
        &self.0
    }
}

impl From<Vec<IpNet>> for Networks {
    fn from(networks: Vec<IpNet>) -> Self {
        Self(networks.iter().map(IpNet::trunc).collect())
    }
}

impl TryFrom<Vec<String>> for Networks {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Self, String> {
        let parse = |text: &String| {
            let address = || text.parse().ok().map(|address: std::net::IpAddr| IpNet::from(address));
            text.parse()
                .ok()
                .or_else(address)
                .ok_or_else(|| format!("{text:?} is not a network, such as 10.0.0.0/8 or fd00::/8, nor an address"))
        };
        texts.iter().map(parse).collect::<Result<Vec<IpNet>, String>>().map(Networks::from)
    }
}

impl OptionValue for Networks {
    const KIND: OptionKind = OptionKind::List;

    fn shown(&self) -> Option<String> {
        let networks: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        (!networks.is_empty()).then(|| networks.join(", "))
    }
}
