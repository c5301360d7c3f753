//! Tests of a damaged catalog: `strata check` finds the damage, a server does not start, and no command panics or
//! continues as if the catalog were intact.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use strata_service::BackupCopyMode;
use strata_testing::TestService;
use strata_testing::catalog::integrity;
use strata_testing::machine::{Machine, failed, succeeded};
use strata_testing::maintenance::{Depth, FindingKind};
use strata_testing::owned::{Owned, parsed};

/// Creates a data directory whose catalog has rows in every table that is not empty at rest, on many pages. Returns the
/// bytes of the catalog.
async fn catalog_at_rest(directory: &Path) -> Vec<u8> {
    let owned = Owned::sqlite().await;
    let mut ids = Vec::new();
    for number in 0..40 {
        let name = format!("Dataset number {number} {}", "with a long name ".repeat(6));
        ids.push(owned.dataset(&name, json!({}), &[r#"[{"a":1}]"#]).await);
    }
    for _ in 0..10 {
        owned.push(ids[0], r#"[{"a":2}]"#).await;
    }
    parsed(&owned.save(ids[0], 1, r#"[{"alt":1}]"#).await);
    let to = directory.join("whole");
    owned.service.backup(&to, BackupCopyMode::LinkIfPossible).await.expect("failed to back up");
    fs::read(to.join("catalog.sqlite")).expect("failed to open the catalog")
}

/// Checks a service with this catalog. Returns the findings, or the reason why the check failed.
async fn check(directory: &Path) -> Vec<String> {
    let service = match TestService::open_data(directory).await {
        Ok(service) => service,
        Err(error) => return vec![error],
    };
    let mut findings_and_reasons = Vec::new();
    match service.try_check(Depth::Footers).await {
        Ok(checked) => {
            // The version files do not matter in this test.
            let findings = checked.findings.into_iter().filter(|finding| finding.kind == FindingKind::Catalog);
            findings_and_reasons.extend(findings.map(|finding| finding.reason));
            assert!(checked.damaged >= findings_and_reasons.len() as u64);
        }
        Err(error) => findings_and_reasons.push(format!("{error:?}")),
    }
    // The full check, which the quick check leaves out.
    findings_and_reasons.extend(integrity(&service.services.config.catalog_url()).await);
    findings_and_reasons
}

/// The bytes that fill a damaged page, with their names for messages.
const FILLINGS: [(&str, u8); 3] = [("zeros", 0x00), ("ones", 0xff), ("letters", b'x')];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_to_any_page_is_detected() {
    damage_each_page(|page| &FILLINGS[page % FILLINGS.len()..][..1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "campaign: damages each page in each way"]
async fn every_damage_to_any_page_is_detected() {
    damage_each_page(|_| &FILLINGS).await;
}

/// Damages each page with each of its fillings, and with the content of another page.
async fn damage_each_page(fillings: impl Fn(usize) -> &'static [(&'static str, u8)]) {
    let directory = tempfile::tempdir().expect("failed to create a directory");
    let whole = catalog_at_rest(directory.path()).await;
    let page_bytes = usize::from(u16::from_be_bytes([whole[16], whole[17]]));
    let pages = whole.len() / page_bytes;
    assert!(pages > 30, "{pages} pages");
    let damaged = directory.path().join("damaged");
    fs::create_dir(&damaged).expect("failed to create the directory");
    let attempt = async |bytes: &[u8]| {
        fs::remove_dir_all(&damaged).expect("failed to remove the file");
        fs::create_dir_all(damaged.join("store")).expect("failed to create the directory");
        fs::copy(directory.path().join("whole/store/strata.id"), damaged.join("store/strata.id")).expect("copied");
        fs::write(damaged.join("catalog.sqlite"), bytes).expect("written");
        check(&damaged).await
    };
    assert_eq!(attempt(&whole).await, Vec::<String>::new());
    for page in 0..pages {
        let range = page * page_bytes..(page + 1) * page_bytes;
        for (how, filling) in fillings(page) {
            let mut bytes = whole.clone();
            bytes[range.clone()].fill(*filling);
            assert!(!attempt(&bytes).await.is_empty(), "page {page} of {how} passed");
        }
        // The content of another page, as after a misdirected write.
        let other = (page + 1) % pages * page_bytes;
        let mut bytes = whole.clone();
        bytes.copy_within(other..other + page_bytes, range.start);
        // Empty tables and empty indexes are identical, regardless of the rows they had.
        let is_empty = |page: &[u8]| page[3..5] == [0, 0];
        let one = &whole[range.clone()];
        let two = &whole[other..other + page_bytes];
        if one[0] == two[0] && is_empty(one) && is_empty(two) {
            continue;
        }
        assert!(!attempt(&bytes).await.is_empty(), "page {page} twice passed");
    }
    // A truncated file, both at a page boundary and within a page.
    for length in [page_bytes, page_bytes * 3, whole.len() - page_bytes, whole.len() - 100] {
        assert!(!attempt(&whole[..length]).await.is_empty(), "{length} bytes passed");
    }
}

/// Returns a machine with a catalog that contains data, and the path of the catalog. No process has it open.
async fn machine() -> (Machine, std::path::PathBuf) {
    let machine = Machine::with_user();
    machine.write("rows.jsonl", "{\"a\":1}\n");
    succeeded(&machine.run(&["import", "rows.jsonl", "--name", "Rows", "--owner", "ada@example.test"]));
    let catalog = machine.path("strata-data/catalog.sqlite");
    // The last process that closes the catalog copies the write-ahead log into the file.
    let url = format!("sqlite://{}", catalog.display());
    assert_eq!(integrity(&url).await, Vec::<String>::new());
    assert!(!machine.path("strata-data/catalog.sqlite-wal").exists());
    (machine, catalog)
}

#[tokio::test]
async fn every_command_reports_file_that_is_no_catalog() {
    let (machine, catalog) = machine().await;
    fs::write(&catalog, "This is no database, whatever its name is. ".repeat(200)).expect("written");
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["check"], &["sweep"]] {
        let message = failed(&machine.run(arguments));
        assert!(message.contains("database is damaged") && message.contains("catalog.sqlite"), "{message}");
    }
}

#[tokio::test]
async fn damaged_catalog_prevents_server_start() {
    let (machine, catalog) = machine().await;
    let mut bytes = fs::read(&catalog).expect("failed to open the catalog");
    let page_bytes = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    // The page of the datasets table, which contains this name.
    let place = bytes.windows(8).position(|window| window == b"Rowsrows").expect("the row");
    let page = place / page_bytes * page_bytes;
    bytes[page..page + 8].fill(0xff);
    fs::write(&catalog, bytes).expect("written");
    let message = failed(&machine.run(&["serve", "--listen", "127.0.0.1:0"]));
    assert!(message.contains("the metadata database is damaged") && message.contains("strata check"), "{message}");
    let output = machine.run(&["check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let found = lines.lines().filter(|line| {
        let line: Value = serde_json::from_str(line).expect("failed to parse JSON");
        line["finding"] == json!("catalog")
    });
    assert!(found.count() >= 1, "{lines}");
}
