//! `alt`: reads the alternate of the version.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `alt`.
pub(super) struct Alt;

impl Parameter for Alt {
    fn name(&self) -> &'static str {
        "alt"
    }

    fn kind(&self) -> Kind {
        Kind::Boolean
    }

    fn default_text(&self) -> &'static str {
        "false"
    }

    fn summary(&self) -> &'static str {
        "Serves the alternate of the version; equals the path suffix `/alt/`"
    }

    fn documentation(&self) -> &'static str {
        "Serves the alternate of the requested version; 404 when the version has none. The path suffix `/alt/` means the \
         same, and wins over `alt=false`."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.alt = value::boolean(value)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_booleans() {
        for (value, alt) in [("true", true), ("false", false)] {
            let mut request = ReadRequest::default();
            assert_eq!(Alt.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { alt, ..ReadRequest::default() });
        }
        assert!(Alt.apply("yes", &mut ReadRequest::default()).is_err());
    }
}
