//! The URL of a dataset's JSON Lines file, and the URL of the changes that belongs to it.

use std::str::FromStr;

use strata_types::version::{VersionNumber, VersionSelector};
use url::Url;

/// The URL of a JSON Lines file.
///
/// - The scheme is `http` or `https`, and there is no query.
/// - The path ends with `/files/{dataset_id}/{name_slug}/{version}.jsonl`.
#[derive(Clone, Debug)]
pub struct SyncUrl {
    url: Url,
    version: VersionSelector,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not the URL of a dataset's JSON Lines file; valid: \
     http(s)://HOST/files/DATASET_ID/NAME_SLUG/VERSION.jsonl, without a query, where VERSION is active, latest, or vN"
)]
pub struct InvalidSyncUrl;

const SEGMENTS_FROM_FILES: usize = 4;

impl FromStr for SyncUrl {
    type Err = InvalidSyncUrl;

    fn from_str(text: &str) -> Result<SyncUrl, InvalidSyncUrl> {
        let url = Url::parse(text).map_err(|_| InvalidSyncUrl)?;
        if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
            return Err(InvalidSyncUrl);
        }
        let segments: Vec<&str> = url.path_segments().ok_or(InvalidSyncUrl)?.collect();
        let [.., "files", _, _, name] = segments[..] else { return Err(InvalidSyncUrl) };
        let version = name.strip_suffix(".jsonl").and_then(|version| version.parse().ok()).ok_or(InvalidSyncUrl)?;
        Ok(SyncUrl { version, url })
    }
}

impl SyncUrl {
    pub(crate) fn file_url(&self) -> &Url {
        &self.url
    }

    pub(crate) fn changes_url(&self, since: VersionNumber) -> Url {
        let segments: Vec<&str> = self.url.path_segments().map(Iterator::collect).unwrap_or_default();
        let (prefix, rest) = segments.split_at(segments.len().saturating_sub(SEGMENTS_FROM_FILES));
        let mut path = String::new();
        for segment in prefix {
            path.push('/');
            path.push_str(segment);
        }
        path.push_str("/changes");
        for segment in rest.iter().skip(1).take(2) {
            path.push('/');
            path.push_str(segment);
        }
        let mut url = self.url.clone();
        url.set_path(&format!("{path}/{}/", self.version));
        url.set_query(Some(&format!("since=v{since}")));
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_url_follows_from_file_url() {
        let check = |file: &str, changes: &str| {
            let url: SyncUrl = file.parse().expect(file);
            assert_eq!(url.changes_url(VersionNumber::new(3)).as_str(), changes);
        };
        check("https://a.test/files/7/x/active.jsonl", "https://a.test/changes/7/x/active/?since=v3");
        check(
            "http://a.test:81/p/q/files/7/k%C3%B6ln/v9.jsonl",
            "http://a.test:81/p/q/changes/7/k%C3%B6ln/v9/?since=v3",
        );
        check("http://a.test/files/files/7/x/latest.jsonl", "http://a.test/files/changes/7/x/latest/?since=v3");
    }

    #[test]
    fn other_urls_are_invalid() {
        for text in [
            "",
            "a.test/files/7/x/active.jsonl",
            "ftp://a.test/files/7/x/active.jsonl",
            "https://a.test/files/7/x/active.json",
            "https://a.test/files/7/x/active-alt.jsonl",
            "https://a.test/files/7/x/3.jsonl",
            "https://a.test/files/7/active.jsonl",
            "https://a.test/api/7/x/active",
            "https://a.test/files/7/x/active.jsonl?limit=3",
            "https://a.test/files/7/x/active.jsonl/",
        ] {
            assert_eq!(text.parse::<SyncUrl>().err(), Some(InvalidSyncUrl), "{text}");
        }
    }
}
