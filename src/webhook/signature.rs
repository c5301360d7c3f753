//! The signature that shows a receiver that a POST comes from this service and arrived complete.

use hmac::digest::InvalidLength;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::model::secret::Secret;

pub const SIGNATURE_HEADER: &str = "x-service-signature";

/// The HMAC-SHA256 (RFC 2104) of a body, keyed with the secret's bytes, in lower-case hexadecimal digits.
/// Never fails: HMAC takes keys of any length.
pub fn sign(secret: &Secret, body: &[u8]) -> Result<String, InvalidLength> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())?;
    mac.update(body);
    Ok(hex::encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_those_of_rfc_4231() {
        let check = |key: &str, data: &str, expected: &str| {
            let signature = sign(&Secret::from_stored(key.to_owned()), data.as_bytes());
            assert_eq!(signature.as_deref(), Ok(expected));
        };
        // Test cases 1 and 2, whose keys are text.
        check(&"\u{b}".repeat(20), "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        check(
            "Jefe",
            "what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        );
    }
}
