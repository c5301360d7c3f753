//! `format`: the serialization of the response.

use super::{InvalidValue, Kind, Parameter, Repetition};
use crate::model::request::{Format, ReadRequest};

/// The parameter `format`. Not called `Format`, which is the value it sets.
pub(super) struct FormatParameter;

impl Parameter for FormatParameter {
    fn name(&self) -> &'static str {
        "format"
    }

    fn kind(&self) -> Kind {
        Kind::OneOf(names())
    }

    fn default_text(&self) -> &'static str {
        "json"
    }

    fn summary(&self) -> &'static str {
        "Response format"
    }

    fn documentation(&self) -> &'static str {
        "The serialization of the response. `json` is one array of entities, `jsonl` one compact entity per line, `xml` one \
         `entity` element each. `csv`, `tsv` and `parquet` are tables of flattened entities, offered as files; their \
         columns are the fields of the entities in the response, and the values of `parquet` are text."
    }

    fn repetition(&self) -> Repetition {
        Repetition::Single
    }

    fn apply(&self, value: &str, request: &mut ReadRequest) -> Result<(), InvalidValue> {
        match Format::ALL.into_iter().find(|format| format.name() == value) {
            Some(format) => {
                request.format = format;
                Ok(())
            }
            None => Err(InvalidValue::new("is not a supported format", names().join(", "))),
        }
    }
}

/// The names of all formats, in the order of documentation.
fn names() -> Vec<&'static str> {
    Format::ALL.map(Format::name).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_every_format_by_its_name() {
        for format in Format::ALL {
            let mut request = ReadRequest::default();
            assert_eq!(FormatParameter.apply(format.name(), &mut request), Ok(()));
            assert_eq!(request, ReadRequest { format, ..ReadRequest::default() });
        }
    }

    #[test]
    fn the_documented_default_is_the_default() {
        assert_eq!(FormatParameter.default_text(), ReadRequest::default().format.name());
    }

    #[test]
    fn names_are_exact() {
        for value in ["JSON", "Jsonl", " json", "yaml", ""] {
            let refused = FormatParameter.apply(value, &mut ReadRequest::default()).expect_err(value);
            assert!(Format::ALL.iter().all(|format| refused.valid.contains(format.name())), "{refused:?}");
        }
    }
}
