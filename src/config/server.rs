//! `[server]`: where the service listens and how it treats connections.

use serde::Deserialize;

use super::option::{OptionKind, OptionValue, section};

section! {
    /// Where the service listens and how it treats connections.
    Server in "server" {
        /// Address and port to listen on, as `127.0.0.1:8080`, `[::1]:8080` or `localhost:8080`; port 0 takes
        /// any free one.
        listen: ListenAddress = ListenAddress("127.0.0.1:8080".to_owned());
        /// Seconds that requests in flight may take to finish after SIGTERM or SIGINT, before their connections
        /// are closed.
        drain_s: u64 = 30, within 0..=3_600;
        /// Seconds that a client may take to send the head of a request.
        header_timeout_s: u64 = 15, within 1..=3_600;
    }
}

/// A host and a port to listen on.
///
/// - There is a host: a name, an IPv4 address, or an IPv6 address in brackets.
/// - There is a port from 0 to 65535.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ListenAddress(String);

impl ListenAddress {
    /// The address as `host:port`, as the standard library resolves it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ListenAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let valid = text.rsplit_once(':').is_some_and(|(host, port)| {
            let bracketed = host.starts_with('[') && host.ends_with(']');
            let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            !host.is_empty() && (bracketed || !host.contains([':', '/'])) && digits && port.parse::<u16>().is_ok()
        });
        if valid {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is not an address and a port, such as 127.0.0.1:8080 or [::1]:8080"))
        }
    }
}

impl OptionValue for ListenAddress {
    const KIND: OptionKind = OptionKind::Text;

    fn shown(&self) -> Option<String> {
        Some(self.0.clone())
    }
}
