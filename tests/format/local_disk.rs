//! Directories, temporary files, and free space on the local disk.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use strata_store::DirectoryGone;
use strata_store::budget::{SpoolBudget, SpoolCharge, SpoolFull, SpoolLimits};
use strata_store::durable::restore_directory;
use strata_store::free_space::{DiskReserve, LOOK_BYTES, Looks};
use strata_store::unfinished::list;

#[test]
fn restore_directory_creates_at_most_what_was_removed() {
    let root = tempfile::tempdir().expect("a directory");
    let data = root.path().join("data");
    let (temporary, own) = (data.join("tmp"), data.join("tmp/process"));
    let gone = restore_directory(&own, 1).expect_err("the data directory is not there");
    assert!(gone.get_ref().is_some_and(|inner| inner.is::<DirectoryGone>()), "{gone:?}");
    assert!(!data.exists());
    fs::create_dir(&data).expect("made");
    for _ in 0..2 {
        restore_directory(&own, 1).expect("made again");
        assert!(own.is_dir());
    }
    fs::remove_dir_all(&temporary).expect("removed");
    fs::write(&temporary, "no directory").expect("written");
    restore_directory(&own, 1).expect_err("a file is in its place");
    restore_directory(&temporary, 1).expect_err("a file is in its place");
}

#[test]
fn disk_is_full_only_after_all_handlers_ran() {
    let free = Arc::new(AtomicU64::new(100));
    let told = free.clone();
    let disk = DiskReserve::looking(Path::new("/"), 50, move |_| Some(told.load(Ordering::SeqCst)));
    assert!(disk.keep() && disk.is_ample());
    // Files of 10 bytes: three of one, ten of the other.
    for files in [3, 10] {
        let (free, left) = (free.clone(), AtomicU64::new(files));
        disk.on_shortage(move |is_enough| {
            while !is_enough() && left.load(Ordering::SeqCst) > 0 {
                left.fetch_sub(1, Ordering::SeqCst);
                free.fetch_add(10, Ordering::SeqCst);
            }
        });
    }
    let kept = |now: u64| {
        free.store(now, Ordering::SeqCst);
        (disk.keep(), disk.is_ample(), free.load(Ordering::SeqCst))
    };
    assert_eq!(kept(99), (true, false, 99));
    assert_eq!(kept(45), (true, false, 55));
    // Two files of the first, and two of the second.
    assert_eq!(kept(10), (true, false, 50));
    assert_eq!(kept(0), (true, false, 50));
    assert_eq!(kept(0), (false, false, 30));
    free.store(60, Ordering::SeqCst);
    assert_eq!((disk.keep_beside(10), disk.keep_beside(11)), (true, false));
    let nothing_kept = DiskReserve::looking(Path::new("/"), 0, |_| Some(0));
    assert!(nothing_kept.keep() && nothing_kept.keep_beside(1));
    let unknown = DiskReserve::looking(Path::new("/"), u64::MAX, |_| None);
    assert!(unknown.keep() && unknown.is_ample());
}

#[test]
fn small_writes_are_checked_as_one_large_write() {
    let mut looks = Looks::default();
    let mut due = (0..64).map(|_| looks.is_due(1 << 20));
    assert_eq!(due.by_ref().take(17).filter(|is_due| *is_due).count(), 2);
    assert_eq!(due.filter(|is_due| *is_due).count(), 2);
    assert!(!looks.is_due(0));
    looks.again();
    assert!(looks.is_due(1));
}

fn limits(bytes: u64, user_bytes: u64, reserve_bytes: u64) -> SpoolLimits {
    let disk = DiskReserve::new(&std::env::temp_dir(), reserve_bytes);
    SpoolLimits { bytes, user_bytes, share_percent: 75, disk }
}

#[test]
fn charges_are_limited_per_user_and_in_total() {
    let budget = SpoolBudget::new(limits(100, 60, 0));
    let mut first = budget.charge(1);
    first.add(60).expect("room");
    assert_eq!(first.add(1), Err(SpoolFull::User { limit: 60 }));
    let mut other = budget.charge(1);
    assert_eq!(other.add(1), Err(SpoolFull::User { limit: 60 }));
    let mut second = budget.charge(2);
    second.add(40).expect("room");
    assert_eq!(second.add(1), Err(SpoolFull::All { limit: 100 }));
    assert_eq!(budget.used_bytes(), 100);
    drop(first);
    second.add(20).expect("room");
    drop((second, other));
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn users_at_their_share_leave_space_for_others() {
    let budget = SpoolBudget::new(limits(400, 100, 0));
    // Four of them would fill it.
    let mut charges: Vec<SpoolCharge> = (1..=6).map(|user| budget.charge(user)).collect();
    let bytes = charges.iter_mut().map(|charge| (0..).take_while(|_| charge.add(1).is_ok()).count());
    assert_eq!(bytes.collect::<Vec<_>>(), [100, 100, 100, 75, 18, 5]);
    let mut last = budget.charge(7);
    assert_eq!(last.add(1), Ok(()));
}

#[test]
fn nearly_full_disk_refuses_even_one_byte() {
    let budget = SpoolBudget::new(limits(u64::MAX, u64::MAX, u64::MAX));
    let full = Err(SpoolFull::Disk { reserve: u64::MAX });
    let mut charge = budget.charge(1);
    assert_eq!((charge.add(1), charge.add(LOOK_BYTES)), (full, full));
    assert_eq!(budget.used_bytes(), 0);
}

#[test]
fn shortage_handlers_run_before_refusal() {
    let free = Arc::new(AtomicU64::new(0));
    let told = free.clone();
    let disk = DiskReserve::looking(&std::env::temp_dir(), 10, move |_| Some(told.load(Ordering::SeqCst)));
    let budget = SpoolBudget::new(SpoolLimits { disk: disk.clone(), ..limits(100, 100, 0) });
    let mut charge = budget.charge(1);
    assert_eq!(charge.add(1), Err(SpoolFull::Disk { reserve: 10 }));
    disk.on_shortage(move |_| free.store(10, Ordering::SeqCst));
    assert_eq!((charge.add(1), budget.used_bytes()), (Ok(()), 1));
}

#[test]
fn unfinished_files_are_told_from_others() {
    let directory = tempfile::tempdir().expect("a directory");
    assert_eq!(list(directory.path(), "versions").expect("listed"), []);
    let folder = directory.path().join("versions");
    fs::create_dir(&folder).expect("made");
    for name in ["1f.parquet#1", "a#b#12", "1f.parquet", "1f.parquet#", "1f.parquet#1a", "#1"] {
        fs::write(folder.join(name), name).expect("written");
    }
    let mut found = list(directory.path(), "versions").expect("listed");
    found.sort_by(|one, other| one.path.cmp(&other.path));
    let found: Vec<_> = found.iter().map(|file| (&*file.path, &*file.object, file.size_bytes)).collect();
    let expected = [("versions/1f.parquet#1", "versions/1f.parquet", 12), ("versions/a#b#12", "versions/a#b", 6)];
    assert_eq!(found, expected);
}
