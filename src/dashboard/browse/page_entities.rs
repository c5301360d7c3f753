//! The entities of a JSON Lines response, up to the size limit of a page.

use futures::TryStreamExt;
use strata_http::error::HttpError;
use strata_service::ResponseBody;

pub(crate) struct PageEntities(Vec<u8>);

impl PageEntities {
    pub(crate) async fn read_from_body(body: ResponseBody, max_bytes: usize) -> Result<PageEntities, HttpError> {
        let mut lines = Vec::new();
        let mut parts = body.into_stream();
        while let Some(part) = parts.try_next().await? {
            let bytes_left = max_bytes - lines.len();
            lines.extend_from_slice(&part[..part.len().min(bytes_left)]);
            if part.len() >= bytes_left {
                break;
            }
        }
        // The last line may be truncated by the limit, so the text ends after the last line feed.
        lines.truncate(memchr::memrchr(b'\n', &lines).map_or(0, |end| end + 1));
        Ok(PageEntities(lines))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
    }
}
