//! Query strings of reads.

use strata_http::params::PARAMETERS;
use strata_http::params::{self, MAX_UNKNOWN_HEADER_BYTES};
use strata_reference::query;

use crate::harness::text;

pub fn check(bytes: &[u8]) {
    let text = text(bytes);
    let found = params::parse_query(Some(text));
    if let Some(expected) = query::parse(text, |name| PARAMETERS.iter().any(|parameter| parameter.name == name)) {
        match (&found, expected) {
            (Ok((request, unknown)), Ok((expected, names))) => {
                assert_eq!(*request, expected, "{text}");
                assert_eq!(unknown.iter().map(|name| name.0.clone()).collect::<Vec<_>>(), names, "{text}");
            }
            (Err(error), Err(parameter)) => {
                let error = error.to_string();
                assert!(error.contains(&parameter), "{error} does not name {parameter}");
                assert!(!error.contains(|character: char| character.is_control()), "{error:?}");
            }
            (found, expected) => panic!("{found:?} for {expected:?}: {text}"),
        }
    }
    if let Ok((request, unknown)) = found {
        // The canonical form of a request is stable.
        let canonical = request.canonicalize();
        assert_eq!(canonical.canonicalize(), canonical);
        if let Some(header) = params::unknown_parameters_header(&unknown) {
            assert!(header.len() <= MAX_UNKNOWN_HEADER_BYTES && header.to_str().is_ok(), "{header:?}");
        }
    }
}
