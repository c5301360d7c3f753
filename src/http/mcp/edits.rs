//! The tools that edit: pulling the entities of a version, editing its alternate by position, pushing a whole one.

use axum::body::Bytes;
use futures::stream;
use serde::Serialize;
use serde_json::json;
use strata_types::limits;
use strata_types::scope::Scope;

use super::tool::{self, Output, Tool, ToolResult};
use super::{Caller, schemas};
use crate::http::management::{Fields, alternate_edits, edits};

const BYTES: usize = limits::TOOL_PULL_BYTES;

const INSTEAD: &str = "Pull a page with limit and offset; to change a few entities, find them with read (positions=true) and \
                       call edit_alt_version. POST /agent/pull_for_edit gives a version of any size over HTTP, and POST \
                       /agent/push_alt_version takes it back, with the same API token.";

const NEXT: &str =
    "read with alt=true shows the alternate; the next edit_alt_version or push_alt_version takes this etag";

const NEXT_OF_PAGE: &str = "Next: edit_alt_version with this etag changes entities by position; those of this list are offset \
                            plus the place on the page. Pages with one etag are of one list.";

/// What to do with entities that are not those in which positions count. The etag is theirs, too.
const HAS_ALTERNATE: &str = "This version has an alternate, and these entities are not its: they are the version's own. \
                             Positions of edit_alt_version are those of the alternate: pull with alt=true before you call \
                             it. push_alt_version with this etag replaces the whole alternate.";

pub(super) const PULL_FOR_EDIT: Tool = Tool {
    name: "pull_for_edit",
    summary: "Returns entities of a version of your dataset, or of its alternate, in full or by page, with the etag \
              for edits",
    details: "Returns one JSON object with `version`, `etag`, `entities` and, for a page, `total_count` and \
              `next_offset`. limit=0 returns only the etag. At most 1 MiB. Next: `edit_alt_version` for a few changes, \
              or `push_alt_version` for a whole new list.",
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
              list: the alternate, or the version if it has none. Get positions and the `etag` from `read` with \
              positions=true or from `pull_for_edit`. If the etag is stale, nothing is saved: find the positions \
              again. The result has the next `etag`.",
    scope: Scope::Write,
    arguments: || {
        let entity = json!({"type": "object"});
        let edit = json!({
            "type": "object",
            "properties": {
                "position": {"type": "integer", "minimum": 0},
                "set": {"type": "object", "description": "The complete entity"},
                "remove": {"const": true},
                "insert": {"type": "array", "items": entity, "description": "Inserted before the position; at the list \
                                                                             length, appended"},
            },
            "required": ["position"],
            "additionalProperties": false,
        });
        let about = "Each has one of set, remove, or insert; at most one set or remove per position";
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
    summary: "Saves entities as the alternate of a version of your dataset, unless one was saved or deleted since the \
              pull",
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
    answer: edits::PushAnswer,
    next: &'static str,
}

async fn pull(caller: &Caller, arguments: Fields) -> ToolResult {
    let pulled = edits::pull(&caller.app, &caller.user, &arguments).await?;
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

/// The arguments are the body of the call over HTTP. They are taken from the message as it came: a tree of values would
/// write some numbers otherwise.
async fn push(caller: &Caller, _: Fields) -> ToolResult {
    let body = stream::iter([Ok::<_, std::convert::Infallible>(body(caller))]);
    changed(edits::push(&caller.app, &caller.user, body).await?)
}

async fn edit(caller: &Caller, _: Fields) -> ToolResult {
    // The message keeps its room until it is answered.
    changed(alternate_edits::make(&caller.app, &caller.user, body(caller), None).await?)
}

fn body(caller: &Caller) -> Bytes {
    caller.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"))
}

fn changed(answer: edits::PushAnswer) -> ToolResult {
    // Always far shorter.
    tool::record(&Changed { answer, next: NEXT }, BYTES, INSTEAD)
}
