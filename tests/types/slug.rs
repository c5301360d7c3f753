//! URL forms of names.

use strata_types::slug::slugify;

#[track_caller]
fn check(name: &str, slug: &str) {
    assert_eq!(slugify(name).as_deref(), Some(slug), "{name:?}");
}

#[test]
fn runs_of_other_characters_become_one_hyphen() {
    check("World Countries", "world-countries");
    check("  World -- Countries!  ", "world-countries");
    check("a_b.c/d\\e", "a-b-c-d-e");
    check("already-a-slug", "already-a-slug");
    check("-x-", "x");
    check("2026", "2026");
    check("C++ & C#", "c-c");
    check("tab\tand\nline\u{0}nul", "tab-and-line-nul");
}

#[test]
fn letters_and_digits_of_any_script_stay() {
    check("Čeština Ñandú", "čeština-ñandú");
    check("東京 都", "東京-都");
    check("Москва №1", "москва-1");
    check("٣ أيام", "٣-أيام");
    check("x² ½ Ⅻ", "x²-½-ⅻ");
    check("straẞe Straße", "straße-straße");
}

#[test]
fn lower_case_follows_unicode() {
    check("ΟΔΟΣ ΣΟΦΟΣ", "οδος-σοφος");
    check("İstanbul", "i-stanbul");
    check("Cafe\u{301}s", "cafe-s");
    check("Caf\u{e9}s", "caf\u{e9}s");
}

#[test]
fn name_without_letter_or_digit_has_no_slug() {
    for name in ["", " ", "---", "!?", "\u{301}", "🦀🦀", "\u{200b}"] {
        assert_eq!(slugify(name), None, "{name:?}");
    }
}
