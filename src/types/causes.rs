//! An error and its causes: as a list, and on one line for logs and messages.

use std::error::Error;
use std::fmt;
use std::iter::successors;

/// The error, then its cause, then the cause of that, and so on.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    successors(Some(error), |&error| error.source())
}

/// Displays an error and its causes as [`joined`] writes them.
#[derive(Clone, Copy, Debug)]
pub struct Causes<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Causes<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&joined(chain(self.0).map(ToString::to_string)))
    }
}

/// The texts of an error and its causes on one line, the outermost first. Many errors repeat the text of their cause. A
/// text that an earlier one already contains is left out, and so is one with which its cause begins.
pub fn joined(texts: impl IntoIterator<Item = String>) -> String {
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
