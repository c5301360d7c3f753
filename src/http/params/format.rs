//! `format`: the serialization of the response.

use strata_types::request::Format;

use super::{InvalidValue, Parameter, ParameterKind, Repetition};

pub(super) const FORMAT: Parameter = Parameter {
    name: "format",
    kind: ParameterKind::OneOf(&Format::NAMES),
    default_text: "json",
    summary: "Response format",
    documentation: "The format of the response. `json` is an array of entities, `jsonl` is one compact entity per \
         line, and `xml` contains one `entity` element per entity. `csv`, `tsv`, and `parquet` are tables of flattened \
         entities, which strata returns as file downloads. The columns are the fields of the entities in the response. \
         Without `typed`, all `parquet` values are text.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| {
        let format = Format::ALL.into_iter().find(|format| format.name() == value);
        let invalid = || InvalidValue::new("is not a supported format", Format::NAMES.join(", "));
        format.ok_or_else(invalid).map(|format| request.format = format)
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::ReadRequest;

    #[test]
    fn takes_every_format_by_its_name() {
        for format in Format::ALL {
            let mut request = ReadRequest::default();
            assert_eq!((FORMAT.apply)(format.name(), &mut request), Ok(()));
            assert_eq!(request, ReadRequest { format, ..ReadRequest::default() });
        }
    }

    #[test]
    fn the_documented_default_is_the_default() {
        assert_eq!(FORMAT.default_text, ReadRequest::default().format.name());
    }

    #[test]
    fn names_are_exact() {
        for value in ["JSON", "Jsonl", " json", "yaml", ""] {
            let refused = (FORMAT.apply)(value, &mut ReadRequest::default()).expect_err(value);
            assert!(Format::ALL.iter().all(|format| refused.valid.contains(format.name())), "{refused:?}");
        }
    }
}
