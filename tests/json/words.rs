//! Pieces of search text.

use proptest::prelude::*;
use strata_json::for_each_piece;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Break,
    Mark,
    Word,
}

fn kind(byte: u8) -> Kind {
    match byte {
        0..=0x20 | 0xff => Kind::Break,
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => Kind::Word,
        _ => Kind::Mark,
    }
}

fn naive(text: &[u8]) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    let mut open = None;
    for (at, byte) in text.iter().enumerate() {
        let before = at.checked_sub(1).map_or(Kind::Break, |before| kind(text[before]));
        let starts = match kind(*byte) {
            Kind::Break => false,
            Kind::Mark => before == Kind::Break,
            Kind::Word => before != Kind::Word,
        };
        if (starts || kind(*byte) == Kind::Break)
            && let Some(start) = open.take()
        {
            pieces.push((start, at));
        }
        if starts {
            open = Some(at);
        }
    }
    pieces.extend(open.map(|start| (start, text.len())));
    pieces
}

fn pieces(text: &[u8]) -> Vec<(usize, usize)> {
    let mut pieces = Vec::new();
    for_each_piece(text, |start, end| pieces.push((start, end)));
    pieces
}

#[test]
fn every_byte_has_its_kind() {
    for byte in 0..=u8::MAX {
        let text = [b'x', byte, b'-', byte, b' ', byte, b'x'].repeat(20);
        assert_eq!(pieces(&text), naive(&text), "{byte}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pieces_are_those_of_a_naive_twin(
        text in proptest::collection::vec(
            prop_oneof![any::<u8>(), proptest::sample::select(&b"ab9Z_-. \n\xff\xc3\xbf"[..])], 0..300),
        rare in any::<bool>(),
    ) {
        // Pieces that are longer than a block, too.
        let text: Vec<u8> = if rare { text.iter().map(|byte| if byte % 16 > 0 { b'x' } else { *byte }).collect() } else { text };
        prop_assert_eq!(pieces(&text), naive(&text));
    }
}
