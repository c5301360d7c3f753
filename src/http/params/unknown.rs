//! Unknown parameters, which are ignored and listed in the header `X-Unknown-Parameters`
//! (docs/reference/query-semantics.md, Parameters).

use std::fmt::Write;

use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_types::limits;
use strata_types::path::Path;

pub const HEADER_BYTES_LIMIT: usize = limits::UNKNOWN_HEADER_BYTES;

/// All but the unreserved characters of RFC 3986, so that names contain neither commas nor control characters.
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The decoded name of an ignored parameter, which is never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownParameter(pub String);

/// The percent-encoded names in order, separated by commas. The list ends before the first name that would exceed
/// [`HEADER_BYTES_LIMIT`]. `None` if it is empty.
pub fn unknown_parameters_header(unknown: &[UnknownParameter]) -> Option<HeaderValue> {
    listed(unknown.iter().map(|UnknownParameter(name)| name.as_str()))
}

/// Like [`unknown_parameters_header`], for the header `X-Unknown-Fields` with escaped paths.
pub fn unknown_fields_header(paths: &[Path]) -> Option<HeaderValue> {
    let texts: Vec<String> = paths.iter().map(Path::to_string).collect();
    listed(texts.iter().map(String::as_str))
}

fn listed<'a>(listed: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let mut names = String::new();
    for name in listed {
        let before = names.len();
        let separator = if names.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(names, "{separator}{}", utf8_percent_encode(name, ESCAPED));
        if names.len() > HEADER_BYTES_LIMIT {
            names.truncate(before);
            break;
        }
    }
    if names.is_empty() {
        return None;
    }
    // Unreserved characters, `%`, and commas are valid in a header.
    HeaderValue::try_from(names).ok()
}
