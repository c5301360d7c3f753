//! The parameter `total`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const TOTAL: Parameter = Parameter {
    name: "total",
    kind: ParameterKind::Boolean,
    default_text: "false",
    summary: "Tells in `X-Total-Matches` how many entities match, whatever the page",
    documentation: "Adds the header `X-Total-Matches`: the number of entities after `dedup`, before `sample`, `offset` \
         and `limit`. Also with `count`. The body is the same. Where the page does not tell the number, the service \
         counts once, and keeps the count for the next pages.",
    example: None,
    repetition: Repetition::Single,
    apply: |value, request| {
        request.total = value::boolean(value)?;
        Ok(())
    },
};
