//! Decides which addresses outgoing requests may reach: public ones, and those that the operator has allowed. The rules
//! follow the IANA registries of special-purpose IPv4 and IPv6 addresses. An IPv4 address is public unless it is
//! listed. An IPv6 address is public if it is global unicast (2000::/3) and not listed. If an IPv6 address contains an
//! IPv4 address to which a translator or router forwards the packets, the rules apply to the IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allowed_networks: Arc<[IpNet]>,
}

impl AddressPolicy {
    pub fn new(allowed: impl IntoIterator<Item = IpNet>) -> Self {
        Self { allowed_networks: allowed.into_iter().collect() }
    }

    /// Returns the kind of the address, such as `a private address`, as an error if outgoing requests may not reach it.
    pub fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        // ::ffff:a.b.c.d is another spelling of a.b.c.d.
        let address = address.to_canonical();
        if self.allowed_networks.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        match address {
            IpAddr::V4(address) => check_v4(address),
            IpAddr::V6(address) => match embedded_v4_addresses(address) {
                Some(embedded) => embedded.into_iter().try_for_each(|inner| self.check(IpAddr::V4(inner))),
                None => check_v6(address)
                    .and_then(|()| isatap_v4_address(address).map_or(Ok(()), |inner| self.check(IpAddr::V4(inner)))),
            },
        }
    }
}

/// The kind of the addresses at which cloud providers serve the credentials of machines.
const METADATA_SERVICE_REASON: &str = "a cloud metadata service";

const METADATA_V4_ADDRESSES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    // The address 168.63.129.16 is public, but in some clouds, the host of the virtual machine responds to it.
    Ipv4Addr::new(168, 63, 129, 16),
];

const METADATA_V6_ADDRESS: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

const SPECIAL_V4_NETWORKS: [(Ipv4Net, &str); 16] = [
    (v4_network(0, 0, 0, 0, 8), "an address of this network (unspecified)"),
    (v4_network(10, 0, 0, 0, 8), "a private address"),
    (v4_network(100, 64, 0, 0, 10), "a carrier-grade NAT address"),
    (v4_network(127, 0, 0, 0, 8), "a loopback address"),
    (v4_network(169, 254, 0, 0, 16), "a link-local address"),
    (v4_network(172, 16, 0, 0, 12), "a private address"),
    (v4_network(192, 0, 0, 0, 24), "an address reserved for protocols"),
    (v4_network(192, 0, 2, 0, 24), "an address reserved for documentation"),
    (v4_network(192, 88, 99, 0, 24), "a 6to4 relay address"),
    (v4_network(192, 168, 0, 0, 16), "a private address"),
    (v4_network(198, 18, 0, 0, 15), "an address reserved for benchmarks"),
    (v4_network(198, 51, 100, 0, 24), "an address reserved for documentation"),
    (v4_network(203, 0, 113, 0, 24), "an address reserved for documentation"),
    (v4_network(224, 0, 0, 0, 4), "a multicast address"),
    (v4_network(255, 255, 255, 255, 32), "the broadcast address"),
    (v4_network(240, 0, 0, 0, 4), "a reserved address"),
];

const SPECIAL_V6_NETWORKS: [(Ipv6Net, &str); 16] = [
    (v6_network(0, 0, 0, 128, 0), "the unspecified address"),
    (v6_network(0, 0, 0, 128, 1), "a loopback address"),
    (v6_network(0, 0, 0, 96, 0), "an IPv4-compatible address"),
    // Each network chooses where these addresses contain an IPv4 address, so none of them counts as public.
    (v6_network(0x64, 0xff9b, 1, 48, 0), "a local IPv4 translation address"),
    (v6_network(0x100, 0, 0, 64, 0), "a discard-only address"),
    (v6_network(0x2001, 2, 0, 48, 0), "an address reserved for benchmarks"),
    (v6_network(0x2001, 0x10, 0, 28, 0), "an ORCHID, not an address"),
    (v6_network(0x2001, 0x20, 0, 28, 0), "an ORCHID, not an address"),
    (v6_network(0x2001, 0, 0, 23, 0), "an address reserved for protocols"),
    (v6_network(0x2001, 0xdb8, 0, 32, 0), "an address reserved for documentation"),
    (v6_network(0x3fff, 0, 0, 20, 0), "an address reserved for documentation"),
    (v6_network(0x5f00, 0, 0, 16, 0), "a segment identifier, not an address"),
    (v6_network(0xfc00, 0, 0, 7, 0), "a private (unique local) address"),
    (v6_network(0xfe80, 0, 0, 10, 0), "a link-local address"),
    (v6_network(0xfec0, 0, 0, 10, 0), "a site-local address"),
    (v6_network(0xff00, 0, 0, 8, 0), "a multicast address"),
];

const GLOBAL_UNICAST_V6_NETWORK: Ipv6Net = v6_network(0x2000, 0, 0, 3, 0);
const NAT64_NETWORK: Ipv6Net = v6_network(0x64, 0xff9b, 0, 96, 0);
const SIX_TO_FOUR_NETWORK: Ipv6Net = v6_network(0x2002, 0, 0, 16, 0);
const TEREDO_NETWORK: Ipv6Net = v6_network(0x2001, 0, 0, 32, 0);

const fn v4_network(a: u8, b: u8, c: u8, d: u8, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

/// Returns an IPv6 network with the first three groups and the last group of its address; all other groups are 0.
const fn v6_network(first: u16, second: u16, third: u16, prefix_len: u8, last: u16) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last), prefix_len)
}

fn check_v4(address: Ipv4Addr) -> Result<(), &'static str> {
    if METADATA_V4_ADDRESSES.contains(&address) {
        return Err(METADATA_SERVICE_REASON);
    }
    SPECIAL_V4_NETWORKS.iter().find(|(network, _)| network.contains(&address)).map_or(Ok(()), |(_, kind)| Err(kind))
}

fn check_v6(address: Ipv6Addr) -> Result<(), &'static str> {
    if address == METADATA_V6_ADDRESS {
        return Err(METADATA_SERVICE_REASON);
    }
    match SPECIAL_V6_NETWORKS.iter().find(|(network, _)| network.contains(&address)) {
        Some((_, kind)) => Err(kind),
        None if GLOBAL_UNICAST_V6_NETWORK.contains(&address) => Ok(()),
        None => Err("a reserved address"),
    }
}

/// Returns the IPv4 addresses to which a packet might be forwarded: the translated address (NAT64, RFC 6052), the
/// router (6to4, RFC 3056), or the server and the client (Teredo, RFC 4380, which inverts the bits of the client).
fn embedded_v4_addresses(address: Ipv6Addr) -> Option<Vec<Ipv4Addr>> {
    let bits = address.to_bits();
    let v4_at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    if NAT64_NETWORK.contains(&address) {
        Some(vec![v4_at(0)])
    } else if SIX_TO_FOUR_NETWORK.contains(&address) {
        Some(vec![v4_at(80)])
    } else if TEREDO_NETWORK.contains(&address) {
        Some(vec![v4_at(64), Ipv4Addr::from_bits(!v4_at(0).to_bits())])
    } else {
        None
    }
}

/// Returns the IPv4 address to which a site's router forwards the packets (ISATAP, RFC 5214, section 6.1).
fn isatap_v4_address(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [high, low] = [(address.to_bits() >> 32) as u32, address.to_bits() as u32];
    matches!(high, 0x0000_5efe | 0x0200_5efe).then(|| Ipv4Addr::from_bits(low))
}
