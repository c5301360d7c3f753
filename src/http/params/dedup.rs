//! `dedup`: removes duplicates.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `dedup`.
pub(super) struct Dedup;

impl Parameter for Dedup {
    fn name(&self) -> &'static str {
        "dedup"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "false"
    }

    fn summary(&self) -> &'static str {
        "Keeps the first of equal entities, compared without `_source`, or by `dedup_key`"
    }

    fn documentation(&self) -> &'static str {
        "Keeps the first of each group of equal entities, in the order of `sort` if it is given. Entities are equal when \
         their JSON values are: the order of keys and the spelling of numbers (`1`, `1.0`) do not matter, strings are \
         compared exactly, null and missing differ. The top-level `_source` is left out. `dedup_key` compares chosen \
         fields instead."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.dedup = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, dedup) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(Dedup.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { dedup, ..ReadRequest::default() });
        }
        assert!(Dedup.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
