//! The description of a tool.

use futures::future::BoxFuture;
use rmcp::model::JsonObject;

use super::Caller;
use super::error::ToolError;
use super::output::Output;
use crate::http::management::Fields;

/// A tool.
pub(super) struct Tool {
    /// What it is called by.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it does, in one line without a final full stop, for tables.
    pub summary: &'static str,
    /// What a model must know to use it, after the summary.
    pub details: &'static str,
    /// What it changes.
    pub effect: Effect,
    /// The schema of its arguments: an object whose properties are all there are.
    pub arguments: fn() -> JsonObject,
    /// The schema of its result, where that is one JSON object.
    pub result: Option<fn() -> JsonObject>,
    /// Runs it.
    pub call: for<'a> fn(&'a Caller, Fields) -> BoxFuture<'a, Result<Output, ToolError>>,
}

/// What calling a tool changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// It replaces what is there; once more is refused.
    Replaces,
}
