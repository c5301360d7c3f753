//! Where a session was begun: what its owner tells it from others by. Kept in the session's record.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Bytes of a program's name that are kept: real ones are shorter.
const PROGRAM_BYTES: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionOrigin {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The client's `User-Agent`, cut: visible ASCII and blanks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl SessionOrigin {
    pub fn new(address: Option<IpAddr>, program: Option<&str>) -> SessionOrigin {
        let visible = |program: &str| -> String {
            program.chars().filter(|char| *char == ' ' || char.is_ascii_graphic()).take(PROGRAM_BYTES).collect()
        };
        let program = program.map(|program| visible(program.trim())).filter(|program| !program.is_empty());
        SessionOrigin { address: address.map(|address| address.to_canonical()), program }
    }

    pub(super) fn to_data(&self) -> String {
        // Addresses and texts are always JSON.
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    pub(super) fn from_data(data: &str) -> SessionOrigin {
        serde_json::from_str(data).unwrap_or_default()
    }

    /// A browser and its system, where the name is one of theirs, else the name up to its first blank.
    pub fn program_in_words(&self) -> Option<String> {
        let program = self.program.as_deref()?;
        // Each says that it is those after it, too.
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
        let named = |names: &[(&str, &'static str)]| {
            names.iter().find(|(part, _)| program.contains(part)).map(|(_, name)| *name)
        };
        let known = if program.starts_with("Mozilla/") { named(&BROWSERS) } else { None };
        Some(match (known, named(&SYSTEMS)) {
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
    fn what_is_kept_is_short_and_visible_and_read_back() {
        let address: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        let origin = SessionOrigin::new(Some(address), Some(&format!("a\u{202e}\u{0}\n\"{}", "b".repeat(10_000))));
        let expected = format!("a\"{}", "b".repeat(PROGRAM_BYTES - 2));
        assert_eq!(origin.program, Some(expected));
        assert_eq!(origin.address.map(|address| address.to_string()).as_deref(), Some("192.0.2.1"));
        assert_eq!(SessionOrigin::from_data(&origin.to_data()), origin);
        for data in ["{}", "", "{\"other\":1}"] {
            assert_eq!(SessionOrigin::from_data(data), SessionOrigin::default());
        }
        assert_eq!(SessionOrigin::new(None, Some(" \t")), SessionOrigin::default());
        assert_eq!(SessionOrigin::default().program_in_words(), None);
    }
}
