//! The limits of an engine: memory and spill space, shared by principals.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::SpillFile;
use strata_query::error::spill_error;
use strata_query::{HashedPrincipal, PrincipalShares, QueryEngine, QueryEngineOptions, QueryError};
use strata_store::free_space::DiskReserve;
use strata_store::unavailable::ResourceUnavailable;
use strata_testing::engines::EngineLab;

fn principals(engine: &QueryEngine) -> [QueryEngine; 2] {
    [1, 2].map(|key| engine.for_principal(HashedPrincipal { key, is_anonymous: false }))
}

fn spill_file(engine: &QueryEngine) -> datafusion::error::Result<Arc<dyn SpillFile>> {
    engine.task_context().runtime_env().disk_manager.create_tmp_file("spilled")
}

#[test]
fn query_that_ran_alone_reports_too_much_memory() {
    const MEMORY_BYTES: usize = 1 << 20;
    let lab = EngineLab::new();
    let engine = lab.engine(2, MEMORY_BYTES, Duration::from_secs(600));
    lab.bench.runtime.block_on(async {
        let refused = async || {
            let query_engine = engine.clone();
            let query = async move {
                let reservation = query_engine.try_reserve("a task", 1 << 10)?;
                // A cancelled task releases its memory a little later.
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    drop(reservation);
                });
                query_engine.try_reserve("a list", MEMORY_BYTES).map(drop)
            };
            engine.run_with_timeout(engine.timeout(), query).await
        };
        let exclusive = refused().await;
        assert!(
            matches!(exclusive, Err(QueryError::TooMuchMemory { limit_bytes, .. }) if limit_bytes == 1 << 20),
            "{exclusive:?}"
        );
        let other_query = engine.try_reserve("another", 1 << 10).expect("memory");
        let refused = refused().await;
        assert!(matches!(refused, Err(QueryError::OutOfMemory(_))), "{refused:?}");
        drop(other_query);
    });
}

#[test]
fn memory_of_one_principal_leaves_some_for_others() {
    const MIB: usize = 1 << 20;
    let lab = EngineLab::new();
    let engine = lab.engine_of_tenants(1_000 * MIB, 50);
    let [hostile, honest] = principals(&engine);
    let first = hostile.try_reserve("first", 400 * MIB).expect("within the share");
    let refused = hostile.try_reserve("second", 101 * MIB).expect_err("beyond the share").to_string();
    let expected = [format!("second needs {} more bytes", 101 * MIB), format!("use only {} bytes", 500 * MIB)];
    assert!(expected.iter().all(|text| refused.contains(text)), "{refused}");
    let second = hostile.try_reserve("second", 100 * MIB).expect("all of the share");
    let other = honest.try_reserve("other", 250 * MIB).expect("half of the rest");
    assert_eq!(engine.reserved_memory_bytes(), 750 * MIB);
    drop((first, second, other));
    assert_eq!(engine.reserved_memory_bytes(), 0);
}

#[test]
fn files_of_one_principal_leave_disk_for_others() {
    let lab = EngineLab::new();
    let engine = lab.engine_that_spills(1_000);
    let disk_manager = &engine.task_context().runtime_env().disk_manager;
    let [hostile, honest] = principals(&engine);
    let file = spill_file(&hostile).expect("a file");
    let mut writer = file.open_writer().expect("a writer");
    writer.write_all(&[7; 500]).expect("within the share");
    let refused = writer.write_all(&[7; 1]).expect_err("beyond the share").to_string();
    assert!(refused.contains("spill only 500 bytes"), "{refused}");
    let other = spill_file(&honest).expect("a file");
    other.open_writer().expect("a writer").write_all(&[7; 250]).expect("half of the rest");
    assert_eq!((file.size(), other.size(), disk_manager.used_disk_space()), (Some(500), Some(250), 750));
    writer.finish().expect("finished");
    drop((file, other, writer));
    // After the directory is removed, the next file recreates it.
    for path in disk_manager.temp_dir_paths() {
        std::fs::remove_dir_all(path).expect("removed");
    }
    drop(spill_file(&honest).expect("a file, all the same"));
    for path in disk_manager.temp_dir_paths() {
        std::fs::remove_dir_all(&path).expect("removed");
        std::fs::write(&path, "no directory").expect("written");
        let refused = spill_file(&honest).err().expect("no file").to_string();
        assert!(refused.contains("the directory for temporary files"), "{refused}");
        std::fs::remove_file(&path).expect("removed");
    }
    drop(spill_file(&honest).expect("a file again"));
    assert_eq!(disk_manager.used_disk_space(), 0);
}

#[test]
fn files_leave_disk_reserve_free() {
    const RESERVE_BYTES: u64 = 100;
    const CHECK_BYTES: u64 = 1 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let reported = free.clone();
    let probe = move |_: &std::path::Path| Some(reported.load(Ordering::SeqCst));
    let engine = QueryEngine::try_new(&QueryEngineOptions {
        shares: PrincipalShares { principal_percent: 50, anonymous_percent: 75 },
        spill_directory: Some(directory.path().to_owned()),
        spill_bytes: 1 << 30,
        disk_reserve: Some(DiskReserve::with_probe(directory.path(), RESERVE_BYTES, probe)),
        ..QueryEngineOptions::default()
    });
    let engine = engine.expect("an engine").for_principal(HashedPrincipal { key: 1, is_anonymous: true });
    let file = spill_file(&engine).expect("a file");
    let mut writer = file.open_writer().expect("a writer");
    writer.write_all(&[7; 3]).expect("room");
    free.store(RESERVE_BYTES + CHECK_BYTES - 1, Ordering::SeqCst);
    // The last check covers these bytes.
    writer.write_all(&vec![7; CHECK_BYTES as usize - 3]).expect("room");
    let refused = writer.write_all(&[7; 1]).expect_err("no room");
    assert!(refused.to_string().contains("sources.disk_reserve_bytes (100)"), "{refused}");
    assert_eq!(ResourceUnavailable::from_error(&refused), Some(ResourceUnavailable::DiskFull));
    let other = spill_file(&engine).expect("a file");
    assert!(other.open_writer().expect("a writer").write_all(&[7; 1]).is_err());
    free.store(RESERVE_BYTES + CHECK_BYTES, Ordering::SeqCst);
    writer.write_all(&[7; 1]).expect("room again");
    assert_eq!(file.size(), Some(CHECK_BYTES + 1));
}

#[test]
fn full_disk_is_reported_through_wrapping_errors() {
    let full = || io::Error::from_raw_os_error(28);
    let wrapped = || ArrowError::IoError("IO error".to_owned(), full());
    let shared = Arc::new(DataFusionError::from(wrapped()).context("a sort"));
    let held = shared.clone();
    for error in [
        spill_error("rows", full()),
        DataFusionError::from(wrapped()),
        DataFusionError::from(wrapped()).context("spilled"),
        DataFusionError::Shared(Arc::new(wrapped().into())),
        DataFusionError::Shared(shared),
    ] {
        let error = QueryError::from(error);
        let is_full = matches!(error, QueryError::Storage(_))
            && ResourceUnavailable::from_error(&error) == Some(ResourceUnavailable::DiskFull);
        assert!(is_full, "{error:?}");
    }
    drop(held);
    let limited = spill_error("rows", io::Error::other("the limit is reached"));
    assert!(matches!(QueryError::from(limited), QueryError::OutOfMemory(_)));
}
