//! The parameter `seed`.

use super::{Parameter, ParameterKind, Repetition, value};

pub(super) const SEED: Parameter = Parameter {
    name: "seed",
    kind: ParameterKind::WholeNumber,
    default_text: "none",
    summary: "Makes `sample` draw the same list each time; 400 without `sample`",
    documentation: "Determines what `sample` draws: the same file, the same steps up to `dedup`, the same `sample` and the \
         same `seed` give the same list, whatever `offset`, `limit` and `format`, also after a restart and on every \
         node. So a sample can be paged, cached and cited. Such an answer has an `ETag`; another one says that the list \
         may be another, too. Without `sample` it is refused.",
    example: Some("1"),
    repetition: Repetition::Single,
    apply: |value, request| {
        request.seed = Some(value::whole_number(value)?);
        Ok(())
    },
};
