//! `flatten`: makes entities flat.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `flatten`.
pub(super) struct Flatten;

impl Parameter for Flatten {
    fn name(&self) -> &'static str {
        "flatten"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "false"
    }

    fn summary(&self) -> &'static str {
        "Makes `parent.field` keys of nested objects; always on for csv, tsv and parquet"
    }

    fn documentation(&self) -> &'static str {
        "Makes entities flat. The fields of an object become `parent.field`; an array whose elements are all objects becomes \
         `parent_0_field`, `parent_1_field`; any other array becomes one string that holds it as compact JSON; an empty \
         object leaves no key. The last step: filters, `sort` and field lists name the original fields. `csv`, `tsv` and \
         `parquet` are always flat, whatever this says."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.flatten = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, flatten) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(Flatten.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { flatten, ..ReadRequest::default() });
        }
        assert!(Flatten.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
