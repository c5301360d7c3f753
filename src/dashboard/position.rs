//! Positions of entities as addresses and forms name them: shown as they were sent, also where no number is as large.

use axum::http::StatusCode;
use strata_http::error::HttpError;
use strata_http::visit::quoted;

use super::figures;

#[derive(Clone, Debug)]
pub(super) struct Position {
    /// Past all entities where it was sent larger than numbers are.
    pub(super) at: u64,
    sent: String,
}

impl Position {
    /// The one of a text; 400 for anything else.
    pub(super) fn parse(text: &str) -> Result<Position, HttpError> {
        let text = text.trim();
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match digits {
            // Past all that there are.
            true => Ok(Position { at: text.parse().unwrap_or(u64::MAX), sent: figures::as_sent(text) }),
            false => {
                let text = format!("The position must be a whole number (0 or greater), but is {}.", quoted(text));
                Err(HttpError::Invalid { status: StatusCode::BAD_REQUEST, text })
            }
        }
    }

    /// Whether no entity can be there.
    pub(super) fn is_past_all(&self) -> bool {
        self.at == u64::MAX
    }

    /// That an entity is not there, of a version or a list.
    pub(super) fn is_in_none(&self, what: &str, entities: u64) -> HttpError {
        let text = figures::no_position(&self.sent, what, entities);
        HttpError::Invalid { status: StatusCode::NOT_FOUND, text }
    }
}

impl From<u64> for Position {
    fn from(at: u64) -> Self {
        Position { at, sent: at.to_string() }
    }
}
