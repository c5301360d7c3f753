//! `keywords`: full-text search over whole entities.

use super::{InvalidValue, Kind, Parameter, Repetition};
use crate::model::request::ReadRequest;

/// The parameter `keywords`.
pub(super) struct Keywords;

impl Parameter for Keywords {
    fn name(&self) -> &'static str {
        "keywords"
    }

    fn kind(&self) -> Kind {
        Kind::Keywords
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "Case-insensitive search in every value at every depth; any keyword matches, or all with `keywords_mode=and`"
    }

    fn documentation(&self) -> &'static str {
        "Keeps the entities in which the text of any value, at any depth, contains a keyword, whatever the case; with \
         `keywords_mode=and` every keyword must be in some value. The names of fields are not searched, nor is anything \
         that the steps before have removed. Split at every comma, without escapes; blanks around a keyword do not count, \
         and empty ones are dropped; none left is as if the parameter were not given."
    }

    fn example(&self) -> Option<&'static str> {
        Some("republic,kingdom")
    }

    fn repetition(&self) -> Repetition {
        Repetition::List
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.keywords.extend(keywords(value).map(str::to_owned));
        Ok(())
    }
}

/// The items of a list, trimmed of blanks (spaces and tabs), without the empty ones.
fn keywords(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(|keyword| keyword.trim_matches([' ', '\t'])).filter(|keyword| !keyword.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_joined_in_order() {
        let mut request = ReadRequest::default();
        for list in ["b,a", "", "b"] {
            assert_eq!(Keywords.apply(list, &mut request), Ok(()));
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
}
