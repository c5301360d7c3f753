//! Case folding.

use strata_json::{fold_case, fold_case_into};

#[test]
fn every_character_is_folded_consistently() {
    let all: String = ('\0'..=char::MAX).collect();
    let expected = fold_case(&all);
    let mut folded = Vec::new();
    fold_case_into(&all, &mut folded);
    assert!(folded == expected.as_bytes(), "the functions fold a character differently");
    assert!(fold_case(&expected) == expected, "folding is not idempotent");
}

#[test]
fn special_characters_are_folded() {
    assert_eq!(fold_case("ΟΔΟΣ οδος"), "οδοσ οδοσ");
    assert_eq!(fold_case("İSTANBUL"), "i\u{307}stanbul");
    assert_eq!(fold_case("Straße ẞ"), "straße ß");
    assert_eq!(fold_case("\u{212a}"), "k");
    assert_eq!(fold_case("𐐀"), "𐐨");
}
