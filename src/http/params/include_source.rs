//! `include_source`: whether entities keep their `_source`.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `include_source`.
pub(super) struct IncludeSource;

impl Parameter for IncludeSource {
    fn name(&self) -> &'static str {
        "include_source"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "true"
    }

    fn summary(&self) -> &'static str {
        "`false` removes the top-level `_source`"
    }

    fn documentation(&self) -> &'static str {
        "`false` removes the top-level `_source` of every entity before any other step, so that no later step finds it. A \
         `_source` deeper in an entity stays. With `keep_field`, `_source` is kept only if it is listed."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.include_source = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, include_source) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(IncludeSource.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { include_source, ..ReadRequest::default() });
        }
        assert!(IncludeSource.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
