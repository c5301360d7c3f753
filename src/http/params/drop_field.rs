//! `drop_field`: removes some fields.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `drop_field`.
pub(super) struct DropField;

impl Parameter for DropField {
    fn name(&self) -> &'static str {
        "drop_field"
    }

    fn kind(&self) -> Kind {
        Kind::Paths
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "Removes the listed fields; `a.b` reaches into objects and arrays of objects"
    }

    fn documentation(&self) -> &'static str {
        "Removes the listed fields from every entity, wherever the path reaches: `a.b` reaches into objects and, through \
         arrays, into every element. A parent that is emptied stays. Applied after `keep_field` and before `filter`, \
         `keywords`, `sort` and `dedup`, which no longer find what is removed. `\\.`, `\\,` and `\\\\` \
         stand for the characters themselves. Blanks around a path do not count, and empty items are dropped; none left \
         is as if the parameter were not given."
    }

    fn example(&self) -> Option<&'static str> {
        Some("name.native")
    }

    fn repetition(&self) -> Repetition {
        Repetition::List
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.drop.extend(value::paths(value)?);
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
            assert_eq!(DropField.apply(list, &mut request), Ok(()));
        }
        let drop = ["b.c", "a", r"x\,y"].map(|path| Path::parse(path).expect(path)).to_vec();
        assert_eq!(request, ReadRequest { drop, ..ReadRequest::default() });
    }

    #[test]
    fn nothing_listed_is_nothing_given() {
        for list in ["", ",", " ,\t, "] {
            let mut request = ReadRequest::default();
            assert_eq!(DropField.apply(list, &mut request), Ok(()));
            assert_eq!(request, ReadRequest::default(), "{list:?}");
        }
    }
}
