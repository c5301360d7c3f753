//! The origin of a session, which helps its owner to recognize it. The session's record contains the origin as JSON.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Maximum stored bytes of a `User-Agent`. Real values are shorter.
const MAX_PROGRAM_BYTES: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOrigin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The truncated `User-Agent` of the client, without characters other than visible ASCII and spaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl SessionOrigin {
    pub fn new(address: Option<IpAddr>, user_agent: Option<&str>) -> SessionOrigin {
        let visible = |program: &str| -> String {
            program.chars().filter(|char| *char == ' ' || char.is_ascii_graphic()).take(MAX_PROGRAM_BYTES).collect()
        };
        let program = user_agent.map(|program| visible(program.trim())).filter(|program| !program.is_empty());
        SessionOrigin { address: address.map(|address| address.to_canonical()), program }
    }

    pub(super) fn to_json(&self) -> String {
        // Serialization of an address and a string cannot fail.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    pub(super) fn from_json(data: &str) -> SessionOrigin {
        serde_json::from_str(data).unwrap_or_default()
    }

    /// Returns the browser and its system, such as "Firefox on Linux", or the first word of another `User-Agent`.
    pub fn browser_label(&self) -> Option<String> {
        let program = self.program.as_deref()?;
        // The order matters: the `User-Agent` of each browser also contains the names of browsers later in the list.
        const BROWSERS: [(&str, &str); 9] = [
            ("Edg", "Edge"),
            ("OPR/", "Opera"),
            ("SamsungBrowser/", "Samsung Internet"),
            ("Firefox/", "Firefox"),
            ("FxiOS/", "Firefox"),
            ("CriOS/", "Chrome"),
            ("HeadlessChrome/", "Chrome"),
            ("Chrome/", "Chrome"),
            ("Safari/", "Safari"),
        ];
        const SYSTEMS: [(&str, &str); 7] = [
            ("iPhone", "iPhone"),
            ("iPad", "iPad"),
            ("Android", "Android"),
            ("Windows", "Windows"),
            ("CrOS", "ChromeOS"),
            ("Mac OS X", "macOS"),
            ("Linux", "Linux"),
        ];
        let find = |names: &[(&str, &'static str)]| {
            names.iter().find(|(part, _)| program.contains(part)).map(|(_, name)| *name)
        };
        let browser = if program.starts_with("Mozilla/") { find(&BROWSERS) } else { None };
        Some(match (browser, find(&SYSTEMS)) {
            (Some(browser), Some(system)) => format!("{browser} on {system}"),
            (Some(browser), None) => browser.to_owned(),
            (None, _) => program.split(' ').next().unwrap_or(program).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_truncated_and_survives_round_trip() {
        let address: IpAddr = "::ffff:192.0.2.1".parse().expect("failed to parse address");
        let origin = SessionOrigin::new(Some(address), Some(&format!("a\u{202e}\u{0}\n\"{}", "b".repeat(10_000))));
        let expected = format!("a\"{}", "b".repeat(MAX_PROGRAM_BYTES - 2));
        assert_eq!(origin.program, Some(expected));
        assert_eq!(origin.address.map(|address| address.to_string()).as_deref(), Some("192.0.2.1"));
        assert_eq!(SessionOrigin::from_json(&origin.to_json()), origin);
        for data in ["{}", "", "{\"other\":1}"] {
            assert_eq!(SessionOrigin::from_json(data), SessionOrigin::default());
        }
        assert_eq!(SessionOrigin::new(None, Some(" \t")), SessionOrigin::default());
        assert_eq!(SessionOrigin::default().browser_label(), None);
    }
}
