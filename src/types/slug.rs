//! The form of a dataset's name in its URL.

/// The URL form of a name: lower case, every run of characters that are not alphanumeric (Unicode) one
/// `-`, none at the ends; `None` when nothing is left (docs/reference/management.md, Names and slugs).
///
/// Lower case comes first, so the test sees the lowered characters: `İ` becomes `i` and a combining dot, which is not
/// alphanumeric.
pub fn name_slug(name: &str) -> Option<String> {
    let mut slug = String::with_capacity(name.len());
    for character in name.to_lowercase().chars() {
        if character.is_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if slug.ends_with('-') {
        slug.pop();
    }
    (!slug.is_empty()).then_some(slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, slug: &str) {
        assert_eq!(name_slug(name).as_deref(), Some(slug), "{name:?}");
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
    fn a_name_without_a_letter_or_digit_has_none() {
        for name in ["", " ", "---", "!?", "\u{301}", "🦀🦀", "\u{200b}"] {
            assert_eq!(name_slug(name), None, "{name:?}");
        }
    }
}
