//! `keywords` and `keywords_mode`: full-text search over whole entities.

use strata_types::request::KeywordsMode;

use super::{InvalidValue, Parameter, ParameterKind, Repetition};

pub(super) const KEYWORDS: Parameter = Parameter {
    name: "keywords",
    kind: ParameterKind::Keywords,
    default_text: "none",
    summary: "Matches substrings of values at any depth, ignoring case; one keyword must match, or all with \
              `keywords_mode=and`",
    documentation: "Keeps the entities in which the text of any value, at any depth, contains a keyword, ignoring \
         case. With `keywords_mode=and`, all keywords must occur, but each can be in a different value. strata does \
         not search field names or fields that earlier steps have removed. A comma always separates keywords, because \
         you cannot escape it. strata ignores empty keywords, and spaces or tabs around a keyword. An empty list has \
         no effect.",
    example: Some("republic,kingdom"),
    repetition: Repetition::List,
    apply: |value, request| {
        request.keywords.extend(keywords(value).map(str::to_owned));
        Ok(())
    },
};

pub(super) const KEYWORDS_MODE: Parameter = Parameter {
    name: "keywords_mode",
    kind: ParameterKind::OneOf(&["or", "and"]),
    default_text: "or",
    summary: "`or`: at least one keyword must match; `and`: all keywords must match, even if in different fields",
    documentation: "With `or`, at least one of the `keywords` must match. With `and`, all of them must match, in the \
         same field or in different fields. Without `keywords`, this parameter has no effect.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| {
        request.keywords_mode = match value {
            "or" => KeywordsMode::Or,
            "and" => KeywordsMode::And,
            _ => return Err(InvalidValue::new("is not a mode", "or, and")),
        };
        Ok(())
    },
};

/// The items of a list, trimmed of blanks (spaces and tabs), without the empty ones.
fn keywords(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|keyword| keyword.trim_matches([' ', '\t'])).filter(|keyword| !keyword.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::ReadRequest;

    #[test]
    fn lists_are_joined_in_order() {
        let mut request = ReadRequest::default();
        for list in ["b,a", "", "b"] {
            assert_eq!((KEYWORDS.apply)(list, &mut request), Ok(()));
        }
        let keywords = ["b", "a", "b"].map(str::to_owned).to_vec();
        assert_eq!(request, ReadRequest { keywords, ..ReadRequest::default() });
    }

    #[test]
    fn items_are_trimmed_and_nothing_is_an_escape() {
        let check = |list, expected: &[&str]| assert_eq!(keywords(list).collect::<Vec<_>>(), expected, "{list:?}");
        check("", &[]);
        check(" ,\t,, ", &[]);
        check(" new york ,\tberlin\t", &["new york", "berlin"]);
        check(r"a\,b,\ c,d\ ", &[r"a\", "b", r"\ c", r"d\"]);
        check("\u{a0}x\n,\u{a0}", &["\u{a0}x\n", "\u{a0}"]);
    }

    #[test]
    fn takes_both_modes() {
        for (value, keywords_mode) in [("or", KeywordsMode::Or), ("and", KeywordsMode::And)] {
            let mut request = ReadRequest::default();
            assert_eq!((KEYWORDS_MODE.apply)(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { keywords_mode, ..ReadRequest::default() });
        }
    }

    #[test]
    fn modes_are_exact() {
        for value in ["", "OR", "And", " or", "xor", "or,and"] {
            assert!((KEYWORDS_MODE.apply)(value, &mut ReadRequest::default()).is_err(), "{value:?}");
        }
    }
}
