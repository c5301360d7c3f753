//! `limit`: the most entities a response holds.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `limit`.
pub(super) struct Limit;

impl Parameter for Limit {
    fn name(&self) -> &'static str {
        "limit"
    }

    fn kind(&self) -> Kind {
        Kind::WholeNumber
    }

    fn default_text(&self) -> &'static str {
        "all"
    }

    fn summary(&self) -> &'static str {
        "Returns at most N entities"
    }

    fn documentation(&self) -> &'static str {
        "Returns at most N entities, counted after `offset`. `limit=0` is valid and gives an empty result."
    }

    fn example(&self) -> Option<&'static str> {
        Some("5")
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.limit = Some(value::whole_number(value)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_numbers() {
        for (value, limit) in [("0", 0), ("100", 100), ("18446744073709551615", u64::MAX)] {
            let mut request = ReadRequest::default();
            assert_eq!(Limit.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { limit: Some(limit), ..ReadRequest::default() });
        }
    }

    #[test]
    fn refuses_everything_else() {
        for value in ["", "-1", "+1", " 1", "1 ", "1.0", "1e2", "0x10", "ten", "\u{661}"] {
            let refused = Limit.apply(value, &mut ReadRequest::default());
            assert_eq!(refused.map_err(|reason| reason.problem), Err("is not a whole number".into()), "{value:?}");
        }
        let refused = Limit.apply("18446744073709551616", &mut ReadRequest::default());
        assert_eq!(refused.map_err(|reason| reason.problem), Err("is too large".into()));
    }
}
