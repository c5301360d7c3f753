//! The tools that edit: pulling the entities of a version, editing its alternate by position, pushing a whole one.

use axum::body::Bytes;
use futures::stream;
use serde::Serialize;
use serde_json::json;
use strata_types::limits;
use strata_types::scope::Scope;

use super::tool::{self, Output, Tool, ToolResult};
use super::{Caller, schemas};
use crate::management::{Fields, alternate_edits, edits, records};

const BYTES: usize = limits::TOOL_PULL_BYTES;

const INSTEAD: &str = "Pull a page with limit and offset. To change a few entities, find them with read \
                       (positions=true) and call edit_alt_version. For versions of any size, use HTTP with the same API \
                       token: POST /agent/pull_for_edit returns the version, and POST /agent/push_alt_version saves \
                       the alternate.";

const NEXT: &str =
    "read with alt=true returns the alternate; use this etag for the next edit_alt_version or push_alt_version";

const NEXT_OF_PAGE: &str = "Next: edit_alt_version with this etag changes entities by position. The position of an \
                            entity is offset plus its index in this page. Pages with the same etag belong to the same list.";

/// The advice for entities to which positions do not refer. The etag is valid for them, too.
const HAS_ALTERNATE: &str = "This version has an alternate, but these entities come from the version itself. Positions \
                             in edit_alt_version refer to the alternate, so pull with alt=true before you call \
                             edit_alt_version. push_alt_version with this etag replaces the whole alternate.";

pub(super) const PULL_FOR_EDIT: Tool = Tool {
    name: "pull_for_edit",
    summary: "Returns all entities of a version or its alternate, or one page of entities, with the etag for edits",
    details: "Returns one JSON object with `version`, `etag`, `entities` and, for a page, `total_count` and \
              `next_offset`. limit=0 returns only the etag. The entities can total at most 1 MiB. Next: \
              `edit_alt_version` for a few changes, or `push_alt_version` for a whole new list.",
    scope: Scope::Read,
    arguments: || {
        vec![
            ("dataset_id", schemas::positive("One of your datasets")),
            ("version", schemas::selector()),
            ("alt", schemas::flag("Pulls the version's alternate")),
            ("offset", schemas::whole_number(0, "For a page: position of its first entity")),
            (
                "limit",
                json!({"type": "integer", "minimum": 0, "description": "For a page: maximum number of entities"}),
            ),
        ]
    },
    required: &["dataset_id"],
    like: None,
    call: |caller, arguments| Box::pin(pull(caller, arguments)),
};

pub(super) const EDIT_ALT_VERSION: Tool = Tool {
    name: "edit_alt_version",
    summary: "Replaces, removes, and inserts entities by position in a version's alternate, which starts as a copy of \
              the version",
    details: "Saves all edits or none; other entities do not change. Positions start at 0 and refer to the current \
              list: the alternate if any, otherwise the version. Get positions and the `etag` from `read` with \
              positions=true or from `pull_for_edit`. If the etag is stale, nothing is saved: find the positions \
              again. The result contains the next `etag`.",
    scope: Scope::Write,
    arguments: || {
        let entity = json!({"type": "object"});
        let edit = json!({
            "type": "object",
            "properties": {
                "position": {"type": "integer", "minimum": 0},
                "set": {"type": "object", "description": "The complete entity"},
                "remove": {"const": true},
                "insert": {"type": "array", "items": entity, "description": "Entities to insert before the position; \
                                                                             at the list length, they are appended"},
            },
            "required": ["position"],
            "additionalProperties": false,
        });
        let about = "Each edit has one of set, remove, or insert; at most one set or remove per position";
        vec![
            ("dataset_id", schemas::positive("One of your datasets")),
            ("version", schemas::positive("The version number")),
            ("etag", schemas::text("From read, pull_for_edit, or the previous change")),
            ("edits", json!({"type": "array", "minItems": 1, "items": edit, "description": about})),
        ]
    },
    required: &["dataset_id", "version", "etag", "edits"],
    like: None,
    call: |caller, arguments| Box::pin(edit(caller, arguments)),
};

pub(super) const PUSH_ALT_VERSION: Tool = Tool {
    name: "push_alt_version",
    summary: "Saves a list of entities as a version's alternate, unless the alternate has changed since the pull",
    details: "`entities` is the complete list, in order: entities that you leave out will not be in the alternate. For \
              a few changes, `edit_alt_version` is cheaper. If the etag is stale, nothing is saved: pull again, redo \
              the edit, and push with the new etag.",
    scope: Scope::Write,
    arguments: || {
        let about = "All entities of the alternate, in order";
        vec![
            ("dataset_id", schemas::positive("One of your datasets")),
            ("version", schemas::positive("The number of the version you pulled")),
            ("etag", schemas::text("From pull_for_edit or the previous change")),
            ("entities", json!({"type": "array", "items": {"type": "object"}, "description": about})),
        ]
    },
    required: &["dataset_id", "version", "etag", "entities"],
    like: None,
    call: |caller, arguments| Box::pin(push(caller, arguments)),
};

#[derive(Serialize)]
struct Changed {
    #[serde(flatten)]
    answer: records::PushAnswer,
    next: &'static str,
}

async fn pull(caller: &Caller, arguments: Fields) -> ToolResult {
    let pulled = edits::pull(&caller.services, &caller.user, &arguments).await?;
    let is_page = pulled.record.total_count.is_some();
    let is_beside_alternate = pulled.has_alternate && !pulled.record.alt;
    let (before, after) = pulled.around()?;
    let entities = tool::text(pulled.entities, BYTES, INSTEAD).await?;
    let mut texts = vec![format!("{before}{entities}{after}")];
    if is_beside_alternate {
        texts.push(HAS_ALTERNATE.to_owned());
    } else if is_page {
        texts.push(NEXT_OF_PAGE.to_owned());
    }
    Ok(Output(texts))
}

/// The arguments are the body of the HTTP call, as slices of the message.
async fn push(caller: &Caller, _: Fields) -> ToolResult {
    let body = stream::iter([Ok::<_, std::convert::Infallible>(body(caller))]);
    changed(edits::push(&caller.services, &caller.user, body).await?)
}

async fn edit(caller: &Caller, _: Fields) -> ToolResult {
    // The caller holds the reserved memory of the message.
    changed(alternate_edits::make(&caller.services, &caller.user, body(caller), None).await?)
}

fn body(caller: &Caller) -> Bytes {
    caller.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"))
}

fn changed(answer: records::PushAnswer) -> ToolResult {
    tool::record(&Changed { answer, next: NEXT }, BYTES, INSTEAD)
}
