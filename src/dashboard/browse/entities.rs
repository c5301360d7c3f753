//! The entities of a response in JSON lines, within the limit of a page.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_service::AnswerBody;

pub(crate) struct Entities(Vec<u8>);

impl Entities {
    /// The first entities of a body that end within so many bytes.
    pub(crate) async fn take(body: AnswerBody, most_bytes: usize) -> Result<Entities, HttpError> {
        let mut lines = Vec::new();
        let mut parts = body.into_stream();
        while let Some(part) = parts.try_next().await? {
            let room = most_bytes - lines.len();
            lines.extend_from_slice(&part[..part.len().min(room)]);
            if part.len() >= room {
                break;
            }
        }
        // Without an incomplete line.
        lines.truncate(memchr::memrchr(b'\n', &lines).map_or(0, |end| end + 1));
        Ok(Entities(lines))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
    }
}
