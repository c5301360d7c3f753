//! Search text to entries, and needles to plans.

use proptest::prelude::*;
use strata_format::keywords::cut::{Class, Piece, Plan, entries};
use strata_format::layout::SEPARATOR;

fn cut(text: &str) -> Vec<String> {
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'|' { SEPARATOR } else { byte }).collect();
    let mut found = Vec::new();
    entries(&bytes, |entry| found.push(String::from_utf8_lossy(entry).into_owned()));
    found
}

#[test]
fn texts_are_cut_into_entries() {
    let check = |text, expected: &[&str]| assert_eq!(cut(text), expected, "{text}");
    check("", &[]);
    check("| \n |", &[]);
    check("see https://example.org/c++ (1)", &["see", "https://", "example.", "org/", "c++", "(", "1)"]);
    check("|long-term|-117.5|", &["long-", "term", "-", "117.", "5"]);
    check("|straße|東京.|", &["straße", "東京."]);
}

/// A `|` in a piece is an edge of its entry; letters name the classes that the entry can have.
#[test]
fn needles_are_planned() {
    let check = |needle: &str, expected: &str| {
        let needle: Vec<u8> = needle.bytes().map(|byte| if byte == b'|' { SEPARATOR } else { byte }).collect();
        let plan = Plan::of(&needle);
        let pieces = plan.pieces().iter().map(|piece| {
            let classes = Class::ALL.iter().zip("wdh".chars()).filter(|(class, _)| piece.may_be_in(**class));
            let edge = |byte: u8| if byte == SEPARATOR { '|' } else { char::from(byte) };
            let pattern: String = piece.pattern().into_iter().map(edge).collect();
            format!("{pattern} {}", classes.map(|(_, letter)| letter).collect::<String>())
        });
        let pieces: Vec<String> = pieces.collect();
        let exact = if matches!(plan, Plan::Exact(_)) { "exact: " } else { "" };
        assert_eq!(format!("{exact}{}", pieces.join(", ")), expected, "{plan:?}");
    };
    check("", "");
    check(" \t", "");
    check("li", "exact: li w");
    check("deadbeef", "exact: deadbeef wh");
    check("2018", "exact: 2018 wdh");
    check("2018-", "exact: 2018- wdh");
    check("-", "exact: - wdh");
    check("https://", "exact: https:// w");
    check(" the ", "|the| w");
    check("long-term", "long-| w, |term w");
    check("www.example.org", "|example.| w, www.| w, |org w");
    check("2018-02-07", "2018-| wdh, |02-| d, |07 wdh");
    check("|12a4|", "|12a4| h");
    check("|12|", "|12| d");
    check(" 12", "|12 wdh");
    check(" 12.", "|12. d");
    check("(1", "|1 wdh, (| wdh");
    check(" (", "|( w");
    check("a a a", "|a wh, a| wh, |a| w");
}

fn classes_and_breaks() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(&b"aaeg129--. \x00\xC3\xBF"[..]), 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A text that holds the needle has entries for all its pieces, of the classes that they may be in; one that
    /// does not has none if the plan is exact.
    #[test]
    fn plan_finds_texts_that_contain_the_needle(texts in proptest::collection::vec(classes_and_breaks(), 0..4), needle in classes_and_breaks(), take in any::<(usize, usize)>(), of_text in any::<bool>(), whole in any::<bool>()) {
        let mut text = vec![SEPARATOR];
        for one in &texts {
            text.extend_from_slice(one);
            text.push(SEPARATOR);
        }
        // Needles that occur are of most interest.
        let mut needle = if of_text {
            let one = texts.first().cloned().unwrap_or_default();
            let from = take.0 % (one.len() + 1);
            one[from..from + take.1 % (one.len() - from + 1)].to_vec()
        } else {
            needle
        };
        if whole {
            needle.insert(0, SEPARATOR);
            needle.push(SEPARATOR);
        }
        let plan = Plan::of(&needle);
        let mut found = Vec::new();
        entries(&text, |entry| found.push(entry));
        let holds = memchr::memmem::find(&text, &needle).is_some();
        let has = |piece: &Piece| found.iter().any(|entry| piece.is_in(entry) && piece.may_be_in(Class::of(entry)));
        let candidate = plan.pieces().iter().all(has);
        prop_assert!(candidate || !holds, "{plan:?} {found:?}");
        if matches!(plan, Plan::Exact(_)) {
            prop_assert_eq!(candidate, holds);
        }
        for piece in plan.pieces() {
            let joined = [&[SEPARATOR], found.join(&SEPARATOR).as_slice(), &[SEPARATOR]].concat();
            let by_pattern = memchr::memmem::find(&joined, &piece.pattern()).is_some();
            prop_assert_eq!(by_pattern, found.iter().any(|entry| piece.is_in(entry)));
        }
    }

    /// Entries are all that is not a break, in order.
    #[test]
    fn entries_are_all_but_breaks(text in classes_and_breaks()) {
        let mut joined = Vec::new();
        entries(&text, |entry| joined.extend_from_slice(entry));
        let expected: Vec<u8> = text.iter().copied().filter(|byte| !matches!(*byte, 0..=b' ' | SEPARATOR)).collect();
        prop_assert_eq!(joined, expected);
    }
}
