//! Unknown parameters, which are ignored and listed in the header `X-Unknown-Parameters`
//! (docs/reference/query-semantics.md, Parameters).

use std::fmt::Write;

use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_types::field_path::FieldPath;
use strata_types::limits;

pub const MAX_UNKNOWN_HEADER_BYTES: usize = limits::MAX_UNKNOWN_NAMES_HEADER_BYTES;

/// The percent-encoded characters: all except the unreserved ones of RFC 3986, so that encoded names contain no commas.
pub(crate) const PERCENT_ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The decoded name of an unknown parameter. The name is never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownParameter(pub String);

/// Returns the percent-encoded names of unknown parameters, separated by commas, or `None` if there are none. The list
/// ends before the first name that would exceed [`MAX_UNKNOWN_HEADER_BYTES`].
pub fn unknown_parameters_header(unknown: &[UnknownParameter]) -> Option<HeaderValue> {
    names_header(unknown.iter().map(|UnknownParameter(name)| name.as_str()))
}

/// Like [`unknown_parameters_header`], for the header `X-Unknown-Fields`.
pub fn unknown_fields_header(paths: &[FieldPath]) -> Option<HeaderValue> {
    let texts: Vec<String> = paths.iter().map(FieldPath::to_string).collect();
    names_header(texts.iter().map(String::as_str))
}

fn names_header<'a>(unknown: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let mut names = String::new();
    for name in unknown {
        let before = names.len();
        let separator = if names.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(names, "{separator}{}", utf8_percent_encode(name, PERCENT_ENCODED));
        if names.len() > MAX_UNKNOWN_HEADER_BYTES {
            names.truncate(before);
            break;
        }
    }
    // The header value is valid, because it contains only unreserved characters, `%`, and commas.
    HeaderValue::try_from(names).ok().filter(|names| !names.is_empty())
}
