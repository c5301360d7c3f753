//! Why a tool has no result.

use crate::http::error::HttpError;
use crate::http::text::quoted;

#[derive(Debug)]
pub(super) enum ToolError {
    /// What the same call over HTTP would be refused with.
    Http(HttpError),
    NoSuchArgument {
        name: String,
        known: String,
        /// The one that was perhaps meant.
        nearest: Option<String>,
    },
    /// The result would be too long; says what to do instead.
    TooLong {
        limit_bytes: usize,
        instead: &'static str,
    },
    TooSlow {
        seconds: u64,
    },
    Left,
}

impl<E: Into<HttpError>> From<E> for ToolError {
    fn from(error: E) -> Self {
        ToolError::Http(error.into())
    }
}

impl ToolError {
    /// Whether the service is to blame, and the text for the caller. What is not told is logged.
    pub(super) fn told(&self) -> (bool, String) {
        match self {
            ToolError::Http(error) => {
                let (status, text) = error.told();
                (status.is_server_error(), text)
            }
            ToolError::NoSuchArgument { name, known, nearest } => {
                let meant = nearest.as_ref().map_or_else(String::new, |nearest| format!(" did you mean {nearest}?"));
                let valid = format!("valid: {known}");
                (false, format!("Invalid request: {}: there is no such argument;{meant} {valid}.", quoted(name)))
            }
            ToolError::TooLong { limit_bytes, instead } => {
                (false, format!("The result would be longer than {limit_bytes} bytes. {instead}"))
            }
            ToolError::TooSlow { seconds } => (true, format!("The tool was stopped after {seconds} s.")),
            ToolError::Left => (false, "The client left.".to_owned()),
        }
    }
}
