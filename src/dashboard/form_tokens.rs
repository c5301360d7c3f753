//! Form tokens against cross-site request forgery. Each form that changes data contains a token of the session. The
//! `Origin` header is checked separately.
//!
//! A token is a random nonce and its HMAC with the session ID as the key. It differs on each page, so that the length
//! of compressed pages does not reveal it (BREACH attack).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use strata_types::secret::Secret;

pub(super) const TOKEN_FIELD: &str = "token";
const TOKEN_NONCE_BYTES: usize = 16;

fn form_token_hmac(session: &Secret, random: &[u8]) -> Option<Hmac<Sha256>> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(session.expose().as_bytes()).ok()?;
    hmac.update(b"strata form");
    hmac.update(random);
    Some(hmac)
}

pub(super) fn create_form_token(session: &Secret, random: [u8; TOKEN_NONCE_BYTES]) -> String {
    let mac = form_token_hmac(session, &random).map(|hmac| hmac.finalize().into_bytes());
    hex::encode(random) + &mac.map(hex::encode).unwrap_or_default()
}

pub(super) fn is_valid_form_token(session: &Secret, token: &str) -> bool {
    let Ok(bytes) = hex::decode(token) else { return false };
    let Some((random, mac)) = bytes.split_at_checked(TOKEN_NONCE_BYTES) else { return false };
    form_token_hmac(session, random).is_some_and(|hmac| hmac.verify_slice(mac).is_ok())
}
