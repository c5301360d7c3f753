//! The tokens of forms. A form that changes something contains a token that only a page of the same session has, so
//! that no other site can send it for the visitor. The `Origin` is checked, too.
//!
//! A token is random bytes and their HMAC with the session's id. It differs on each page, so that the length of
//! compressed pages does not reveal it (BREACH).

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

pub(super) fn token(session: &Secret, random: [u8; RANDOM_BYTES]) -> String {
    let mac = hmac(session, &random).map(|hmac| hmac.finalize().into_bytes());
    hex::encode(random) + &mac.map(hex::encode).unwrap_or_default()
}

pub(super) fn is_token(session: &Secret, token: &str) -> bool {
    let Ok(bytes) = hex::decode(token) else { return false };
    let Some((random, mac)) = bytes.split_at_checked(RANDOM_BYTES) else { return false };
    hmac(session, random).is_some_and(|hmac| hmac.verify_slice(mac).is_ok())
}
