//! The external sort of records.

use proptest::prelude::*;
use strata_checks::RecordSorter;
use strata_store::StorageError;
use strata_store::free_space::DiskReserve;
use strata_store::spool_quota::{SpoolLimits, SpoolQuota, SpoolQuotaExceeded, SpoolReservation};
use strata_types::ids::UserId;

proptest! {
    #[test]
    fn sorter_returns_records_in_order(records in prop::collection::vec(any::<[u8; 5]>(), 0..200), max in 1_usize..50) {
        let directory = tempfile::tempdir().expect("failed to create directory");
        let mut sorter =
            RecordSorter::with_max_buffered_records(directory.path(), SpoolReservation::unbounded(), max);
        records.iter().try_for_each(|record| sorter.push(*record)).expect("failed to add records");
        let mut sorted = Vec::new();
        let collect = |record: &[u8; 5]| {
            sorted.push(*record);
            Ok(())
        };
        sorter.for_each_sorted(collect).expect("failed to sort");
        let mut expected = records;
        expected.sort_unstable();
        prop_assert_eq!(sorted, expected);
    }
}

#[test]
fn spilled_records_count_toward_quota() {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let disk_reserve = DiskReserve::new(directory.path(), 0);
    let limits = SpoolLimits { total_bytes: 1_000, user_bytes: 100, share_percent: 100, disk_reserve };
    let quota = SpoolQuota::new(limits);
    let reservation = quota.reservation_for_user(UserId::new(1));
    let mut sorter = RecordSorter::with_max_buffered_records(directory.path(), reservation, 4);
    let pushed = (0..100_u8).try_for_each(|number| sorter.push([number; 8]));
    let exceeded = SpoolQuotaExceeded::User { limit: 100 };
    assert!(matches!(pushed, Err(StorageError::SpoolQuota(error)) if error == exceeded), "{pushed:?}");
    // Three runs of 32 bytes fit.
    assert_eq!(quota.used_bytes(), 96);
    drop(sorter);
    assert_eq!(quota.used_bytes(), 0);
}
