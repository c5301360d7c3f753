//! What errors of disks and stores mean.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use strata_store::shortage::Shortage;
use strata_store::temporary::{copy_of, file_in};
use strata_store::{DirectoryGone, NoTemporaryFiles, StorageError, StoreSilent};

#[test]
fn shortage_is_found_behind_any_error() {
    let full = || io::Error::from_raw_os_error(28);
    for (error, expected) in [
        (StorageError::Io(full()), Some(Shortage::DiskFull)),
        (StorageError::Io(io::Error::other(StorageError::Io(full()))), Some(Shortage::DiskFull)),
        (StorageError::Io(io::Error::from_raw_os_error(24)), Some(Shortage::Descriptors)),
        (StorageError::Io(io::Error::from_raw_os_error(5)), None),
        (StorageError::Io(io::Error::from_raw_os_error(11)), Some(Shortage::Threads)),
        (StorageError::Io(io::Error::other("background task failed")), Some(Shortage::Threads)),
        (StorageError::Io(io::Error::other("another")), None),
        (
            StorageError::Store(object_store::Error::Generic { store: "LocalFileSystem", source: full().into() }),
            Some(Shortage::DiskFull),
        ),
        (
            StorageError::Store(object_store::Error::Generic { store: "S3", source: "refused".into() }),
            Some(Shortage::Unreachable),
        ),
        (StorageError::Shared(Arc::new(StorageError::Io(full()))), Some(Shortage::DiskFull)),
        (StorageError::gone("another"), Some(Shortage::Gone)),
        (StorageError::Silent(StoreSilent), Some(Shortage::Unreachable)),
        (StorageError::Shared(Arc::new(StorageError::Silent(StoreSilent))), Some(Shortage::Unreachable)),
        (io::Error::from(DirectoryGone).into(), Some(Shortage::NoDirectory)),
        (StorageError::Shared(Arc::new(StorageError::gone("another"))), Some(Shortage::Gone)),
        (StorageError::Worker, None),
        (StorageError::Io(io::ErrorKind::PermissionDenied.into()), Some(Shortage::Denied)),
    ] {
        assert_eq!(Shortage::of(&error), expected, "{error:?}");
    }
}

#[test]
fn temporary_file_errors_are_shortages() {
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
        let error = StorageError::Io(NoTemporaryFiles { directory: "tmp".into(), cause }.into());
        assert_eq!(Shortage::of(&error).expect("a shortage").to_string(), expected, "{error:?}");
    }
}

#[test]
fn s3_refusals_name_the_permission() {
    let denied = "in 5ms - Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>";
    let unknown = "in 5ms - Server returned non-2xx status code: 403 Forbidden: <Code>InvalidAccessKeyId</Code>";
    let lacks = |permission| Shortage::Forbidden(Some(permission));
    for (request, answer, expected) in [
        ("GET http://s3.test/bucket/a", denied, lacks("s3:GetObject")),
        ("HEAD http://s3.test/bucket/a", "in 5ms - 403 Forbidden: ", lacks("s3:GetObject")),
        ("GET http://s3.test/bucket?list-type=2&prefix=a", denied, lacks("s3:ListBucket")),
        ("PUT http://s3.test/bucket/a?partNumber=1&uploadId=b", denied, lacks("s3:PutObject")),
        ("POST http://s3.test/bucket/a?uploads", denied, lacks("s3:PutObject")),
        ("DELETE http://s3.test/bucket/a", denied, lacks("s3:DeleteObject")),
        ("DELETE http://s3.test/bucket/a?uploadId=b", denied, lacks("s3:AbortMultipartUpload")),
        ("POST http://s3.test/bucket?delete", denied, lacks("s3:DeleteObject")),
        ("PATCH REDACTED", denied, Shortage::Forbidden(None)),
        ("GET http://s3.test/bucket/a", unknown, Shortage::Credentials),
    ] {
        let text = format!("Error performing {request} {answer}");
        let refused = io::Error::new(io::ErrorKind::PermissionDenied, text.clone());
        assert_eq!(Shortage::of(&StorageError::Io(refused)), Some(expected), "{text}");
        let refused = object_store::Error::PermissionDenied { path: "a".to_owned(), source: text.clone().into() };
        assert_eq!(Shortage::of(&StorageError::Store(refused)), Some(expected), "{text}");
    }
    let unknown = object_store::Error::Unauthenticated { path: "a".to_owned(), source: "401".into() };
    assert_eq!(Shortage::of(&StorageError::Store(unknown)), Some(Shortage::Credentials));
}

#[track_caller]
fn check(directory: &Path, expected: Shortage) {
    let error = file_in(directory).expect_err("no file");
    assert_eq!(Shortage::of(&error), Some(expected), "{error:?}");
    let copy = copy_of(&error).expect("one of these");
    assert_eq!((Shortage::of(&copy), copy.to_string()), (Some(expected), error.to_string()));
}

#[test]
fn temporary_directory_faults_are_told() {
    let root = tempfile::tempdir().expect("a directory");
    let data = root.path().join("data");
    let (all, own) = (data.join("tmp"), data.join("tmp/process"));
    check(&own, Shortage::NoDirectory);
    fs::create_dir(&data).expect("made");
    for _ in 0..2 {
        file_in(&own).expect("a file").write_all(b"text").expect("written");
        fs::remove_dir_all(&all).expect("removed");
    }
    fs::write(&all, "no directory").expect("written");
    check(&own, Shortage::NoTemporaryFiles(io::ErrorKind::NotADirectory));
    fs::remove_file(&all).expect("removed");
    std::os::unix::fs::symlink(root.path().join("nowhere"), &all).expect("linked");
    check(&own, Shortage::NoTemporaryFiles(io::ErrorKind::AlreadyExists));
    fs::remove_file(&all).expect("removed");
    file_in(&own).expect("a file");
    assert!(copy_of(&io::ErrorKind::NotFound.into()).is_none());
}
