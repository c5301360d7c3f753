//! Keys and tokens.

use strata_types::secret::{SECRET_BYTES, Secret};

#[test]
fn a_secret_is_its_prefix_and_the_bytes_in_hexadecimal() {
    let random = [0xab; SECRET_BYTES];
    let digits = "ab".repeat(SECRET_BYTES);
    for (secret, prefix) in [
        (Secret::private_key(random), "sk_"),
        (Secret::ping_token(random), "ping_"),
        (Secret::api_token(random), "strata_"),
    ] {
        assert_eq!(secret.expose(), format!("{prefix}{digits}"));
    }
}

#[test]
fn session_id_has_its_own_form() {
    let id = Secret::session_id([0xab; SECRET_BYTES]);
    assert!(Secret::is_session_id(id.expose()));
    let id = id.expose();
    for other in ["", &id[1..], &id.to_uppercase(), &format!("{id}0"), &format!("{}g", &id[1..])] {
        assert!(!Secret::is_session_id(other), "{other:?}");
    }
}

#[test]
fn only_the_same_text_matches() {
    let secret = Secret::from_stored("sk_00ff".to_owned());
    assert!(secret.matches("sk_00ff"));
    for other in ["", "sk_00fe", "Sk_00ff", "sk_00f", "sk_00ff0", " sk_00ff", "xk_00ff"] {
        assert!(!secret.matches(other), "{other:?}");
    }
}

#[test]
fn the_hash_is_sha_256() {
    assert_eq!(
        Secret::from_stored("abc".to_owned()).hash(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}

#[test]
fn debug_does_not_show_it() {
    let secret = Secret::private_key([1; SECRET_BYTES]);
    assert_eq!(format!("{secret:?}"), "Secret(..)");
}
