//! `Link` (RFC 8288): the URLs of the next and the previous page (docs/reference/query-semantics.md, Pages).
//!
//! The URLs contain the version number instead of `active` or `latest`, so that all pages belong to the same version.
//! The rest of the URL does not change.

use axum::http::{HeaderValue, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use strata_types::limits::MAX_LINK_HEADER_BYTES;
use strata_types::read_request::ReadRequest;
use strata_types::version::VersionNumber;

use crate::headers::base_url::BaseUrl;
use crate::params;

/// Characters that are not valid in URIs, and the semicolon, which ends the URI in many parsers of this header.
const LINK_ESCAPED: &AsciiSet = &CONTROLS
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

/// Returns the header for a page of `returned` entities, or `None` if there are no other pages or the URL is too long.
pub(super) fn adjacent_pages_header(
    base: impl FnOnce() -> BaseUrl,
    uri: &Uri,
    version: VersionNumber,
    request: &ReadRequest,
    returned: u64,
) -> Option<HeaderValue> {
    if request.count || request.is_random() {
        return None;
    }
    let is_full = request.limit.is_some_and(|limit| limit > 0 && returned == limit);
    let next = is_full.then(|| request.offset.saturating_add(returned));
    // Without a limit, the previous page contains everything before the offset.
    let previous = (request.offset > 0).then(|| request.offset.saturating_sub(request.limit.unwrap_or(u64::MAX)));
    next.or(previous)?;
    let url = base().absolute_url(&path_with_version(uri.path(), version)?);
    let mut header = String::new();
    for (relation, offset) in [("next", next), ("prev", previous)] {
        let Some(offset) = offset else { continue };
        let query = params::replace_offset(uri.query().unwrap_or_default(), offset);
        let before = header.len();
        header.push_str(if before == 0 { "<" } else { ", <" });
        for part in [url.as_str(), "?", query.as_str()] {
            header.extend(utf8_percent_encode(part, LINK_ESCAPED));
        }
        for part in [">; rel=\"", relation, "\""] {
            header.push_str(part);
        }
        if header.len() > MAX_LINK_HEADER_BYTES {
            header.truncate(before);
        }
    }
    (!header.is_empty()).then(|| HeaderValue::try_from(header).ok())?
}

/// Replaces the version in the path of a read or of a file. Returns `None` for other paths.
fn path_with_version(path: &str, version: VersionNumber) -> Option<String> {
    let prefix = ["/api/", "/files/"].into_iter().find(|prefix| path.starts_with(prefix))?;
    let mut parts = path[prefix.len()..].splitn(3, '/');
    let dataset = parts.next()?;
    let slug = parts.next()?;
    let selected = parts.next()?;
    let rest = selected.find(['/', '-', '.']).map_or("", |end| &selected[end..]);
    Some([prefix, dataset, "/", slug, "/v", &version.get().to_string(), rest].concat())
}
