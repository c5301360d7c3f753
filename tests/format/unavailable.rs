//! Classification of errors of disks and stores as unavailable resources.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use strata_store::temp_file::{clone_temp_dir_error, create_temp_file};
use strata_store::unavailable::ResourceUnavailable;
use strata_store::{DataDirectoryMissingError, StorageError, StoreUnresponsiveError, TempDirUnusableError};

#[test]
fn unavailable_resource_is_found_behind_any_error() {
    let full = || io::Error::from_raw_os_error(28);
    for (error, expected) in [
        (StorageError::Io(full()), Some(ResourceUnavailable::DiskFull)),
        (StorageError::Io(io::Error::other(StorageError::Io(full()))), Some(ResourceUnavailable::DiskFull)),
        (StorageError::Io(io::Error::from_raw_os_error(24)), Some(ResourceUnavailable::FileDescriptors)),
        (StorageError::Io(io::Error::from_raw_os_error(5)), None),
        (StorageError::Io(io::Error::from_raw_os_error(11)), Some(ResourceUnavailable::Threads)),
        (StorageError::Io(io::Error::other("background task failed")), Some(ResourceUnavailable::Threads)),
        (StorageError::Io(io::Error::other("another")), None),
        (
            StorageError::ObjectStore(object_store::Error::Generic { store: "LocalFileSystem", source: full().into() }),
            Some(ResourceUnavailable::DiskFull),
        ),
        (
            StorageError::ObjectStore(object_store::Error::Generic { store: "S3", source: "refused".into() }),
            Some(ResourceUnavailable::StoreUnreachable),
        ),
        (StorageError::Shared(Arc::new(StorageError::Io(full()))), Some(ResourceUnavailable::DiskFull)),
        (StorageError::store_missing("another"), Some(ResourceUnavailable::StoreMissing)),
        (StorageError::StoreUnresponsive(StoreUnresponsiveError), Some(ResourceUnavailable::StoreUnreachable)),
        (
            StorageError::Shared(Arc::new(StorageError::StoreUnresponsive(StoreUnresponsiveError))),
            Some(ResourceUnavailable::StoreUnreachable),
        ),
        (io::Error::from(DataDirectoryMissingError).into(), Some(ResourceUnavailable::DataDirectoryMissing)),
        (
            StorageError::Shared(Arc::new(StorageError::store_missing("another"))),
            Some(ResourceUnavailable::StoreMissing),
        ),
        (StorageError::WorkerStopped, None),
        (StorageError::Io(io::ErrorKind::PermissionDenied.into()), Some(ResourceUnavailable::DiskAccessDenied)),
    ] {
        assert_eq!(ResourceUnavailable::from_error(&error), expected, "{error:?}");
    }
}

#[test]
fn temp_dir_errors_are_unavailable_resources() {
    const UNUSABLE: &str = "the directory for temporary files cannot be used";
    for (code, expected) in [
        (1, format!("{UNUSABLE}: access to the disk is denied")),
        (2, UNUSABLE.to_owned()),
        (5, UNUSABLE.to_owned()),
        (13, format!("{UNUSABLE}: access to the disk is denied")),
        (17, format!("{UNUSABLE}: its path is not a directory")),
        (20, format!("{UNUSABLE}: its path is not a directory")),
        (24, "no file descriptors are left".to_owned()),
        (28, "a disk is full".to_owned()),
        (30, format!("{UNUSABLE}: the disk is read-only")),
    ] {
        let cause = Arc::new(io::Error::from_raw_os_error(code));
        let error = StorageError::Io(TempDirUnusableError { directory: "tmp".into(), cause }.into());
        let unavailable = ResourceUnavailable::from_error(&error).expect("failed to classify error");
        assert_eq!(unavailable.to_string(), expected, "{error:?}");
    }
}

#[test]
fn s3_denial_names_the_permission() {
    let denied = "in 5ms - Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>";
    let unknown = "in 5ms - Server returned non-2xx status code: 403 Forbidden: <Code>InvalidAccessKeyId</Code>";
    let lacks = |permission| ResourceUnavailable::StorePermissionDenied(Some(permission));
    for (request, response, expected) in [
        ("GET http://s3.test/bucket/a", denied, lacks("s3:GetObject")),
        ("HEAD http://s3.test/bucket/a", "in 5ms - 403 Forbidden: ", lacks("s3:GetObject")),
        ("GET http://s3.test/bucket?list-type=2&prefix=a", denied, lacks("s3:ListBucket")),
        ("PUT http://s3.test/bucket/a?partNumber=1&uploadId=b", denied, lacks("s3:PutObject")),
        ("POST http://s3.test/bucket/a?uploads", denied, lacks("s3:PutObject")),
        ("DELETE http://s3.test/bucket/a", denied, lacks("s3:DeleteObject")),
        ("DELETE http://s3.test/bucket/a?uploadId=b", denied, lacks("s3:AbortMultipartUpload")),
        ("POST http://s3.test/bucket?delete", denied, lacks("s3:DeleteObject")),
        ("PATCH REDACTED", denied, ResourceUnavailable::StorePermissionDenied(None)),
        ("GET http://s3.test/bucket/a", unknown, ResourceUnavailable::StoreCredentialsRejected),
    ] {
        let text = format!("Error performing {request} {response}");
        let denied_error = io::Error::new(io::ErrorKind::PermissionDenied, text.clone());
        assert_eq!(ResourceUnavailable::from_error(&StorageError::Io(denied_error)), Some(expected), "{text}");
        let denied_error = object_store::Error::PermissionDenied { path: "a".to_owned(), source: text.clone().into() };
        assert_eq!(ResourceUnavailable::from_error(&StorageError::ObjectStore(denied_error)), Some(expected), "{text}");
    }
    let unknown = object_store::Error::Unauthenticated { path: "a".to_owned(), source: "401".into() };
    assert_eq!(
        ResourceUnavailable::from_error(&StorageError::ObjectStore(unknown)),
        Some(ResourceUnavailable::StoreCredentialsRejected)
    );
}

#[track_caller]
fn check(directory: &Path, expected: ResourceUnavailable) {
    let error = create_temp_file(directory).expect_err("created a file in an unusable directory");
    assert_eq!(ResourceUnavailable::from_error(&error), Some(expected), "{error:?}");
    let copy = clone_temp_dir_error(&error).expect("failed to clone error");
    assert_eq!((ResourceUnavailable::from_error(&copy), copy.to_string()), (Some(expected), error.to_string()));
}

#[test]
fn temp_dir_faults_are_distinguished() {
    let root = tempfile::tempdir().expect("failed to create directory");
    let data = root.path().join("data");
    let all = data.join("tmp");
    let own = data.join("tmp/process");
    check(&own, ResourceUnavailable::DataDirectoryMissing);
    fs::create_dir(&data).expect("failed to create data directory");
    for _ in 0..2 {
        let mut file = create_temp_file(&own).expect("failed to create file");
        file.write_all(b"text").expect("failed to write file");
        fs::remove_dir_all(&all).expect("failed to remove directory");
    }
    fs::write(&all, "no directory").expect("failed to write file");
    check(&own, ResourceUnavailable::TempDirUnusable(io::ErrorKind::NotADirectory));
    fs::remove_file(&all).expect("failed to remove file");
    std::os::unix::fs::symlink(root.path().join("nowhere"), &all).expect("failed to create link");
    check(&own, ResourceUnavailable::TempDirUnusable(io::ErrorKind::AlreadyExists));
    fs::remove_file(&all).expect("failed to remove link");
    create_temp_file(&own).expect("failed to create file");
    assert!(clone_temp_dir_error(&io::ErrorKind::NotFound.into()).is_none());
}
