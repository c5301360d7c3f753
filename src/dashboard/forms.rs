//! The tokens of forms. A form that changes something holds one that only a page of the same session can have, so that
//! no other site can send it for the visitor. The `Origin` is checked besides.
//!
//! A token is random bytes and their HMAC with the session's id. Each page has another one: a compressed page whose
//! length tells what it holds tells nothing of the next one's.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use strata_types::secret::Secret;

pub(super) const TOKEN: &str = "token";

const RANDOM_BYTES: usize = 16;

fn hmac(session: &Secret, random: &[u8]) -> Option<Hmac<Sha256>> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(session.expose().as_bytes()).ok()?;
    hmac.update(b"strata form");
    hmac.update(random);
    Some(hmac)
}

/// A token of a session, made of these random bytes.
pub(super) fn token(session: &Secret, random: [u8; RANDOM_BYTES]) -> String {
    let mac = hmac(session, &random).map(|hmac| hmac.finalize().into_bytes());
    hex::encode(random) + &mac.map(hex::encode).unwrap_or_default()
}

pub(super) fn is_token(session: &Secret, token: &str) -> bool {
    let Ok(bytes) = hex::decode(token) else { return false };
    let Some((random, mac)) = bytes.split_at_checked(RANDOM_BYTES) else { return false };
    hmac(session, random).is_some_and(|hmac| hmac.verify_slice(mac).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_token_of_the_session_is_one() {
        let [one, other] = ["one", "other"].map(|id| Secret::from_stored(id.to_owned()));
        let [first, second] = [1, 2].map(|byte| token(&one, [byte; 16]));
        assert_ne!(first, second);
        assert!(is_token(&one, &first) && is_token(&one, &second));
        assert!(!is_token(&other, &first));
        let mixed = format!("{}{}", &first[..32], &second[32..]);
        for wrong in ["", "00", &first[..32], &first[..94], &mixed, &format!("{first}00"), "x"] {
            assert!(!is_token(&one, wrong), "{wrong}");
        }
    }
}
