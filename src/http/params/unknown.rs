//! Parameters that the registry does not know: ignored, and named in the response header `X-Unknown-Parameters`, so
//! that a misspelt name does not go unnoticed (docs/reference/query-semantics.md, Parameters).

use std::fmt::Write;

use axum::http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use strata_types::limits;
use strata_types::path::Path;

pub const HEADER_BYTES_LIMIT: usize = limits::UNKNOWN_HEADER_BYTES;

/// Everything but the unreserved characters of RFC 3986, so that neither a comma nor a control character gets through.
pub(crate) const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The decoded name of a parameter that was ignored. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownParameter(pub String);

/// The header's value: the names in the order given, percent-encoded, separated by commas.
///
/// The list ends before the first name that would make it longer than [`HEADER_BYTES_LIMIT`]. `None` when nothing is
/// to be said.
pub fn unknown_parameters_header(unknown: &[UnknownParameter]) -> Option<HeaderValue> {
    listed(unknown.iter().map(|UnknownParameter(name)| name.as_str()))
}

/// The value of the header `X-Unknown-Fields`: paths in their escaped form, otherwise as [`unknown_parameters_header`].
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
    // Only unreserved characters, `%` and commas are left, all of which a header may hold.
    HeaderValue::try_from(names).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> Option<String> {
        let unknown: Vec<_> = names.iter().map(|name| UnknownParameter((*name).to_owned())).collect();
        unknown_parameters_header(&unknown).map(|value| value.to_str().expect("ASCII").to_owned())
    }

    #[test]
    fn names_are_encoded_and_joined() {
        assert_eq!(header(&[]), None);
        assert_eq!(header(&["lmit", "Sort"]).as_deref(), Some("lmit,Sort"));
        assert_eq!(header(&["a,b", "ä", "x\r\ny", "a-b._~"]).as_deref(), Some("a%2Cb,%C3%A4,x%0D%0Ay,a-b._~"));
    }

    #[test]
    fn the_list_is_cut_at_a_whole_name() {
        let exact = "x".repeat(HEADER_BYTES_LIMIT);
        assert_eq!(header(&[&exact]), Some(exact.clone()));
        assert_eq!(header(&[&exact, "y"]), Some(exact.clone()), "nothing follows a full header");
        assert_eq!(header(&["y", &exact, "z"]).as_deref(), Some("y"), "later names do not jump the gap");
        assert_eq!(header(&[&"ä".repeat(200)]), None, "1200 bytes once encoded");
    }
}
