//! The description of a tool.

use futures::future::BoxFuture;
use rmcp::model::JsonObject;

use super::Caller;
use super::error::ToolError;
use super::output::Output;
use crate::http::management::Fields;
use crate::model::scope::Scope;

/// A tool.
pub(super) struct Tool {
    /// What it is called by.
    pub name: &'static str,
    /// What it does, in one line without a final full stop, for tables.
    pub summary: &'static str,
    /// What a model must know to use it, after the summary.
    pub details: &'static str,
    /// What it changes.
    pub effect: Effect,
    /// The schema of its arguments: an object whose properties are all there are, but for those of `like`.
    pub arguments: fn() -> JsonObject,
    /// A tool whose arguments it takes, too.
    pub like: Option<fn() -> JsonObject>,
    /// Runs it.
    pub call: for<'a> fn(&'a Caller, Fields) -> BoxFuture<'a, Result<Output, ToolError>>,
}

impl Effect {
    /// The scope that a call with this effect needs.
    pub(super) fn needed(self) -> Scope {
        match self {
            Effect::Nothing => Scope::Read,
            Effect::Replaces => Scope::Write,
        }
    }
}

/// What calling a tool changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing.
    Nothing,
    /// It replaces what is there; once more is refused.
    Replaces,
}
