//! Decides which addresses are public, and which others the operator opened.
//!
//! The source are the IANA registries of special-purpose IPv4 and IPv6 addresses. An IPv4 address is public unless it
//! is listed. An IPv6 address can be public only if it is allocated as global unicast (2000::/3). Some IPv6 addresses
//! carry an IPv4 address to which a host on the way sends the packet. Such an address is judged by its IPv4 address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The addresses that outgoing requests may reach: public ones, and the operator's networks. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allowed: Arc<[IpNet]>,
}

impl AddressPolicy {
    pub fn new(allowed: impl IntoIterator<Item = IpNet>) -> Self {
        Self { allowed: allowed.into_iter().collect() }
    }

    /// Refuses an address that is neither public nor opened; the error is its kind, such as `a private address`.
    pub fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        // ::ffff:a.b.c.d is a way to write a.b.c.d: the same packets leave.
        let address = address.to_canonical();
        if self.allowed.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        match address {
            IpAddr::V4(address) => check_v4(address),
            IpAddr::V6(address) => match carried(address) {
                Some(carried) => carried.into_iter().try_for_each(|inner| self.check(IpAddr::V4(inner))),
                None => check_v6(address)
                    .and_then(|()| isatap(address).map_or(Ok(()), |inner| self.check(IpAddr::V4(inner)))),
            },
        }
    }
}

/// Addresses at which clouds give machines their credentials, in any network.
const METADATA: &str = "a cloud metadata service";

const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    // The number is public, but the machine's host answers it.
    Ipv4Addr::new(168, 63, 129, 16),
];

const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254);

const SPECIAL_V4: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 0, 8), "an address of this network (unspecified)"),
    (v4(10, 0, 0, 0, 8), "a private address"),
    (v4(100, 64, 0, 0, 10), "a carrier-grade NAT address"),
    (v4(127, 0, 0, 0, 8), "a loopback address"),
    (v4(169, 254, 0, 0, 16), "a link-local address"),
    (v4(172, 16, 0, 0, 12), "a private address"),
    (v4(192, 0, 0, 0, 24), "an address reserved for protocols"),
    (v4(192, 0, 2, 0, 24), "an address reserved for documentation"),
    (v4(192, 88, 99, 0, 24), "a 6to4 relay address"),
    (v4(192, 168, 0, 0, 16), "a private address"),
    (v4(198, 18, 0, 0, 15), "an address reserved for benchmarks"),
    (v4(198, 51, 100, 0, 24), "an address reserved for documentation"),
    (v4(203, 0, 113, 0, 24), "an address reserved for documentation"),
    (v4(224, 0, 0, 0, 4), "a multicast address"),
    (v4(255, 255, 255, 255, 32), "the broadcast address"),
    (v4(240, 0, 0, 0, 4), "a reserved address"),
];

const SPECIAL_V6: [(Ipv6Net, &str); 16] = [
    (v6(0, 0, 0, 128, 0), "the unspecified address"),
    (v6(0, 0, 0, 128, 1), "a loopback address"),
    (v6(0, 0, 0, 96, 0), "an IPv4-compatible address"),
    // Each network chooses the place of the IPv4 address in it.
    (v6(0x64, 0xff9b, 1, 48, 0), "a local IPv4 translation address"),
    (v6(0x100, 0, 0, 64, 0), "a discard-only address"),
    (v6(0x2001, 2, 0, 48, 0), "an address reserved for benchmarks"),
    (v6(0x2001, 0x10, 0, 28, 0), "an ORCHID, not an address"),
    (v6(0x2001, 0x20, 0, 28, 0), "an ORCHID, not an address"),
    (v6(0x2001, 0, 0, 23, 0), "an address reserved for protocols"),
    (v6(0x2001, 0xdb8, 0, 32, 0), "an address reserved for documentation"),
    (v6(0x3fff, 0, 0, 20, 0), "an address reserved for documentation"),
    (v6(0x5f00, 0, 0, 16, 0), "a segment identifier, not an address"),
    (v6(0xfc00, 0, 0, 7, 0), "a private (unique local) address"),
    (v6(0xfe80, 0, 0, 10, 0), "a link-local address"),
    (v6(0xfec0, 0, 0, 10, 0), "a site-local address"),
    (v6(0xff00, 0, 0, 8, 0), "a multicast address"),
];

const GLOBAL_UNICAST: Ipv6Net = v6(0x2000, 0, 0, 3, 0);
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96, 0);
const SIX_TO_FOUR: Ipv6Net = v6(0x2002, 0, 0, 16, 0);
const TEREDO: Ipv6Net = v6(0x2001, 0, 0, 32, 0);

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

/// The network of this length whose address has these first three groups and this last group.
const fn v6(first: u16, second: u16, third: u16, prefix_len: u8, last: u16) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last), prefix_len)
}

fn check_v4(address: Ipv4Addr) -> Result<(), &'static str> {
    if METADATA_V4.contains(&address) {
        return Err(METADATA);
    }
    SPECIAL_V4.iter().find(|(network, _)| network.contains(&address)).map_or(Ok(()), |(_, kind)| Err(kind))
}

fn check_v6(address: Ipv6Addr) -> Result<(), &'static str> {
    if address == METADATA_V6 {
        return Err(METADATA);
    }
    match SPECIAL_V6.iter().find(|(network, _)| network.contains(&address)) {
        Some((_, kind)) => Err(kind),
        None if GLOBAL_UNICAST.contains(&address) => Ok(()),
        None => Err("a reserved address"),
    }
}

/// The IPv4 addresses to which a packet for `address` may be handed: the translated one (NAT64, RFC 6052), the router
/// (6to4, RFC 3056), or the server and the client behind it (Teredo, RFC 4380, which inverts the client's bits).
fn carried(address: Ipv6Addr) -> Option<Vec<Ipv4Addr>> {
    let bits = address.to_bits();
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    if NAT64.contains(&address) {
        Some(vec![at(0)])
    } else if SIX_TO_FOUR.contains(&address) {
        Some(vec![at(80)])
    } else if TEREDO.contains(&address) {
        Some(vec![at(64), Ipv4Addr::from_bits(!at(0).to_bits())])
    } else {
        None
    }
}

/// The IPv4 address to which a router at the site sends a packet for `address` (ISATAP, RFC 5214, section 6.1).
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [high, low] = [(address.to_bits() >> 32) as u32, address.to_bits() as u32];
    matches!(high, 0x0000_5efe | 0x0200_5efe).then(|| Ipv4Addr::from_bits(low))
}
