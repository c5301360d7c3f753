//! The path of a read, which follows `/api/`.

use strata_http::read::path;
use strata_reference::url;
use strata_types::version::VersionSelector;

use crate::harness::text;

pub fn check(bytes: &[u8]) {
    let text = format!("/api/{}", text(bytes));
    let found = path::parse_path(&text);
    if let Err(error) = &found {
        let error = error.to_string();
        assert!(!error.contains(|character: char| character.is_control()), "{error:?}");
    }
    let found = found.ok().map(|found| {
        let version = match found.target.version {
            VersionSelector::Active => "active".to_owned(),
            VersionSelector::Latest => "latest".to_owned(),
            VersionSelector::Number(number) => number.get().to_string(),
        };
        (found.target.dataset.get(), found.target.name_slug, version, found.alt)
    });
    assert_eq!(found, url::parse(&text), "{text}");
}
