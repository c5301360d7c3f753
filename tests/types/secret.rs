//! Keys and tokens.

use strata_types::secret::{SECRET_BYTES, Secret};

#[test]
fn secret_is_prefix_and_hexadecimal_bytes() {
    let random = [0xab; SECRET_BYTES];
    let digits = "ab".repeat(SECRET_BYTES);
    for (secret, prefix) in [
        (Secret::new_private_key(random), "sk_"),
        (Secret::new_ping_token(random), "ping_"),
        (Secret::new_api_token(random), "strata_"),
    ] {
        assert_eq!(secret.expose(), format!("{prefix}{digits}"));
    }
}

#[test]
fn session_id_has_its_own_form() {
    let id = Secret::new_session_id([0xab; SECRET_BYTES]);
    assert!(Secret::is_session_id(id.expose()));
    let id = id.expose();
    for other in ["", &id[1..], &id.to_uppercase(), &format!("{id}0"), &format!("{}g", &id[1..])] {
        assert!(!Secret::is_session_id(other), "{other:?}");
    }
}

#[test]
fn secret_matches_only_same_text() {
    let secret = Secret::from_stored("sk_00ff".to_owned());
    assert!(secret.constant_time_eq("sk_00ff"));
    for other in ["", "sk_00fe", "Sk_00ff", "sk_00f", "sk_00ff0", " sk_00ff", "xk_00ff"] {
        assert!(!secret.constant_time_eq(other), "{other:?}");
    }
}

#[test]
fn secret_hash_is_sha_256() {
    assert_eq!(
        Secret::from_stored("abc".to_owned()).sha256_hex(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn debug_hides_secret() {
    let secret = Secret::new_private_key([1; SECRET_BYTES]);
    assert_eq!(format!("{secret:?}"), "Secret(..)");
}
