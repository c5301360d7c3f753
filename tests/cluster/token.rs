//! Tokens between nodes.

use strata_cluster::token::{NodeSecret, RequestClaims};
use strata_types::secret::Secret;

const NOW: u64 = 1_700_000_000;

const CLAIM: RequestClaims<'_> =
    RequestClaims { receiver: "n2", method: "GET", target: "/api/1/a/v1/?limit=1", tenant: "user:7 00ff" };

fn secret(text: &str) -> NodeSecret {
    NodeSecret::new(Secret::from_stored(text.to_owned()))
}

fn ours() -> NodeSecret {
    secret("a secret of the nodes")
}

fn token() -> String {
    ours().create_token("n1", &CLAIM, NOW).expect("a token")
}

#[test]
fn token_is_valid_for_a_minute() {
    let times = [(NOW, true), (NOW + 60, true), (NOW + 61, false), (NOW - 10, true), (NOW - 11, false), (0, false)];
    for (now, is_valid) in times {
        assert_eq!(ours().verify_sender(&token(), &CLAIM, now), is_valid.then_some("n1"), "{now}");
    }
    assert_eq!(ours().verify_sender(&token(), &CLAIM, u64::MAX), None);
    let far = ours().create_token("n1", &CLAIM, u64::MAX).expect("a token");
    assert_eq!(ours().verify_sender(&far, &CLAIM, NOW), None, "from the future");
}

#[test]
fn token_is_valid_for_one_request_at_one_server() {
    let others = [
        RequestClaims { receiver: "n3", ..CLAIM },
        // A node rejects its own tokens.
        RequestClaims { receiver: "n1", ..CLAIM },
        RequestClaims { method: "HEAD", ..CLAIM },
        RequestClaims { target: "/api/1/a/v1/?limit=2", ..CLAIM },
        RequestClaims { target: "/api/1/a/v1/", ..CLAIM },
        RequestClaims { tenant: "user:8 00ff", ..CLAIM },
        RequestClaims { tenant: "user:7 00fe", ..CLAIM },
        RequestClaims { tenant: "", ..CLAIM },
        // The same bytes with another boundary between method and target.
        RequestClaims { method: "GET/", target: "api/1/a/v1/?limit=1", ..CLAIM },
    ];
    for other in others {
        assert_eq!(ours().verify_sender(&token(), &other, NOW), None, "{other:?}");
    }
    assert_eq!(secret("another secret").verify_sender(&token(), &CLAIM, NOW), None);
}

#[test]
fn changed_token_is_invalid() {
    let valid = token();
    for (index, bit) in (0..valid.len()).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
        let mut bytes = valid.clone().into_bytes();
        bytes[index] ^= 1 << bit;
        let Ok(changed) = String::from_utf8(bytes) else { continue };
        assert_eq!(ours().verify_sender(&changed, &CLAIM, NOW), None, "{changed}");
    }
    for length in 0..valid.len() {
        assert_eq!(ours().verify_sender(&valid[..length], &CLAIM, NOW), None, "{length}");
    }
    let wrong = [
        String::new(),
        "   ".to_owned(),
        "1700000000".to_owned(),
        "a b c".to_owned(),
        format!("{valid} "),
        format!(" {valid}"),
        format!("+{valid}"),
        valid.replacen(' ', "  ", 1),
        valid.to_uppercase(),
    ];
    for wrong in wrong {
        assert_eq!(ours().verify_sender(&wrong, &CLAIM, NOW), None, "{wrong:?}");
    }
}
