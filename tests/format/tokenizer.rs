//! Tokenization of full texts, and the queries of needles.

use proptest::prelude::*;
use strata_format::keywords::tokenizer::{TermQuery, TokenClass, TokenFragment};
use strata_format::layout::TEXT_SEPARATOR;
use strata_json::for_each_token;

fn tokenize(text: &str) -> Vec<String> {
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == b'|' { TEXT_SEPARATOR } else { byte }).collect();
    let mut tokens = Vec::new();
    for_each_token(&bytes, |start, end| tokens.push(String::from_utf8_lossy(&bytes[start..end]).into_owned()));
    tokens
}

#[test]
fn text_is_split_into_tokens() {
    let check = |text, expected: &[&str]| assert_eq!(tokenize(text), expected, "{text}");
    check("", &[]);
    check("| \n |", &[]);
    check("see https://example.org/c++ (1)", &["see", "https://", "example.", "org/", "c++", "(", "1)"]);
    check("|long-term|-117.5|", &["long-", "term", "-", "117.", "5"]);
    check("|straße|東京.|", &["straße", "東京."]);
}

/// A `|` in an expected fragment is an edge of its token. The letters are the classes that the token can have.
#[test]
fn needles_are_converted_to_queries() {
    let check = |needle: &str, expected: &str| {
        let needle: Vec<u8> = needle.bytes().map(|byte| if byte == b'|' { TEXT_SEPARATOR } else { byte }).collect();
        let query = TermQuery::from_needle(&needle);
        let fragments = query.fragments().iter().map(|fragment| {
            let classes =
                TokenClass::ALL.iter().zip("wdh".chars()).filter(|(class, _)| fragment.may_match_class(**class));
            let edge = |byte: u8| if byte == TEXT_SEPARATOR { '|' } else { char::from(byte) };
            let pattern: String = fragment.delimited_pattern().into_iter().map(edge).collect();
            format!("{pattern} {}", classes.map(|(_, letter)| letter).collect::<String>())
        });
        let fragments: Vec<String> = fragments.collect();
        let exact = if matches!(query, TermQuery::ExactFragment(_)) { "exact: " } else { "" };
        assert_eq!(format!("{exact}{}", fragments.join(", ")), expected, "{query:?}");
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

fn token_bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(&b"aaeg129--. \x00\xC3\xBF"[..]), 0..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// A text that contains the needle has tokens for all fragments, in the classes of the fragments. With an exact
    /// query, a text without the needle has none.
    #[test]
    fn query_matches_texts_that_contain_the_needle(texts in proptest::collection::vec(token_bytes(), 0..4), needle in token_bytes(), take in any::<(usize, usize)>(), occurs in any::<bool>(), whole in any::<bool>()) {
        let mut text = vec![TEXT_SEPARATOR];
        for scalar in &texts {
            text.extend_from_slice(scalar);
            text.push(TEXT_SEPARATOR);
        }
        // Mostly needles that occur.
        let mut needle = if occurs {
            let scalar = texts.first().cloned().unwrap_or_default();
            let from = take.0 % (scalar.len() + 1);
            scalar[from..from + take.1 % (scalar.len() - from + 1)].to_vec()
        } else {
            needle
        };
        if whole {
            needle.insert(0, TEXT_SEPARATOR);
            needle.push(TEXT_SEPARATOR);
        }
        let query = TermQuery::from_needle(&needle);
        let mut tokens = Vec::new();
        for_each_token(&text, |start, end| tokens.push(&text[start..end]));
        let contains_needle = memchr::memmem::find(&text, &needle).is_some();
        let has = |fragment: &TokenFragment| tokens.iter().any(|token| fragment.matches(token) && fragment.may_match_class(TokenClass::from_token(token)));
        let candidate = query.fragments().iter().all(has);
        prop_assert!(candidate || !contains_needle, "{query:?} {tokens:?}");
        if matches!(query, TermQuery::ExactFragment(_)) {
            prop_assert_eq!(candidate, contains_needle);
        }
        for fragment in query.fragments() {
            let joined = [&[TEXT_SEPARATOR], tokens.join(&TEXT_SEPARATOR).as_slice(), &[TEXT_SEPARATOR]].concat();
            let by_pattern = memchr::memmem::find(&joined, &fragment.delimited_pattern()).is_some();
            prop_assert_eq!(by_pattern, tokens.iter().any(|token| fragment.matches(token)));
        }
    }

    /// The concatenated tokens are the text without separators.
    #[test]
    fn tokens_contain_all_bytes_but_separators(text in token_bytes()) {
        let mut joined = Vec::new();
        for_each_token(&text, |start, end| joined.extend_from_slice(&text[start..end]));
        let expected: Vec<u8> = text.iter().copied().filter(|byte| !matches!(*byte, 0..=b' ' | TEXT_SEPARATOR)).collect();
        prop_assert_eq!(joined, expected);
    }
}
