//! What the servers of a service make of the secret that they share (`cluster.secret`). The secret itself never leaves
//! a server.
//!
//! A token proves to a server that a request is from another one. It is a time, the name of the sender, and the
//! HMAC-SHA256 of these and of what the request is: for whom, what for, and what it says. So it is good for that
//! request alone, at that server alone, and for a while. Whoever sees one may send the same request there once more
//! meanwhile.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use strata_config::Config;
use strata_types::secret::Secret;
use subtle::ConstantTimeEq;

pub const TOKEN_HEADER: &str = "strata-node-token";

/// How old a token may be, in seconds, by the clock of who is asked.
const GOOD_FOR_S: u64 = 60;

/// How far ahead of the clock of who is asked the clock of who asks may be, in seconds.
const AHEAD_S: u64 = 10;

/// The version of the program. What servers of another one ask may mean something else.
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub receiver: &'a str,
    pub method: &'a str,
    /// Path and query, as they are sent.
    pub target: &'a str,
    /// What else counts: for whom the server works, and what is meant.
    pub said: &'a str,
}

#[derive(Clone, Debug)]
pub struct NodeSecret(Secret);

impl NodeSecret {
    pub fn new(secret: Secret) -> NodeSecret {
        NodeSecret(secret)
    }

    pub fn of(config: &Config) -> Option<NodeSecret> {
        config.cluster.secret.as_ref().map(|secret| NodeSecret(secret.secret().clone()))
    }

    /// A key for what servers must compute alike, another one for each.
    pub fn key(&self, what: &str) -> Option<[u8; 16]> {
        let code: [u8; 32] = self.of_parts(&["key", what])?.finalize().into_bytes().into();
        code.first_chunk().copied()
    }

    /// A token of this time, in seconds since 1970.
    pub fn token(&self, sender: &str, claim: &Claim<'_>, now_s: u64) -> Option<String> {
        let time = now_s.to_string();
        let code = self.code(&time, sender, claim)?;
        Some(format!("{time} {sender} {code}"))
    }

    /// Who sent a token with a request that is this, at this time; `None` unless it was made for it.
    pub fn sender<'t>(&self, token: &'t str, claim: &Claim<'_>, now_s: u64) -> Option<&'t str> {
        let mut parts = token.split(' ');
        let (time, sender, sent) = (parts.next()?, parts.next()?, parts.next()?);
        let time_s = time.parse::<u64>().ok()?;
        // Takes the same time for all that are wrong.
        let is_ours = bool::from(self.code(time, sender, claim)?.as_bytes().ct_eq(sent.as_bytes()));
        let is_new = now_s.saturating_sub(time_s) <= GOOD_FOR_S && time_s.saturating_sub(now_s) <= AHEAD_S;
        (is_ours && is_new && parts.next().is_none()).then_some(sender)
    }

    fn code(&self, time: &str, sender: &str, claim: &Claim<'_>) -> Option<String> {
        let Claim { receiver, method, target, said } = *claim;
        let code = self.of_parts(&["token", VERSION, time, sender, receiver, method, target, said])?;
        Some(hex::encode(code.finalize().into_bytes()))
    }

    /// `None` never: HMAC takes keys of any length. The library's type has an error.
    fn of_parts(&self, parts: &[&str]) -> Option<Hmac<Sha256>> {
        let mut code = Hmac::<Sha256>::new_from_slice(self.0.expose().as_bytes()).ok()?;
        for part in parts {
            // The lengths part them.
            code.update(&(part.len() as u64).to_le_bytes());
            code.update(part.as_bytes());
        }
        Some(code)
    }
}

pub fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    const CLAIM: Claim<'_> =
        Claim { receiver: "n2", method: "GET", target: "/api/1/a/v1/?limit=1", said: "user:7 00ff" };

    fn secret(text: &str) -> NodeSecret {
        NodeSecret::new(Secret::from_stored(text.to_owned()))
    }

    fn ours() -> NodeSecret {
        secret("a secret of the nodes")
    }

    fn made() -> String {
        ours().token("n1", &CLAIM, NOW).expect("a token")
    }

    #[test]
    fn a_token_is_good_for_a_minute_and_little_before_its_time() {
        let times = [(NOW, true), (NOW + 60, true), (NOW + 61, false), (NOW - 10, true), (NOW - 11, false), (0, false)];
        for (now, good) in times {
            assert_eq!(ours().sender(&made(), &CLAIM, now), good.then_some("n1"), "{now}");
        }
        assert_eq!(ours().sender(&made(), &CLAIM, u64::MAX), None);
        let far = ours().token("n1", &CLAIM, u64::MAX).expect("a token");
        assert_eq!(ours().sender(&far, &CLAIM, NOW), None, "from the future");
    }

    #[test]
    fn a_token_is_good_for_one_request_at_one_server() {
        let others = [
            Claim { receiver: "n3", ..CLAIM },
            // Not even where it comes from.
            Claim { receiver: "n1", ..CLAIM },
            Claim { method: "HEAD", ..CLAIM },
            Claim { target: "/api/1/a/v1/?limit=2", ..CLAIM },
            Claim { target: "/api/1/a/v1/", ..CLAIM },
            Claim { said: "user:8 00ff", ..CLAIM },
            Claim { said: "user:7 00fe", ..CLAIM },
            Claim { said: "", ..CLAIM },
            // What is cut elsewhere is something else.
            Claim { method: "GET/", target: "api/1/a/v1/?limit=1", ..CLAIM },
        ];
        for other in others {
            assert_eq!(ours().sender(&made(), &other, NOW), None, "{other:?}");
        }
        assert_eq!(secret("another secret").sender(&made(), &CLAIM, NOW), None);
    }

    #[test]
    fn no_bit_of_a_token_can_be_changed_and_none_left_out() {
        let good = made();
        for (at, bit) in (0..good.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut bytes = good.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            assert_eq!(ours().sender(&changed, &CLAIM, NOW), None, "{changed}");
        }
        for length in 0..good.len() {
            assert_eq!(ours().sender(&good[..length], &CLAIM, NOW), None, "{length}");
        }
        let wrong = [
            String::new(),
            "   ".to_owned(),
            "1700000000".to_owned(),
            "a b c".to_owned(),
            format!("{good} "),
            format!(" {good}"),
            format!("+{good}"),
            good.replacen(' ', "  ", 1),
            good.to_uppercase(),
        ];
        for wrong in wrong {
            assert_eq!(ours().sender(&wrong, &CLAIM, NOW), None, "{wrong:?}");
        }
    }
}
