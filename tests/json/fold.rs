//! Folding of case.

use strata_json::{fold, fold_into};

#[test]
fn every_character() {
    let all: String = ('\0'..=char::MAX).collect();
    let expected = fold(&all);
    let mut folded = Vec::new();
    fold_into(&all, &mut folded);
    assert!(folded == expected.as_bytes(), "some character is folded differently");
    assert!(fold(&expected) == expected, "some character changes when folded twice");
}

#[test]
fn special_characters() {
    assert_eq!(fold("ΟΔΟΣ οδος"), "οδοσ οδοσ");
    assert_eq!(fold("İSTANBUL"), "i\u{307}stanbul");
    assert_eq!(fold("Straße ẞ"), "straße ß");
    assert_eq!(fold("\u{212a}"), "k");
    assert_eq!(fold("𐐀"), "𐐨");
}
