//! Invisible characters.

use strata_types::invisible_text::{flag_invisible, format_escapes_as_code_points};

#[test]
fn only_invisible_characters_are_flagged() {
    let invisible_part = |text: &str| -> String {
        flag_invisible(text).filter(|(_, is_invisible)| *is_invisible).map(|(character, _)| character).collect()
    };
    let invisible = "\u{0}\n\u{AD}\u{34F}\u{115F}\u{1160}\u{17B4}\u{17B5}\u{180E}\u{200B}\u{202E}\u{206A}\u{206F}\u{2800}\
                  \u{3164}\u{FEFF}\u{FFA0}\u{FFF0}\u{FFFB}\u{1BCA0}\u{1BCA3}\u{1D173}\u{1D17A}\u{E0001}\u{E0067}\
                  \u{E0100}\u{E0FFF}";
    for invisible in invisible.chars() {
        assert_eq!(invisible_part(&format!("a{invisible}b")), invisible.to_string(), "{invisible:?}");
    }
    let wales = "\u{1F3F4}\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}";
    for visible in ["a b\u{A0}", "❤\u{FE0F}", "ᠠ\u{180B}\u{180F}", "👩\u{200D}🚀", "ab\u{FFFC}\u{FFFD}", wales]
    {
        assert_eq!(invisible_part(visible), "", "{visible}");
    }
    // After anything but a black flag, tags are invisible text.
    assert_eq!(invisible_part(&format!("{wales}x\u{E0067}👩\u{E0062}")), "\u{E0067}\u{E0062}");
    assert_eq!(invisible_part("\u{1F3F4}\u{E0001}"), "\u{E0001}");
}

#[test]
fn escapes_become_code_points() {
    for (text, named) in [
        ("", ""),
        ("plain", "plain"),
        ("\\u{202e}", "U+202E"),
        ("a \"x\\u{0}y\\u{200b}\" b", "a \"xU+0000yU+200B\" b"),
        ("\\u{61} \\u{} \\u{202e \\u{110000} \\u{+9}", "\\u{61} \\u{} \\u{202e \\u{110000} \\u{+9}"),
        ("\\u{\\u{feff}", "\\u{U+FEFF"),
    ] {
        assert_eq!(format_escapes_as_code_points(text), named, "{text}");
    }
}
