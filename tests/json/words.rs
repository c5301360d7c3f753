//! Tokens of search text.

use proptest::prelude::*;
use strata_json::for_each_token;

#[derive(Clone, Copy, PartialEq, Eq)]
enum ByteClass {
    Separator,
    Punctuation,
    WordByte,
}

fn classify(byte: u8) -> ByteClass {
    match byte {
        0..=0x20 | 0xff => ByteClass::Separator,
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => ByteClass::WordByte,
        _ => ByteClass::Punctuation,
    }
}

fn naive_tokens(text: &[u8]) -> Vec<(usize, usize)> {
    let mut tokens = Vec::new();
    let mut open = None;
    for (at, byte) in text.iter().enumerate() {
        let before = at.checked_sub(1).map_or(ByteClass::Separator, |before| classify(text[before]));
        let starts = match classify(*byte) {
            ByteClass::Separator => false,
            ByteClass::Punctuation => before == ByteClass::Separator,
            ByteClass::WordByte => before != ByteClass::WordByte,
        };
        if (starts || classify(*byte) == ByteClass::Separator)
            && let Some(start) = open.take()
        {
            tokens.push((start, at));
        }
        if starts {
            open = Some(at);
        }
    }
    tokens.extend(open.map(|start| (start, text.len())));
    tokens
}

fn tokens(text: &[u8]) -> Vec<(usize, usize)> {
    let mut tokens = Vec::new();
    for_each_token(text, |start, end| tokens.push((start, end)));
    tokens
}

#[test]
fn every_byte_has_its_class() {
    for byte in 0..=u8::MAX {
        let text = [b'x', byte, b'-', byte, b' ', byte, b'x'].repeat(20);
        assert_eq!(tokens(&text), naive_tokens(&text), "{byte}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn tokens_match_naive_tokenizer(
        text in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(&b"ab9Z_-. \n\xff\xc3\xbf"[..])], 0..300),
        has_long_tokens in any::<bool>(),
    ) {
        // Also tests tokens that are longer than a block.
        let lengthen = |byte: &u8| if !byte.is_multiple_of(16) { b'x' } else { *byte };
        let text: Vec<u8> = if has_long_tokens { text.iter().map(lengthen).collect() } else { text };
        prop_assert_eq!(tokens(&text), naive_tokens(&text));
    }
}
