//! Tokens between nodes.

use strata_cluster::token::{Claim, NodeSecret};
use strata_types::secret::Secret;

const NOW: u64 = 1_700_000_000;

const CLAIM: Claim<'_> = Claim { receiver: "n2", method: "GET", target: "/api/1/a/v1/?limit=1", said: "user:7 00ff" };

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
fn token_is_valid_for_a_minute() {
    let times = [(NOW, true), (NOW + 60, true), (NOW + 61, false), (NOW - 10, true), (NOW - 11, false), (0, false)];
    for (now, good) in times {
        assert_eq!(ours().sender(&made(), &CLAIM, now), good.then_some("n1"), "{now}");
    }
    assert_eq!(ours().sender(&made(), &CLAIM, u64::MAX), None);
    let far = ours().token("n1", &CLAIM, u64::MAX).expect("a token");
    assert_eq!(ours().sender(&far, &CLAIM, NOW), None, "from the future");
}

#[test]
fn token_is_valid_for_one_request_at_one_server() {
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
fn changed_token_is_invalid() {
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
