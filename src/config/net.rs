//! `[net]`: limits of outgoing requests.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::option::{checked_type, section};

section! {
    /// Limits of outgoing requests.
    NetworkConfig in "net" {
        /// Networks and addresses, such as `10.0.0.0/8` or `fd00::/8`, that sources and webhooks can use in addition to
        /// public addresses. By default, strata connects only to public addresses.
        allow: AllowedNetworks = AllowedNetworks::default();
        /// Name servers, such as `192.0.2.53` or `[2001:db8::53]:5353`, that look up the hosts of sources and webhooks.
        /// The default is the list in `/etc/resolv.conf`. strata checks the hosts file first. For the metadata database
        /// and the store, strata uses the operating system's resolver.
        name_servers: NameServers = NameServers::default();
        /// Maximum number of concurrent host name lookups.
        look_ups: u64 = 256, within 1..=100_000;
        /// Maximum number of concurrent host name lookups for one user's sources and webhooks.
        user_look_ups: u64 = 16, within 1..=100_000;
        /// Maximum time in seconds for one host name lookup, including the time in the queue.
        look_up_timeout_s: u64 = 5, within 1..=60;
    }
}

checked_type! {
    /// Addresses of name servers in the configured order. The default port is 53.
    #[derive(Debug, Default, Eq)]
    NameServers(Vec<SocketAddr>) from Vec<String> => as_slice -> [SocketAddr], |texts| {
        const DNS_PORT: u16 = 53;
        let parse = |text: &String| {
            let address = || text.parse().ok().map(|address: IpAddr| SocketAddr::new(address, DNS_PORT));
            text.parse().ok().or_else(address).ok_or_else(|| {
                format!(
                    "{text:?} is not the address of a name server; expected a value such as 192.0.2.53 or \
                     [2001:db8::53]:5353"
                )
            })
        };
        texts.iter().map(parse).collect()
    }
}

checked_type! {
    /// IP networks whose host bits are zero. An address without a prefix length is a network of one address.
    #[derive(Debug, Default, Eq)]
    AllowedNetworks(Vec<IpNet>) from Vec<String> => as_slice -> [IpNet], |texts| {
        let parse = |text: &String| {
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.map(|network| network.trunc()).map_err(|_| {
                format!("{text:?} is not an address or a network; expected a value such as 10.0.0.0/8 or fd00::/8")
            })
        };
        texts.iter().map(parse).collect()
    }
}

impl From<Vec<IpNet>> for AllowedNetworks {
    fn from(networks: Vec<IpNet>) -> Self {
        Self(networks.iter().map(IpNet::trunc).collect())
    }
}
