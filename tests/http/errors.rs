//! The status, the text, and the headers of errors.

use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::IntoResponse;
use futures::FutureExt;
use http_body_util::BodyExt;
use strata_http::error::HttpError;
use strata_service::{AlternateError, DiffError, ManageError, ReadError, RefreshError};
use strata_store::StorageError;
use strata_store::spool_quota::SpoolQuotaExceeded;
use strata_types::version::{VersionNumber, VersionSelector};

struct Refusal {
    status: u16,
    text: String,
    headers: HeaderMap,
}

impl From<HttpError> for Refusal {
    fn from(error: HttpError) -> Refusal {
        let (head, body) = error.into_response().into_parts();
        let body = body.collect().now_or_never().expect("a whole body").expect("server failed");
        let text = String::from_utf8(body.to_bytes().into()).expect("invalid UTF-8");
        Refusal { status: head.status.as_u16(), text, headers: head.headers }
    }
}

#[track_caller]
fn check(error: ReadError, status: u16, text: &str) -> HeaderMap {
    let refusal = Refusal::from(HttpError::Read(error));
    assert_eq!((refusal.status, &*refusal.text), (status, text));
    refusal.headers
}

#[test]
fn read_errors_have_status_and_text() {
    check(ReadError::DatasetNotFound, 404, "There is no dataset with this dataset_id and name_slug.");
    check(
        ReadError::Forbidden,
        403,
        "The Authorization header does not contain this dataset's private key. API tokens are not valid here.",
    );
    check(ReadError::Frozen, 410, "This dataset is frozen and no longer served.");
    for (selector, text) in [
        (VersionSelector::Active, "This dataset has no active version."),
        (VersionSelector::Latest, "This dataset has no versions yet."),
        (VersionSelector::Number(VersionNumber::new(4)), "This dataset has no version 4; its versions are 1 to 3."),
        (
            VersionSelector::Number(VersionNumber::new(u64::MAX)),
            "This dataset has no version with such a large number; its versions are 1 to 3.",
        ),
    ] {
        check(ReadError::VersionNotFound { selector, latest: Some(VersionNumber::new(3)) }, 404, text);
    }
    check(ReadError::AltNotFound(VersionNumber::new(4)), 404, "Version 4 of this dataset has no alternate.");
    let text = "The table would have more than 10000 columns. Select fewer fields with keep_field, or use a format \
                that is not a table: json, jsonl, or xml.";
    check(ReadError::TooManyColumns { limit: 10_000 }, 400, text);
    let text = "The query was stopped after 30 s. A narrower query might finish in time.";
    check(ReadError::Timeout { seconds: 30 }, 503, text);
}

#[test]
fn unavailable_resource_returns_503() {
    let full = StorageError::Io(std::io::Error::from(std::io::ErrorKind::StorageFull));
    let text = "The service cannot complete this request at the moment: a disk is full. Try again in 30 s.";
    let error = ReadError::from(full);
    assert_eq!(check(error.clone(), 503, text).get(RETRY_AFTER), None, "503 of a read has no Retry-After");
    assert_eq!(Refusal::from(HttpError::InspectRead(error)).headers[RETRY_AFTER], "30");
    let failed = StorageError::Io(std::io::Error::from_raw_os_error(5));
    let text = "Failed to read the dataset from storage. The error was logged.";
    assert_eq!(check(ReadError::from(failed), 500, text).get(RETRY_AFTER), None);
}

#[test]
fn alternate_over_disk_quota_names_limit_and_advice() {
    let check = |full: SpoolQuotaExceeded, status, words: &[&str], retry_after: Option<&'static str>| {
        let Refusal { status: found, text, headers } = HttpError::from(AlternateError::DiskQuotaExceeded(full)).into();
        assert_eq!(found, status, "{text}");
        assert!(text.starts_with("Nothing was saved") && !text.contains("version"), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        let header = headers.get(RETRY_AFTER).cloned();
        assert_eq!(header, retry_after.map(HeaderValue::from_static), "{text}");
    };
    let disk = ["the disk of the data directory", "sources.disk_reserve_bytes (7)", "Free some space"];
    check(SpoolQuotaExceeded::DiskReserve { reserve: 7 }, 503, &disk, Some("10"));
    check(SpoolQuotaExceeded::Total { limit: 7 }, 503, &["sources.spool_bytes (7)", "Try again"], Some("10"));
    check(SpoolQuotaExceeded::User { limit: 7 }, 413, &["sources.user_spool_bytes (7)", "Send less"], None);
}

#[test]
fn temporary_errors_have_retry_after() {
    for (error, seconds) in [
        (HttpError::Manage(ManageError::LoginsBusy), "5"),
        (HttpError::Diff(DiffError::Read(ReadError::OutOfMemory)), "5"),
        (HttpError::Diff(DiffError::Read(ReadError::OutOfDisk(String::new()))), "5"),
        (HttpError::Refresh(RefreshError::LeaseLost), "10"),
        (HttpError::Refresh(RefreshError::Stopping), "10"),
    ] {
        let refusal = Refusal::from(error);
        assert_eq!(refusal.status, 503);
        assert_eq!(refusal.headers[RETRY_AFTER], seconds);
    }
}

#[test]
fn missing_key_returns_401_with_bearer() {
    let text = "This dataset is private: send its private key as Authorization: Bearer <PRIVATE_KEY>.";
    assert_eq!(check(ReadError::Unauthorized, 401, text)[WWW_AUTHENTICATE], "Bearer");
}
