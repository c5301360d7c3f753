//! The parameters that take a part of the result: `sample` with its `seed`, `offset` and `limit`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const SAMPLE: Parameter = Parameter {
    name: "sample",
    kind: ParameterKind::WholeNumber,
    default_text: "none",
    summary: "Returns N random entities, without repetition, in random order",
    documentation: "Returns N random entities from the result of the earlier steps, in random order and without \
         repetition. If there are fewer than N, strata returns all of them. Every selection is equally likely, and the \
         random number generator is cryptographically secure. Each request draws a new sample unless you set `seed`. \
         `offset` and `limit` apply to the sample.",
    example: Some("100"),
    repetition: Repetition::Single,
    apply: |value, request| value::whole_number(value).map(|value| request.sample = Some(value)),
};

pub(super) const SEED: Parameter = Parameter {
    name: "seed",
    summary: "Makes `sample` return the same entities each time; returns 400 without `sample`",
    documentation: "Makes `sample` reproducible, so that you can page through, cache, and cite a sample. The sample \
         depends only on the version file, the values of `sample` and `seed`, and the steps up to `dedup`. It is the \
         same on every node and after a restart. If the `ETag` of the response changes, the sample might have changed, \
         too. Without `sample`, strata returns 400.",
    example: Some("1"),
    apply: |value, request| value::whole_number(value).map(|value| request.seed = Some(value)),
    ..SAMPLE
};

pub(super) const OFFSET: Parameter = Parameter {
    name: "offset",
    default_text: "0",
    summary: "Skips the first N entities",
    documentation: "Skips the first N entities in the result of the earlier steps. If the offset is past the end, the \
         result is empty. This step runs before `limit`.",
    example: Some("2"),
    apply: |value, request| value::whole_number(value).map(|value| request.offset = value),
    ..SAMPLE
};

pub(super) const LIMIT: Parameter = Parameter {
    name: "limit",
    default_text: "all",
    summary: "Returns at most N entities",
    documentation: "Returns at most N entities after `offset`. `limit=0` is valid and returns an empty result.",
    example: Some("5"),
    apply: |value, request| value::whole_number(value).map(|value| request.limit = Some(value)),
    ..SAMPLE
};

#[cfg(test)]
mod tests {
    use super::*;
    use strata_types::request::ReadRequest;

    #[test]
    fn takes_whole_numbers() {
        for (value, offset) in [("0", 0), ("250", 250), ("18446744073709551615", u64::MAX)] {
            let mut request = ReadRequest::default();
            for parameter in [SAMPLE, OFFSET, LIMIT] {
                assert_eq!((parameter.apply)(value, &mut request), Ok(()));
            }
            let (sample, limit) = (Some(offset), Some(offset));
            assert_eq!(request, ReadRequest { sample, offset, limit, ..ReadRequest::default() });
        }
    }

    #[test]
    fn refuses_everything_else() {
        for parameter in [SAMPLE, OFFSET, LIMIT] {
            let problem =
                |value| (parameter.apply)(value, &mut ReadRequest::default()).map_err(|reason| reason.problem);
            for value in ["", "-1", "+1", " 1", "1 ", "1.0", "1e2", "0x10", "ten", "\u{661}"] {
                assert_eq!(problem(value), Err("is not a whole number".into()), "{value:?}");
            }
            assert_eq!(problem("18446744073709551616"), Err("is too large".into()));
        }
    }
}
