//! `pretty`: whether JSON is indented.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `pretty`.
pub(super) struct Pretty;

impl Parameter for Pretty {
    fn name(&self) -> &'static str {
        "pretty"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "true"
    }

    fn summary(&self) -> &'static str {
        "Indents JSON; `false` gives compact single-line output; no effect on other formats"
    }

    fn documentation(&self) -> &'static str {
        "Indents JSON by two spaces; `false` gives compact output on a single line. Has no effect on other formats."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.pretty = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, pretty) in [("false", false), ("true", true)] {
            let mut request = ReadRequest::default();
            assert_eq!(Pretty.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { pretty, ..ReadRequest::default() });
        }
        assert!(Pretty.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
