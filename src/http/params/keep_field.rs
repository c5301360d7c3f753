//! `keep_field`: keeps only some fields.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `keep_field`.
pub(super) struct KeepField;

impl Parameter for KeepField {
    fn name(&self) -> &'static str {
        "keep_field"
    }

    fn kind(&self) -> Kind {
        Kind::Paths
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "Keeps only the listed fields; `a.b` keeps of `a` only `b`"
    }

    fn documentation(&self) -> &'static str {
        "Keeps only the listed fields, in the order in which the entity has them. `a.b` keeps the parent `a` with only its \
         field `b`; in arrays, nested ones too, every object is reduced so. What has no fields, a scalar, is removed \
         there. `a,a.b` keeps all of `a`. `_source` is kept only if it is listed. The steps \
         after it (`filter`, `keywords`, `sort`, `dedup`) find only what is kept. `\\.`, `\\,` and `\\\\` stand for the \
         characters themselves. Blanks around a path do not count, and empty items are dropped; none left is as if the \
         parameter were not given."
    }

    fn example(&self) -> Option<&'static str> {
        Some("name,region,area")
    }

    fn repetition(&self) -> Repetition {
        Repetition::List
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.keep.extend(value::paths(value)?);
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
            assert_eq!(KeepField.apply(list, &mut request), Ok(()));
        }
        let keep = ["b.c", "a", r"x\,y"].map(|path| Path::parse(path).expect(path)).to_vec();
        assert_eq!(request, ReadRequest { keep, ..ReadRequest::default() });
    }

    #[test]
    fn nothing_listed_is_nothing_given() {
        for list in ["", ",", " ,\t, "] {
            let mut request = ReadRequest::default();
            assert_eq!(KeepField.apply(list, &mut request), Ok(()));
            assert_eq!(request, ReadRequest::default(), "{list:?}");
        }
    }
}
