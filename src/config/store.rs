//! `[store]`: the location of the version files.

use strata_types::secret::Secret;
use url::Url;

use super::option::{OptionViolation, checked_type, section};

section! {
    /// Location of the version files.
    StoreConfig in "store" {
        /// Location of the version files: a directory, `file:///path`, `s3://bucket/prefix`, or `memory://`. strata
        /// creates the directory if it does not exist. The files in a `memory://` store are lost when the process ends.
        /// By default, strata uses the directory `store` in the data directory.
        url: Option<StoreUrl> = None;
        /// Endpoint of an S3-compatible service, such as `https://s3.example.org`. The default is the value of the
        /// environment variable `AWS_ENDPOINT_URL`.
        endpoint: Option<StoreEndpoint> = None;
        /// Region of the S3 bucket. The default is the value of the environment variable `AWS_REGION`.
        region: Option<String> = None;
        /// Access key ID for the S3 store. You must set this option together with `store.secret_access_key`. The
        /// default is the value of the environment variable `AWS_ACCESS_KEY_ID`.
        access_key_id: Option<String> = None;
        /// Secret access key for the S3 store. The default is the value of the environment variable
        /// `AWS_SECRET_ACCESS_KEY`.
        secret_access_key: Option<Secret> = None;
        /// Whether `store.endpoint` can be a plain `http` URL.
        allow_http: bool = false;
        /// Maximum time in seconds for which strata retries an S3 call that fails or receives no response. After that,
        /// requests that need the store return 503.
        retry_s: u64 = 20, within 0..=600;
    }
}

impl StoreConfig {
    pub(super) fn check_combinations(&self) -> Result<(), OptionViolation> {
        let violation = |key: &str, reason: &str| Err(OptionViolation::new(key, reason));
        let is_http = |endpoint: &StoreEndpoint| Url::parse(endpoint.as_str()).is_ok_and(|url| url.scheme() == "http");
        let is_plain_http = self.endpoint.as_ref().is_some_and(is_http);
        match (&self.access_key_id, &self.secret_access_key) {
            (Some(_), None) => violation("store.access_key_id", "you must also set store.secret_access_key"),
            (None, Some(_)) => violation("store.secret_access_key", "you must also set store.access_key_id"),
            _ if is_plain_http && !self.allow_http => {
                violation("store.endpoint", "plain http requires store.allow_http = true")
            }
            _ => Ok(()),
        }
    }
}

checked_type! {
    /// The location of the version files: the path of a directory, or a `file`, `s3`, or `memory` URL.
    #[derive(Debug, Eq)]
    StoreUrl(String) from String => as_str -> str, |text| {
        let expected = "expected a directory, file:///path, s3://bucket/prefix, or memory://";
        let wrong = match text.split_once("://") {
            None if text.is_empty() => Some("it is empty"),
            None => None,
            Some(("file", path)) if !path.starts_with('/') => Some("the path of a file URL must start with a slash"),
            Some(("s3", rest)) if rest.is_empty() || rest.starts_with('/') => Some("the bucket is missing"),
            Some(("memory", rest)) if !rest.is_empty() => Some("a memory URL cannot have a path"),
            Some(("file" | "s3" | "memory", _)) => None,
            Some(_) => Some("the scheme is unknown"),
        };
        match wrong {
            None => Ok(text),
            Some(reason) => Err(format!("{text:?}: {reason}; {expected}")),
        }
    }
}

checked_type! {
    #[derive(Debug, Eq)]
    StoreEndpoint(String) from String => as_str -> str, |text| match Url::parse(&text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(text),
        _ => Err(format!("{text:?} is not an http or https URL; expected a value such as https://s3.example.org")),
    }
}
