//! Directories, temporary files, and free space on the local disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strata_store::DataDirectoryMissingError;
use strata_store::free_space::{CHECK_INTERVAL_BYTES, DiskReserve, FreeSpaceCheckInterval};
use strata_store::fsync::recreate_dir;
use strata_store::spool_quota::{SpoolLimits, SpoolQuota, SpoolQuotaExceeded, SpoolReservation};
use strata_store::staged_uploads::list_staged_uploads;
use strata_types::ids::UserId;

#[test]
fn recreate_dir_creates_only_allowed_levels() {
    let root = tempfile::tempdir().expect("failed to create directory");
    let data = root.path().join("data");
    let temporary = data.join("tmp");
    let own = data.join("tmp/process");
    let error = recreate_dir(&own, 1).expect_err("created the data directory");
    assert!(error.get_ref().is_some_and(|inner| inner.is::<DataDirectoryMissingError>()), "{error:?}");
    assert!(!data.exists());
    fs::create_dir(&data).expect("failed to create data directory");
    for _ in 0..2 {
        recreate_dir(&own, 1).expect("failed to recreate directory");
        assert!(own.is_dir());
    }
    fs::remove_dir_all(&temporary).expect("failed to remove directory");
    fs::write(&temporary, "no directory").expect("failed to write file");
    recreate_dir(&own, 1).expect_err("accepted a file as parent directory");
    recreate_dir(&temporary, 1).expect_err("accepted a file as directory");
}

#[test]
fn disk_is_full_only_after_all_reclaimers_ran() {
    let free = Arc::new(AtomicU64::new(100));
    let probed = free.clone();
    let disk = DiskReserve::with_probe(Path::new("/"), 50, move |_| Some(probed.load(Ordering::SeqCst)));
    assert!(disk.ensure_free() && disk.has_ample_space());
    // Files of 10 bytes each: three from the first reclaimer, ten from the second.
    for files in [3, 10] {
        let free = free.clone();
        let left = AtomicU64::new(files);
        disk.add_reclaimer(move |is_enough| {
            while !is_enough() && left.load(Ordering::SeqCst) > 0 {
                left.fetch_sub(1, Ordering::SeqCst);
                free.fetch_add(10, Ordering::SeqCst);
            }
        });
    }
    let check = |now: u64| {
        free.store(now, Ordering::SeqCst);
        (disk.ensure_free(), disk.has_ample_space(), free.load(Ordering::SeqCst))
    };
    assert_eq!(check(99), (true, false, 99));
    assert_eq!(check(45), (true, false, 55));
    // Two files of the first reclaimer, and two of the second.
    assert_eq!(check(10), (true, false, 50));
    assert_eq!(check(0), (true, false, 50));
    assert_eq!(check(0), (false, false, 30));
    free.store(60, Ordering::SeqCst);
    assert_eq!((disk.ensure_free_after_writing(10), disk.ensure_free_after_writing(11)), (true, false));
    let no_reserve = DiskReserve::with_probe(Path::new("/"), 0, |_| Some(0));
    assert!(no_reserve.ensure_free() && no_reserve.ensure_free_after_writing(1));
    let unknown = DiskReserve::with_probe(Path::new("/"), u64::MAX, |_| None);
    assert!(unknown.ensure_free() && unknown.has_ample_space());
}

#[test]
fn small_writes_are_checked_as_one_large_write() {
    let mut interval = FreeSpaceCheckInterval::default();
    let mut due = (0..64).map(|_| interval.advance_and_check_due(1 << 20));
    assert_eq!(due.by_ref().take(17).filter(|is_due| *is_due).count(), 2);
    assert_eq!(due.filter(|is_due| *is_due).count(), 2);
    assert!(!interval.advance_and_check_due(0));
    interval.reset();
    assert!(interval.advance_and_check_due(1));
}

fn limits(bytes: u64, user_bytes: u64, reserve_bytes: u64) -> SpoolLimits {
    let disk = DiskReserve::new(&std::env::temp_dir(), reserve_bytes);
    SpoolLimits { total_bytes: bytes, user_bytes, share_percent: 75, disk_reserve: disk }
}

#[test]
fn reservations_are_limited_per_user_and_in_total() {
    let quota = SpoolQuota::new(limits(100, 60, 0));
    let mut first = quota.reservation_for_user(UserId::new(1));
    first.try_grow(60).expect("failed to reserve");
    assert_eq!(first.try_grow(1), Err(SpoolQuotaExceeded::User { limit: 60 }));
    let mut other = quota.reservation_for_user(UserId::new(1));
    assert_eq!(other.try_grow(1), Err(SpoolQuotaExceeded::User { limit: 60 }));
    let mut second = quota.reservation_for_user(UserId::new(2));
    second.try_grow(40).expect("failed to reserve");
    assert_eq!(second.try_grow(1), Err(SpoolQuotaExceeded::Total { limit: 100 }));
    assert_eq!(quota.used_bytes(), 100);
    drop(first);
    second.try_grow(20).expect("failed to reserve");
    drop((second, other));
    assert_eq!(quota.used_bytes(), 0);
}

#[test]
fn users_at_their_share_leave_space_for_others() {
    let quota = SpoolQuota::new(limits(400, 100, 0));
    // Four users could fill the quota.
    let mut reservations: Vec<SpoolReservation> =
        (1..=6).map(|user| quota.reservation_for_user(UserId::new(user))).collect();
    let bytes =
        reservations.iter_mut().map(|reservation| (0..).take_while(|_| reservation.try_grow(1).is_ok()).count());
    assert_eq!(bytes.collect::<Vec<_>>(), [100, 100, 100, 75, 18, 5]);
    let mut last = quota.reservation_for_user(UserId::new(7));
    assert_eq!(last.try_grow(1), Ok(()));
}

#[test]
fn nearly_full_disk_rejects_even_one_byte() {
    let quota = SpoolQuota::new(limits(u64::MAX, u64::MAX, u64::MAX));
    let full = Err(SpoolQuotaExceeded::DiskReserve { reserve: u64::MAX });
    let mut reservation = quota.reservation_for_user(UserId::new(1));
    assert_eq!((reservation.try_grow(1), reservation.try_grow(CHECK_INTERVAL_BYTES)), (full, full));
    assert_eq!(quota.used_bytes(), 0);
}

#[test]
fn reclaimers_run_before_rejection() {
    let free = Arc::new(AtomicU64::new(0));
    let probed = free.clone();
    let disk = DiskReserve::with_probe(&std::env::temp_dir(), 10, move |_| Some(probed.load(Ordering::SeqCst)));
    let quota = SpoolQuota::new(SpoolLimits { disk_reserve: disk.clone(), ..limits(100, 100, 0) });
    let mut reservation = quota.reservation_for_user(UserId::new(1));
    assert_eq!(reservation.try_grow(1), Err(SpoolQuotaExceeded::DiskReserve { reserve: 10 }));
    disk.add_reclaimer(move |_| free.store(10, Ordering::SeqCst));
    assert_eq!((reservation.try_grow(1), quota.used_bytes()), (Ok(()), 1));
}

#[test]
fn staged_uploads_are_distinguished_by_name() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    assert_eq!(list_staged_uploads(directory.path(), "versions").expect("failed to list missing folder"), []);
    let folder = directory.path().join("versions");
    fs::create_dir(&folder).expect("failed to create folder");
    for name in ["1f.parquet#1", "a#b#12", "1f.parquet", "1f.parquet#", "1f.parquet#1a", "#1"] {
        fs::write(folder.join(name), name).expect("failed to write file");
    }
    let mut uploads = list_staged_uploads(directory.path(), "versions").expect("failed to list uploads");
    uploads.sort_by(|left, right| left.path.cmp(&right.path));
    let uploads: Vec<_> = uploads.iter().map(|file| (&*file.path, &*file.object_path, file.size_bytes)).collect();
    let expected = [("versions/1f.parquet#1", "versions/1f.parquet", 12), ("versions/a#b#12", "versions/a#b", 6)];
    assert_eq!(uploads, expected);
}
