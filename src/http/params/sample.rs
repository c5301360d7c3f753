//! `sample`: a random sample of the entities.

use super::{InvalidValue, Kind, Parameter, Repetition, value};
use crate::model::request::ReadRequest;

/// The parameter `sample`.
pub(super) struct Sample;

impl Parameter for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn kind(&self) -> Kind {
        Kind::WholeNumber
    }

    fn default_text(&self) -> &'static str {
        "none"
    }

    fn summary(&self) -> &'static str {
        "Returns N entities at random, without repetition, in random order"
    }

    fn documentation(&self) -> &'static str {
        "Returns N of the entities that the steps before have left, or all when there are fewer: chosen without repetition, \
         each as likely as any other, and shuffled, with a cryptographically secure generator. Every request draws anew. \
         `offset` and `limit` apply to the sample."
    }

    fn example(&self) -> Option<&'static str> {
        Some("100")
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        request.sample = Some(value::whole_number(value)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_numbers() {
        for (value, sample) in [("0", 0), ("250", 250), ("18446744073709551615", u64::MAX)] {
            let mut request = ReadRequest::default();
            assert_eq!(Sample.apply(value, &mut request), Ok(()));
            assert_eq!(request, ReadRequest { sample: Some(sample), ..ReadRequest::default() });
        }
        assert!(Sample.apply("-1", &mut ReadRequest::default()).is_err());
    }
}
