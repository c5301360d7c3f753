//! The parameter `typed`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const TYPED: Parameter = Parameter {
    name: "typed",
    kind: ParameterKind::Boolean,
    default_text: "false",
    summary: "Gives columns of parquet types: BOOLEAN, INT64, DOUBLE or text; no effect on other formats",
    documentation: "With `format=parquet`, a column of the answer whose values, nulls aside, are all booleans is BOOLEAN; \
         all integers of 64 bits INT64 (`1.0` is none); all numbers that a double holds DOUBLE. An integer that no double \
         equals, and `1e400`, are none of these. Any other column, and one without values, stays text. Names and rows \
         are as without it. Row groups have one size, and pages an index, so that tools skip what they need not read.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| {
        request.typed = value::boolean(value)?;
        Ok(())
    },
};
