//! `dedup_key`: the fields that `dedup` compares.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `dedup_key`.
pub(super) struct DedupKey;

impl Parameter for DedupKey {
    fn name(&self) -> &'static str {
        "dedup_key"
    }

    fn kind(&self) -> Kind {
        Kind::Paths
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "With `dedup=true`, compares only these fields"
    }

    fn documentation(&self) -> &'static str {
        "With `dedup=true`, entities are duplicates when the values that these paths reach are equal; `_source` may be named. \
         A field that is missing is a value of its own, and an array is compared as a whole. Does nothing without \
         `dedup=true`. `\\.`, `\\,` and `\\\\` stand for the characters themselves. Blanks around a path do \
         not count, and empty items are dropped; none left is as if the parameter were not given."
    }

    fn example(&self) -> Option<&'static str> {
        Some("region,subregion")
    }

    fn repetition(&self) -> Repetition {
        Repetition::List
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.dedup_key.extend(value::paths(value)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::path::Path;

    #[test]
    fn lists_are_joined_in_order() {
        let mut request = ReadRequest::default();
        for list in ["b.c, a", ",", r"x\,y"] {
            assert_eq!(DedupKey.apply(list, &mut request), Ok(()));
        }
        let dedup_key = ["b.c", "a", r"x\,y"].map(|path| Path::parse(path).expect(path)).to_vec();
        assert_eq!(request, ReadRequest { dedup_key, ..ReadRequest::default() });
    }

    #[test]
    fn nothing_listed_is_nothing_given() {
        for list in ["", ",", " ,\t, "] {
            let mut request = ReadRequest::default();
            assert_eq!(DedupKey.apply(list, &mut request), Ok(()));
            assert_eq!(request, ReadRequest::default(), "{list:?}");
        }
    }
}
