//! `denull`: removes nulls and empty strings.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `denull`.
pub(super) struct Denull;

impl Parameter for Denull {
    fn name(&self) -> &'static str {
        "denull"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "false"
    }

    fn summary(&self) -> &'static str {
        "Removes nulls and empty strings at every depth, and the arrays that this empties"
    }

    fn documentation(&self) -> &'static str {
        "Removes nulls and empty strings from objects and arrays at every depth. An array that held something and is empty \
         afterwards is removed too, from the inside out; arrays that came empty stay, and so do objects, even when nothing \
         is left in them. The number of entities does not change."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.denull = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, denull) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(Denull.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { denull, ..ReadRequest::default() });
        }
        assert!(Denull.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
