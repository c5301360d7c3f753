//! `Link` (RFC 8288): the pages before and after an answer (docs/reference/query-semantics.md, Pages).
//!
//! The version that was served stands in place of `active` or `latest`, so that the pages belong together. All else of
//! the URL is kept as it was sent.

use axum::http::{HeaderValue, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use strata_types::limits::LINK_BYTES;
use strata_types::request::ReadRequest;
use strata_types::version::VersionNumber;

use crate::headers::base_url::BaseUrl;
use crate::params;

/// What no URI contains, and the semicolon, at which many readers of the header cut.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}')
    .add(b';');

/// The pages beside an answer of so many entities. `None` where there are none, or none that fits into the header.
pub(super) fn pages(
    base: impl FnOnce() -> BaseUrl,
    uri: &Uri,
    version: VersionNumber,
    request: &ReadRequest,
    returned: u64,
) -> Option<HeaderValue> {
    if request.count || request.is_drawn_anew() {
        return None;
    }
    let is_full = request.limit.is_some_and(|limit| limit > 0 && returned == limit);
    let next = is_full.then(|| request.offset.saturating_add(returned));
    // Without a limit, the page before holds all before.
    let previous = (request.offset > 0).then(|| request.offset.saturating_sub(request.limit.unwrap_or(u64::MAX)));
    next.or(previous)?;
    let url = base().url(&served_path(uri.path(), version)?);
    let mut header = String::new();
    for (relation, offset) in [("next", next), ("prev", previous)] {
        let Some(offset) = offset else { continue };
        let query = params::with_offset(uri.query().unwrap_or_default(), offset);
        let before = header.len();
        header.push_str(if before == 0 { "<" } else { ", <" });
        for part in [url.as_str(), "?", query.as_str()] {
            header.extend(utf8_percent_encode(part, ESCAPED));
        }
        for part in [">; rel=\"", relation, "\""] {
            header.push_str(part);
        }
        if header.len() > LINK_BYTES {
            header.truncate(before);
        }
    }
    (!header.is_empty()).then(|| HeaderValue::try_from(header).ok())?
}

/// The path of a read with this version. `None` for other paths.
fn served_path(path: &str, version: VersionNumber) -> Option<String> {
    let mut parts = path.strip_prefix("/api/")?.splitn(3, '/');
    let dataset = parts.next()?;
    let slug = parts.next()?;
    let selected = parts.next()?;
    let rest = selected.find('/').map_or("", |end| &selected[end..]);
    Some(["/api/", dataset, "/", slug, "/v", &version.get().to_string(), rest].concat())
}
