//! `count`: answers with the number of entities instead of the entities.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `count`.
pub(super) struct Count;

impl Parameter for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "false"
    }

    fn summary(&self) -> &'static str {
        "Returns only `{\"count\":…,\"dataset_id\":…,\"version\":…,\"alt\":…}`"
    }

    fn documentation(&self) -> &'static str {
        "Returns, instead of the entities, one JSON object with the fields `count`, `dataset_id`, `version` and `alt`. \
         `count` is the number of entities that the same request would return without it, after `offset` and `limit`. \
         The answer is JSON whatever `format` says."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.count = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, count) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(Count.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { count, ..ReadRequest::default() });
        }
        assert!(Count.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
