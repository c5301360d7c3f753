//! Tests that `strata check` finds the files of a killed process and that a sweep removes them, regardless of when the
//! process was killed.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sqlx::SqlitePool;
use strata_testing::faultfs::FaultFs;
use strata_testing::files;
use strata_testing::machine::{Machine, Server, failed, succeeded};

const IMPORT: [&str; 6] = ["import", "small.jsonl", "--name", "Things", "--owner", "ada@example.test"];

/// The system calls at which an import is killed, and whether an unfinished file remains.
const KILLS: [(&str, bool); 7] = [
    ("kill create store/versions/* 1", false),
    ("kill write store/versions/*#1 1", true),
    ("kill rename store/versions/* 1", true),
    ("kill fsync store/versions/* 1", false),
    ("kill fsync store/versions 1", false),
    ("kill write tmp/* 1", false),
    // A commit syncs the file.
    ("kill fsync catalog.sqlite-wal 3", false),
];

fn machine() -> (Machine, FaultFs) {
    let machine = Machine::with_user();
    machine.write("small.jsonl", "{\"a\":1}\n");
    succeeded(&machine.run(&IMPORT));
    // The entities differ, because versions with equal entities share one file.
    machine.write("small.jsonl", "{\"a\":2}\n");
    let faults = FaultFs::below(&machine.path("strata-data"));
    (machine, faults)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sweep_removes_files_of_killed_writers() {
    for (rule, begun) in KILLS {
        let (machine, faults) = machine();
        faults.set(&[rule]);
        let killed = faults.run(&machine, &IMPORT);
        assert_eq!(killed.status.signal(), Some(9), "{rule}: {}", String::from_utf8_lossy(&killed.stderr));
        let checked = succeeded(&machine.run(&["check"]));
        assert_eq!(checked.contains(".parquet#1 ("), begun, "{rule}: {checked}");
        let swept = succeeded(&machine.run(&["sweep", "--offline", "--older-than", "0s"]));
        assert_eq!(swept.contains(", unfinished)"), begun, "{rule}: {swept}");
        let catalog = catalog(&machine).await;
        let recorded: Vec<(String,)> = sqlx::query_as("SELECT path FROM files")
            .fetch_all(&catalog)
            .await
            .expect("failed to run the SQL statement");
        catalog.close().await;
        let store = machine.path("strata-data/store");
        let recorded: BTreeSet<PathBuf> = recorded.into_iter().map(|(path,)| store.join(path)).collect();
        assert_eq!(files(&store).into_iter().collect::<BTreeSet<_>>(), recorded, "{rule}");
        assert_eq!(files(&machine.path("strata-data/tmp")), Vec::<PathBuf>::new(), "{rule}");
        assert_eq!(files(&machine.path("strata-data/exports")), Vec::<PathBuf>::new(), "{rule}");
        let checked = succeeded(&machine.run(&["check"]));
        assert!(checked.ends_with(" 0 damaged, 0 unnamed\n"), "{rule}: {checked}");
    }
}

/// Regression test: the reservation of a file that belongs to no dataset yet names no process, so the file stayed for
/// five minutes.
#[test]
fn offline_sweep_removes_only_files_of_dead_writers() {
    let (machine, faults) = machine();
    let server = Server::start(&machine, &[], &[]);
    faults.set(&["kill write store/versions/*#1 1"]);
    let first = ["import", "small.jsonl", "--name", "New", "--owner", "ada@example.test"];
    assert_eq!(faults.run(&machine, &first).status.signal(), Some(9));
    let sweep = || succeeded(&machine.run(&["sweep", "--offline", "--older-than", "0s"]));
    // The file could belong to the running server.
    let swept = sweep();
    assert!(!swept.contains("unfinished"), "{swept}");
    server.stop("-TERM");
    let swept = sweep();
    assert!(swept.contains(".parquet#1 (") && swept.contains(", unfinished)"), "{swept}");
}

#[test]
fn server_removes_files_of_killed_processes() {
    let (machine, faults) = machine();
    let server = Server::start(&machine, &[], &[("STRATA_SWEEP__INTERVAL_S", "1")]);
    let own = process_directories(&machine);
    faults.set(&["kill write store/versions/* 1"]);
    assert_eq!(faults.run(&machine, &IMPORT).status.signal(), Some(9));
    let until = Instant::now() + Duration::from_secs(60);
    while process_directories(&machine) != own {
        assert!(Instant::now() < until, "{:?}", process_directories(&machine));
        std::thread::sleep(Duration::from_millis(50));
    }
    server.stop("-TERM");
}

#[test]
fn sweep_needs_no_disk_space() {
    let (machine, faults) = machine();
    let left = machine.path("strata-data/store/versions/left.parquet");
    std::fs::write(&left, "left behind").expect("written");
    faults.set(&["fail mkdir,create strata-data/tmp* 1 0 ENOSPC", "fail mkdir,create strata-data/exports* 1 0 ENOSPC"]);
    let swept = succeeded(&faults.run(&machine, &["sweep", "--offline", "--older-than", "0s"]));
    assert_eq!(swept, "removed versions/left.parquet (11 bytes, unnamed)\nremoved 1 file (11 bytes)\n");
    assert!(!left.exists());
}

#[test]
fn sweep_with_lost_catalog_removes_nothing() {
    let (machine, _) = machine();
    let store = files(&machine.path("strata-data/store"));
    for name in ["catalog.sqlite", "catalog.sqlite-wal", "catalog.sqlite-shm"] {
        // The other files exist only while a process has the database open.
        let _ = std::fs::remove_file(machine.path("strata-data").join(name));
    }
    for arguments in [&["sweep", "--offline", "--older-than", "0s"] as &[&str], &["serve", "--listen", "127.0.0.1:0"]] {
        failed(&machine.run(arguments));
    }
    // A database that is restored here must not get the log of another database.
    assert!(!machine.path("strata-data/catalog.sqlite-wal").exists());
    let stderr = failed(&machine.run(&["sweep", "--offline", "--older-than", "0s"]));
    assert!(stderr.contains("there is no metadata database"), "{stderr}");
    let stderr = failed(&machine.run(&["serve", "--listen", "127.0.0.1:0"]));
    assert!(stderr.contains("catalog.sqlite, but the store") && stderr.contains("restore the database"), "{stderr}");
    // A new database would make the store look like the store of a server without datasets.
    assert!(!machine.path("strata-data/catalog.sqlite").exists());
    assert_eq!(files(&machine.path("strata-data/store")), store);
}

/// Returns the directories of processes, both running and dead.
fn process_directories(machine: &Machine) -> BTreeSet<PathBuf> {
    let folders = ["strata-data/tmp", "strata-data/exports"].map(|folder| machine.path(folder));
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).expect("readable"));
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

async fn catalog(machine: &Machine) -> SqlitePool {
    let path = machine.path("strata-data/catalog.sqlite");
    SqlitePool::connect(&format!("sqlite://{}", path.display())).await.expect("failed to open the catalog")
}
