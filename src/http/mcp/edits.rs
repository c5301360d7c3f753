//! The tools that pull entities, edit an alternate (edited copy of a version) by position, and push a whole alternate.

use axum::body::Bytes;
use futures::stream;
use serde::Serialize;
use serde_json::json;
use strata_types::limits;
use strata_types::token_scope::TokenScope;

use super::ToolCaller;
use super::argument_schemas::{
    flag_schema, positive_schema, text_schema, version_selector_schema, whole_number_schema,
};
use super::tool::{self, ToolOutput, ToolResult, ToolSpec};
use crate::management::{CallFields, alternate_edits, alternates, records};

const MAX_PULL_BYTES: usize = limits::MAX_TOOL_PULLED_BYTES;

const PULL_TOO_LONG_ADVICE: &str = "Pull a page with limit and offset. To change a few entities, find them with read \
     (positions=true) and call edit_alt_version. For versions of any size, use HTTP with the same API token: POST \
     /agent/pull_for_edit returns the version, and POST /agent/push_alt_version saves the alternate.";

const AFTER_CHANGE_ADVICE: &str =
    "read with alt=true returns the alternate; use this etag for the next edit_alt_version or push_alt_version";

const AFTER_PAGE_ADVICE: &str = "Next: edit_alt_version with this etag changes entities by position. The position of \
     an entity is offset plus its index in this page. Pages with the same etag belong to the same list.";

/// The advice after a pull of entities from a version that has an alternate (edited copy), because edits then refer to
/// positions in the alternate. The returned etag is valid for both.
const HAS_ALTERNATE_ADVICE: &str = "This version has an alternate, but these entities come from the version itself. \
     Positions in edit_alt_version refer to the alternate, so pull with alt=true before you call edit_alt_version. \
     push_alt_version with this etag replaces the whole alternate.";

pub(super) const PULL_FOR_EDIT_TOOL: ToolSpec = ToolSpec {
    name: "pull_for_edit",
    summary: "Returns all entities of a version or its alternate, or one page of entities, with the etag for edits",
    details: "Returns one JSON object with `version`, `etag`, `entities` and, for a page, `total_count` and \
              `next_offset`. limit=0 returns only the etag. The entities can total at most 1 MiB. Next: \
              `edit_alt_version` for a few changes, or `push_alt_version` for a whole new list.",
    scope: TokenScope::Read,
    arguments: || {
        vec![
            ("dataset_id", positive_schema("One of your datasets")),
            ("version", version_selector_schema()),
            ("alt", flag_schema("Pulls the version's alternate")),
            ("offset", whole_number_schema(0, "For a page: position of its first entity")),
            (
                "limit",
                json!({"type": "integer", "minimum": 0, "description": "For a page: maximum number of entities"}),
            ),
        ]
    },
    required: &["dataset_id"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(pull_for_edit(caller, arguments)),
};

pub(super) const EDIT_ALT_VERSION_TOOL: ToolSpec = ToolSpec {
    name: "edit_alt_version",
    summary: "Replaces, removes, and inserts entities by position in a version's alternate, which starts as a copy of \
              the version",
    details: "Saves all edits or none; other entities do not change. Positions start at 0 and refer to the current \
              list: the alternate if any, otherwise the version. Get positions and the `etag` from `read` with \
              positions=true or from `pull_for_edit`. If the etag is stale, nothing is saved: find the positions \
              again. The result contains the next `etag`.",
    scope: TokenScope::Write,
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
            ("dataset_id", positive_schema("One of your datasets")),
            ("version", positive_schema("The version number")),
            ("etag", text_schema("From read, pull_for_edit, or the previous change")),
            ("edits", json!({"type": "array", "minItems": 1, "items": edit, "description": about})),
        ]
    },
    required: &["dataset_id", "version", "etag", "edits"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(edit_alternate(caller, arguments)),
};

pub(super) const PUSH_ALT_VERSION_TOOL: ToolSpec = ToolSpec {
    name: "push_alt_version",
    summary: "Saves a list of entities as a version's alternate, unless the alternate has changed since the pull",
    details: "`entities` is the complete list, in order: entities that you leave out will not be in the alternate. For \
              a few changes, `edit_alt_version` is cheaper. If the etag is stale, nothing is saved: pull again, redo \
              the edit, and push with the new etag.",
    scope: TokenScope::Write,
    arguments: || {
        let about = "All entities of the alternate, in order";
        vec![
            ("dataset_id", positive_schema("One of your datasets")),
            ("version", positive_schema("The number of the version you pulled")),
            ("etag", text_schema("From pull_for_edit or the previous change")),
            ("entities", json!({"type": "array", "items": {"type": "object"}, "description": about})),
        ]
    },
    required: &["dataset_id", "version", "etag", "entities"],
    inherited_arguments: None,
    call: |caller, arguments| Box::pin(push_alternate(caller, arguments)),
};

#[derive(Serialize)]
struct AlternateChangeOutput {
    #[serde(flatten)]
    response: records::PushResponse,
    next: &'static str,
}

async fn pull_for_edit(caller: &ToolCaller, arguments: CallFields) -> ToolResult {
    let pulled = alternates::pull_entities(&caller.services, &caller.user, &arguments).await?;
    let is_page = pulled.record.total_count.is_some();
    let is_version_with_alternate = pulled.has_alternate && !pulled.record.alt;
    let (before, after) = pulled.json_envelope()?;
    let entities = tool::collect_text(pulled.entities, MAX_PULL_BYTES, PULL_TOO_LONG_ADVICE).await?;
    let mut texts = vec![format!("{before}{entities}{after}")];
    if is_version_with_alternate {
        texts.push(HAS_ALTERNATE_ADVICE.to_owned());
    } else if is_page {
        texts.push(AFTER_PAGE_ADVICE.to_owned());
    }
    Ok(ToolOutput(texts))
}

/// The arguments of the tool become the body of the HTTP call, without being parsed into values.
async fn push_alternate(caller: &ToolCaller, _: CallFields) -> ToolResult {
    let body = stream::iter([Ok::<_, std::convert::Infallible>(arguments_body(caller))]);
    alternate_change_output(alternates::push_alternate(&caller.services, &caller.user, body).await?)
}

async fn edit_alternate(caller: &ToolCaller, _: CallFields) -> ToolResult {
    // `caller` already holds the memory reservation of the message, which contains the edits.
    alternate_change_output(
        alternate_edits::apply_alternate_edits(&caller.services, &caller.user, arguments_body(caller), None).await?,
    )
}

fn arguments_body(caller: &ToolCaller) -> Bytes {
    caller.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"))
}

fn alternate_change_output(response: records::PushResponse) -> ToolResult {
    let output = AlternateChangeOutput { response, next: AFTER_CHANGE_ADVICE };
    tool::json_output(&output, MAX_PULL_BYTES, PULL_TOO_LONG_ADVICE)
}
