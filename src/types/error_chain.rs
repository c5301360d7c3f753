//! Display of errors with their causes on one line, for logs and messages.

use std::error::Error;
use std::fmt;
use std::iter::successors;

pub fn iter_error_chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// Displays an error and its causes with [`join_errors`].
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&join_errors(iter_error_chain(self.0).map(ToString::to_string)))
    }
}

/// Joins error messages on one line, outermost first. Many errors repeat the message of their cause: a message that an
/// earlier message contains is omitted, and so is a message with which the next one starts.
pub fn join_errors(texts: impl IntoIterator<Item = String>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for text in texts {
        if !parts.is_empty() && parts.join(": ").contains(&text) {
            continue;
        }
        if parts.last().is_some_and(|last| text.starts_with(last.as_str())) {
            parts.pop();
        }
        parts.push(text);
    }
    parts.join(": ").lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}
