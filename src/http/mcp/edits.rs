//! The tools that edit: pulling the entities of a version, pushing its alternate.

use axum::body::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use serde_json::json;

use super::error::ToolError;
use super::output::Output;
use super::tool::{Effect, Tool};
use super::{Caller, output, schemas};
use crate::http::management::{Fields, edits};
use crate::model::limits;

/// Most bytes of entities that are pulled.
const BYTES: usize = limits::TOOL_PULL_BYTES;

const INSTEAD: &str = "POST /agent/pull_for_edit gives a version of any size over HTTP, and POST /agent/push_alt_version \
                       takes it back, with the same API token. To look at a part of it, use read.";

pub(super) const PULL_FOR_EDIT: Tool = Tool {
    name: "pull_for_edit",
    title: "Pull for editing",
    summary: "Gives all entities of a version of the caller's, or of its alternate, with the etag that a push takes",
    details: "The text is one JSON object with `dataset_id`, `version`, `alt`, `etag` and `entities`, each entity exactly \
              as it is stored. To go on with an edit that was pushed before, pull with alt=true. At most 1 MiB.",
    effect: Effect::Nothing,
    arguments: || {
        let properties = [
            ("dataset_id", schemas::positive("One of the caller's datasets.")),
            ("version", schemas::selector()),
            ("alt", schemas::flag("Whether to pull the version's alternate.")),
        ];
        schemas::object(properties, &["dataset_id"])
    },
    result: None,
    call: pull,
};

pub(super) const PUSH_ALT_VERSION: Tool = Tool {
    name: "push_alt_version",
    title: "Push an alternate",
    summary: "Saves entities as the alternate of a version of the caller's, unless one was saved or deleted since the pull",
    details: "`entities` is the whole list, in its order: what is left out is gone from the alternate. The version itself \
              never changes. The result has the `etag` for the next push. If the etag is stale nothing is saved: pull \
              again, redo the edit, push with the new etag.",
    effect: Effect::Replaces,
    arguments: || {
        let entity = json!({"type": "object"});
        let entities =
            json!({"type": "array", "items": entity, "description": "All entities of the alternate, in order."});
        let properties = [
            ("dataset_id", schemas::positive("One of the caller's datasets.")),
            ("version", schemas::positive("The number of the version that was pulled.")),
            ("etag", schemas::text("What pull_for_edit, or the push before, gave.")),
            ("entities", entities),
        ];
        schemas::object(properties, &["dataset_id", "version", "etag", "entities"])
    },
    result: Some(schemas::record::<edits::PushAnswer>),
    call: push,
};

fn pull(caller: &Caller, arguments: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let pulled = edits::pull(&caller.app, &caller.user, &arguments).await?;
        let (before, after) = pulled.around()?;
        let entities = output::text(pulled.entities, BYTES, INSTEAD).await?;
        Ok(Output::Texts(vec![format!("{before}{entities}{after}")]))
    })
}

/// The arguments are the body of the call over HTTP. They are taken from the message as it came: a tree of values would
/// write some numbers otherwise.
fn push(caller: &Caller, _: Fields) -> BoxFuture<'_, Result<Output, ToolError>> {
    Box::pin(async move {
        let body = caller.arguments.clone().unwrap_or_else(|| Bytes::from_static(b"{}"));
        let body = stream::iter([Ok::<_, std::convert::Infallible>(body)]);
        // Always far shorter.
        output::record(&edits::push(&caller.app, &caller.user, body).await?, BYTES, INSTEAD)
    })
}
