//! Version selectors.

use strata_types::version::{InvalidVersion, InvalidVersionSelector, VersionNumber, VersionSelector};

#[test]
fn selector_parses_and_prints_identically() {
    for (text, selector) in [
        ("active", VersionSelector::Active),
        ("latest", VersionSelector::Latest),
        ("v0", VersionSelector::Number(VersionNumber::new(0))),
        ("v1", VersionSelector::Number(VersionNumber::new(1))),
        ("v120", VersionSelector::Number(VersionNumber::new(120))),
    ] {
        assert_eq!(text.parse(), Ok(selector));
        assert_eq!(selector.to_string(), text);
    }
}

#[test]
fn number_above_u64_max_is_accepted() {
    assert_eq!("v99999999999999999999999".parse(), Ok(VersionSelector::Number(VersionNumber::new(u64::MAX))));
}

#[test]
fn invalid_selectors_are_rejected() {
    for text in [
        "", "v", "V1", "1", "v01", "v00", "v-1", "v+1", "v1.0", "v 1", "vv1", "v1/", "Active", "LATEST", "active ",
        "newest", "v١",
    ] {
        assert_eq!(text.parse::<VersionSelector>(), Err(InvalidVersionSelector(text.to_owned())));
    }
}

#[test]
fn bare_number_is_accepted_outside_of_urls() {
    let number = |number| Ok(VersionSelector::Number(VersionNumber::new(number)));
    for (text, selector) in [
        ("12", number(12)),
        ("v12", number(12)),
        ("active", Ok(VersionSelector::Active)),
        ("012", Err(InvalidVersion("012".to_owned()))),
        ("0", Err(InvalidVersion("0".to_owned()))),
        ("-1", Err(InvalidVersion("-1".to_owned()))),
    ] {
        assert_eq!(VersionSelector::parse_with_bare_number(text), selector);
    }
}
