//! `offset`: skips the first entities of the result.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `offset`.
pub(super) struct Offset;

impl Parameter for Offset {
    fn name(&self) -> &'static str {
        "offset"
    }

    fn kind(&self) -> Kind {
        Kind::WholeNumber
    }

    fn default_text(&self) -> &'static str {
        "0"
    }

    fn summary(&self) -> &'static str {
        "Skips the first N entities"
    }

    fn documentation(&self) -> &'static str {
        "Skips the first N entities of what the steps before it have left. An offset past the end gives an empty \
         result, not an error. Applied before `limit`."
    }

    fn example(&self) -> Option<&'static str> {
        Some("2")
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.offset = value::whole_number(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_numbers() {
        let mut request = ReadRequest::default();
        assert_eq!(Offset.apply("250", &mut request), Ok(()));
        assert_eq!(request, ReadRequest { offset: 250, ..ReadRequest::default() });
        assert!(Offset.apply("-1", &mut request).is_err());
    }
}
