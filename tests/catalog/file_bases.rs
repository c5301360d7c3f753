//! Base files: the files whose rows a delta file uses. A base of a recorded file must not be removed.

use std::time::Duration;

use strata_catalog::{Catalog, CatalogCheckDepth, CatalogError, FileReference, VersionContent, VersionFileIds};
use strata_testing::databases::{Raw, on_both_databases};
use strata_types::dataset::{NewDatasetClone, RollbackMode};
use strata_types::ids::{DatasetId, VersionFileId};
use strata_types::secret::Secret;
use strata_types::version::{DatasetVersion, NewVersionFile, VersionFile};
use tokio::task::JoinSet;

use super::{
    Database, LEASE, acquire, clock, create, delta_file, file, name, publish, publish_file, resolved_number, v,
    with_dataset, with_owner,
};

on_both_databases! {
    Database:
    bases_are_recorded_in_order
    missing_base_conflicts
    base_is_kept_until_last_file_is_removed
    unreferenced_file_can_become_base
    marked_base_is_not_removed
    damaged_bases_stop_removal
    removal_and_recording_do_not_race
    overlapping_transactions_do_not_deadlock
    references_include_versions_that_use_base
    version_without_base_record_is_dangling
    replaced_file_serves_version
    refresh_shares_replacement_of_file
    replacement_affects_only_its_version
    replacement_with_other_content_conflicts
    concurrent_replacements_yield_one_success
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Saves an alternate of version 1 and returns its file.
async fn save(catalog: &Catalog, dataset: DatasetId, path: &str, bases: &[&str]) -> Result<VersionFile, CatalogError> {
    catalog.reserve_file(path, LEASE).await?;
    let saved = catalog.save_alternate(dataset, v(1), &delta_file(path, bases), None).await?;
    Ok(saved.version.alternate.unwrap())
}

fn paths(files: &[VersionFile]) -> Vec<&str> {
    files.iter().map(|file| file.path.as_str()).collect()
}

async fn base_paths(catalog: &Catalog, file: VersionFileId) -> Vec<String> {
    catalog.bases_of_file(file).await.unwrap().into_iter().map(|base| base.path).collect()
}

async fn unreferenced(database: &Database) -> Vec<String> {
    let sql = "SELECT path FROM files WHERE unreferenced_since IS NOT NULL ORDER BY path";
    database.texts(sql).await.into_iter().flatten().collect()
}

async fn bases_are_recorded_in_order(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let first = publish(&catalog, dataset, "a").await.unwrap();
    let second = publish_file(&catalog, dataset, &delta_file("b", &["a"])).await.unwrap();
    let alternate = save(&catalog, dataset, "alt", &["b", "a", "b"]).await.unwrap();
    assert_eq!(catalog.bases_of_file(second.file.id).await.unwrap(), std::slice::from_ref(&first.file));
    assert_eq!(catalog.bases_of_file(alternate.id).await.unwrap(), [second.file, first.file.clone()]);
    assert_eq!(catalog.bases_of_file(first.file.id).await.unwrap(), []);
    assert_eq!(catalog.bases_of_file(VersionFileId::new(u64::MAX)).await.unwrap(), []);
}

async fn missing_base_conflicts(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    // A path without a record, a reserved path, and the path of the file itself.
    catalog.reserve_file("reserved", LEASE).await.unwrap();
    for missing in ["missing", "reserved", "alt"] {
        let saved = save(&catalog, dataset, "alt", &["a", missing]).await;
        assert!(matches!(saved, Err(CatalogError::Conflict)), "{missing}: {saved:?}");
    }
    let attempt = acquire(&catalog, dataset, "b").await.unwrap();
    let content = delta_file("b", &["missing"]);
    let published = catalog.publish_version(dataset, VersionContent::New(&content), None, attempt).await;
    assert!(matches!(published, Err(CatalogError::Conflict)), "{published:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 1);
    assert_eq!(database.number("SELECT COUNT(*) FROM file_bases").await, 0);
    // The reservations still exist, so that the file can be recorded with other bases.
    let content = delta_file("b", &["a"]);
    catalog.publish_version(dataset, VersionContent::New(&content), None, attempt).await.unwrap();
}

async fn base_is_kept_until_last_file_is_removed(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "a").await.unwrap();
    let x = save(&catalog, dataset, "x", &["a"]).await.unwrap();
    let y = save(&catalog, dataset, "y", &["x", "a"]).await.unwrap();
    let z = save(&catalog, dataset, "z", &["x", "a"]).await.unwrap();
    // "x" is the base of "y" and "z"; only "z" belongs to a version.
    assert_eq!(unreferenced(&database).await, ["y"]);
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(unreferenced(&database).await, ["y", "z"]);

    clock.advance(HOUR * 2);
    assert_eq!(paths(&catalog.unreferenced_files(HOUR, 100).await.unwrap()), ["y", "z"]);
    assert_eq!(paths(&catalog.remove_file_records(&[x.id, y.id], HOUR).await.unwrap()), ["y"]);
    assert_eq!(unreferenced(&database).await, ["z"]);
    assert_eq!(base_paths(&catalog, y.id).await, [""; 0]);
    assert_eq!(base_paths(&catalog, z.id).await, ["x", "a"]);
    assert_eq!(paths(&catalog.remove_file_records(&[z.id, x.id], HOUR).await.unwrap()), ["z"]);
    assert_eq!(database.number("SELECT COUNT(*) FROM file_bases").await, 1);

    // The delay of the base begins when the last file that used it is removed.
    assert_eq!(unreferenced(&database).await, ["x"]);
    clock.advance(HOUR);
    assert_eq!(catalog.unreferenced_files(HOUR, 100).await.unwrap(), []);
    assert_eq!(catalog.remove_file_records(&[x.id], HOUR).await.unwrap(), []);
    clock.advance(Duration::from_micros(1));
    assert_eq!(paths(&catalog.unreferenced_files(HOUR, 100).await.unwrap()), ["x"]);
    assert_eq!(paths(&catalog.remove_file_records(&[x.id], HOUR).await.unwrap()), ["x"]);
    assert_eq!(database.number("SELECT COUNT(*) FROM file_bases").await, 0);
    assert_eq!(unreferenced(&database).await, [""; 0]);
    assert_eq!(database.texts("SELECT path FROM files").await, [Some("a".to_owned())]);
}

async fn unreferenced_file_can_become_base(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "a").await.unwrap();
    let x = save(&catalog, dataset, "x", &[]).await.unwrap();
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    clock.advance(HOUR * 2);
    assert_eq!(paths(&catalog.unreferenced_files(HOUR, 1).await.unwrap()), ["x"]);
    save(&catalog, dataset, "y", &["x"]).await.unwrap();
    assert_eq!(unreferenced(&database).await, [""; 0]);
    assert_eq!(catalog.unreferenced_files(HOUR, 1).await.unwrap(), []);
    assert_eq!(catalog.remove_file_records(&[x.id], HOUR).await.unwrap(), []);

    // A replaced file that is a base of its replacement stays.
    save(&catalog, dataset, "z", &["y", "x"]).await.unwrap();
    assert_eq!(unreferenced(&database).await, [""; 0]);
}

/// No operation marks a base. If it is marked nevertheless, for example because of a damaged index, it is not removed.
async fn marked_base_is_not_removed(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    publish(&catalog, dataset, "a").await.unwrap();
    let x = save(&catalog, dataset, "x", &[]).await.unwrap();
    let y = save(&catalog, dataset, "y", &["x"]).await.unwrap();
    database.execute("UPDATE files SET unreferenced_since = 0 WHERE path = 'x'").await;
    assert_eq!(catalog.remove_file_records(&[x.id], HOUR).await.unwrap(), []);
    assert_eq!(unreferenced(&database).await, [""; 0]);

    // The mark is correct again if the only file that uses the base is removed in the same call.
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    clock.advance(HOUR * 2);
    database.execute("UPDATE files SET unreferenced_since = 0 WHERE path = 'x'").await;
    assert_eq!(paths(&catalog.remove_file_records(&[x.id, y.id], HOUR).await.unwrap()), ["y"]);
    assert_eq!(unreferenced(&database).await, ["x"]);
    assert_eq!(catalog.unreferenced_files(HOUR, 100).await.unwrap(), []);
}

/// Regression test: the base of a lost or changed row was removed.
async fn damaged_bases_stop_removal(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    let x = save(&catalog, dataset, "x", &["a"]).await.unwrap();
    let y = save(&catalog, dataset, "y", &["x", "a"]).await.unwrap();
    let z = publish(&catalog, dataset, "z").await.unwrap().file;
    let [x_id, y_id, z_id] = [x.id, y.id, z.id].map(VersionFileId::get);
    database.execute(&format!("UPDATE files SET unreferenced_since = 1 WHERE file_id = {x_id}")).await;
    let findings = async || {
        let mut findings = Vec::new();
        catalog.check_integrity(CatalogCheckDepth::Quick, &mut |finding| findings.push(finding)).await.unwrap();
        // The content hashes of these files are invalid.
        findings.retain(|finding| finding.contains("file_bases"));
        findings
    };
    let finding =
        |file: u64| format!("files {file}: rows of file_bases were lost or changed, so sweeps remove no recorded file");
    let row = format!("file_id = {y_id} AND base_file_id = {x_id}");
    let moved = format!("file_id = {z_id} AND base_file_id = {x_id}");
    let insert = format!("INSERT INTO file_bases (file_id, base_file_id, base_position) VALUES ({y_id}, {x_id}, 0)");
    for (damage, repair, damaged) in [
        (format!("DELETE FROM file_bases WHERE {row}"), insert.clone(), vec![y_id]),
        (
            format!("UPDATE file_bases SET file_id = {z_id} WHERE {row}"),
            format!("DELETE FROM file_bases WHERE {moved}; {insert}"),
            vec![y_id, z_id],
        ),
        (
            format!("DELETE FROM file_bases WHERE file_id = {y_id}"),
            format!("{insert}; INSERT INTO file_bases SELECT {y_id}, file_id, 1 FROM files WHERE path = 'a'"),
            vec![y_id],
        ),
    ] {
        database.execute(&damage).await;
        let removed = catalog.remove_file_records(&[x.id], Duration::ZERO).await;
        let error = removed.expect_err(&damage).to_string();
        assert!(error.contains(&format!("list of bases of file {y_id}")), "{damage}: {error}");
        let found = findings().await;
        for file in damaged {
            assert!(found.contains(&finding(file)), "{damage}: {found:?}");
        }
        database.execute(&repair).await;
        assert_eq!(findings().await, [""; 0], "{repair}");
    }
    assert_eq!(catalog.remove_file_records(&[x.id], Duration::ZERO).await.unwrap(), []);
    assert_eq!(unreferenced(&database).await, [""; 0]);
}

async fn removal_and_recording_do_not_race(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let other = database.open().await.with_clock(clock.clone());
    publish(&catalog, dataset, "a").await.unwrap();
    for round in 0..24 {
        let [base, old, new] = ["base", "old", "new"].map(|name| format!("{name} {round}"));
        let base_file = save(&catalog, dataset, &base, &[]).await.unwrap();
        // In even rounds, the base itself is removed; in odd rounds, another file with the same base.
        let removed = match round % 2 {
            0 => base_file,
            _ => save(&catalog, dataset, &old, &[&base]).await.unwrap(),
        };
        catalog.delete_alternate(dataset, v(1)).await.unwrap();
        clock.advance(HOUR * 2);
        other.reserve_file(&new, LEASE).await.unwrap();
        let new_file = delta_file(&new, &[&base]);
        let removed_ids = [removed.id];
        let removal = async {
            tokio::time::sleep(Duration::from_micros(100 * (round % 5))).await;
            catalog.remove_file_records(&removed_ids, HOUR).await.unwrap()
        };
        let (removed, saved) = tokio::join!(removal, other.save_alternate(dataset, v(1), &new_file, None));
        let sql = format!("SELECT COUNT(*) FROM files WHERE unreferenced_since IS NULL AND path = '{base}'");
        let is_kept = database.number(&sql).await == 1;
        match saved {
            Ok(_) => {
                assert!(is_kept, "round {round}: the base of a recorded file was removed or marked");
                assert_eq!(removed.len() as u64, round % 2, "round {round}");
            }
            Err(CatalogError::Conflict) => {
                assert!(round % 2 == 0 && !is_kept, "round {round}: a recorded base was not found");
                assert_eq!(paths(&removed), [&*base]);
            }
            Err(error) => panic!("round {round}: {error}"),
        }
        if let Err(error) = catalog.delete_alternate(dataset, v(1)).await {
            assert!(matches!(error, CatalogError::NoAlternate), "{error}");
        }
    }
}

/// Recordings with the same bases in different orders, replacements, and removals of files with these bases.
async fn overlapping_transactions_do_not_deadlock(database: Database) {
    let (catalog, owner) = with_owner(&database).await;
    let shared = create(&catalog, owner, "Shared").await.unwrap().id;
    let bases = ["p", "q", "r"];
    for base in bases {
        publish(&catalog, shared, base).await.unwrap();
    }
    let mut writers = JoinSet::new();
    for writer in 0..4_usize {
        let dataset = create(&catalog, owner, &format!("Dataset {writer}")).await.unwrap().id;
        publish(&catalog, dataset, &format!("file {writer}")).await.unwrap();
        let catalog = database.open().await;
        let mut bases = bases;
        bases.rotate_left(writer % 3);
        if writer == 3 {
            bases.reverse();
        }
        writers.spawn(async move {
            for round in 0..12 {
                save(&catalog, dataset, &format!("alternate {writer} {round}"), &bases).await.unwrap();
            }
            catalog.delete_alternate(dataset, v(1)).await.unwrap();
        });
    }
    for _ in 0..2 {
        let catalog = database.open().await;
        writers.spawn(async move {
            for _ in 0..12 {
                let found = catalog.unreferenced_files(Duration::ZERO, 100).await.unwrap();
                let ids: Vec<_> = found.iter().rev().map(|file| file.id).collect();
                catalog.remove_file_records(&ids, Duration::ZERO).await.unwrap();
            }
        });
    }
    writers.join_all().await;
    let found = catalog.unreferenced_files(Duration::ZERO, 100).await.unwrap();
    let ids: Vec<_> = found.iter().map(|file| file.id).collect();
    catalog.remove_file_records(&ids, Duration::ZERO).await.unwrap();
    assert_eq!(database.number("SELECT COUNT(*) FROM file_bases").await, 0);
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 7);
    assert_eq!(unreferenced(&database).await, [""; 0]);
}

/// Returns the numbers of the versions that need a file, and whether the alternate needs it.
fn numbers(references: &[FileReference]) -> Vec<(u64, bool)> {
    references.iter().map(|reference| (reference.version.get(), reference.alt)).collect()
}

async fn references_include_versions_that_use_base(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let a = publish(&catalog, dataset, "a").await.unwrap().file;
    let b = publish_file(&catalog, dataset, &delta_file("b", &["a"])).await.unwrap().file;
    publish_file(&catalog, dataset, &delta_file("c", &["b", "a"])).await.unwrap();
    let alternate = save(&catalog, dataset, "alt", &["a", "b"]).await.unwrap();
    let references = async |file: VersionFileId, limit| catalog.file_references(file, limit).await.unwrap();
    let all = references(a.id, 100).await;
    assert_eq!(numbers(&all), [(1, false), (1, true), (2, false), (3, false)]);
    assert_eq!(all[1].to_string(), format!("dataset {dataset} \"World Countries\" v1 alt"));
    assert_eq!(references(a.id, 2).await, all[..2]);
    assert_eq!(numbers(&references(b.id, 100).await), [(1, true), (2, false), (3, false)]);
    assert_eq!(numbers(&references(alternate.id, 100).await), [(1, true)]);
    // An unreferenced file that is not removed yet keeps its bases, but no version needs them.
    catalog.delete_alternate(dataset, v(1)).await.unwrap();
    assert_eq!(numbers(&references(b.id, 100).await), [(2, false), (3, false)]);
    assert_eq!(catalog.dangling_file_references(100).await.unwrap(), []);
}

async fn version_without_base_record_is_dangling(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    for path in ["a", "b"] {
        publish(&catalog, dataset, path).await.unwrap();
    }
    publish_file(&catalog, dataset, &delta_file("c", &["a", "b"])).await.unwrap();
    save(&catalog, dataset, "alt", &["b", "a"]).await.unwrap();
    // The files of versions 1 and 2 are deleted, which are also the bases of version 3 and of the alternate.
    let disable = match database.raw {
        Raw::Sqlite { .. } => "PRAGMA foreign_keys = OFF",
        Raw::Postgres { .. } => {
            "ALTER TABLE versions DROP CONSTRAINT versions_file_id_fkey;
             ALTER TABLE file_bases DROP CONSTRAINT file_bases_base_file_id_fkey"
        }
    };
    database.execute(&format!("{disable}; DELETE FROM files WHERE path IN ('a', 'b')")).await;
    let dangling = catalog.dangling_file_references(100).await.unwrap();
    assert_eq!(numbers(&dangling), [(1, false), (1, true), (2, false), (3, false)]);
    assert_eq!(catalog.dangling_file_references(2).await.unwrap(), dangling[..2]);
    let alternate = database.number("SELECT file_id FROM files WHERE path = 'alt'").await;
    let bases = catalog.bases_of_file(VersionFileId::new(u64::try_from(alternate).unwrap())).await;
    assert!(matches!(bases, Err(CatalogError::DamagedRecord { .. })), "{bases:?}");
}

/// Replaces the file of a version with a file without bases.
async fn replace(
    catalog: &Catalog,
    dataset: DatasetId,
    number: u64,
    expected: &VersionFile,
    path: &str,
) -> Result<DatasetVersion, CatalogError> {
    catalog.reserve_file(path, LEASE).await?;
    let file = delta_file(path, &[]);
    catalog.replace_version_file(dataset, v(number), expected.id, &file).await.map(|status| status.version)
}

async fn replaced_file_serves_version(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let clock = clock();
    let catalog = catalog.with_clock(clock.clone());
    let a = publish(&catalog, dataset, "a").await.unwrap().file;
    let before = publish_file(&catalog, dataset, &delta_file("b", &["a"])).await.unwrap();
    catalog.rollback(dataset, v(2), RollbackMode::PinAndFreeze).await.unwrap();
    let number = v(2);
    let file = delta_file("c", &[]);
    let unreserved = catalog.replace_version_file(dataset, number, before.file.id, &file).await;
    assert!(matches!(unreserved, Err(CatalogError::ReservationLost)), "{unreserved:?}");
    catalog.reserve_file("c", LEASE).await.unwrap();
    let replaced = catalog.replace_version_file(dataset, number, before.file.id, &file).await.unwrap();
    assert!(replaced.is_active);
    assert_eq!(replaced.version.file.path, "c");
    assert_eq!(DatasetVersion { file: before.file.clone(), ..replaced.version.clone() }, before);
    // The read also verifies the checksum of the record.
    assert_eq!(catalog.version(dataset, number).await.unwrap(), replaced);
    assert_eq!(resolved_number(&catalog, dataset, "active").await, Some(2));
    assert_eq!(unreferenced(&database).await, ["b"]);
    clock.advance(HOUR * 2);
    assert_eq!(paths(&catalog.remove_file_records(&[before.file.id, a.id], HOUR).await.unwrap()), ["b"]);
    assert_eq!(unreferenced(&database).await, [""; 0]);

    // The new file can have the old file as base, which then stays.
    catalog.reserve_file("d", LEASE).await.unwrap();
    let delta = delta_file("d", &["a", "c"]);
    catalog.replace_version_file(dataset, number, replaced.version.file.id, &delta).await.unwrap();
    assert_eq!(unreferenced(&database).await, [""; 0]);
    assert_eq!(
        database.texts("SELECT path FROM files ORDER BY path").await,
        ["a", "c", "d"].map(|path| Some(path.to_owned()))
    );
}

/// A refresh that shares a file failed if the file was replaced between its decision and the publication.
async fn refresh_shares_replacement_of_file(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let other = create(&catalog, catalog.dataset(dataset).await.unwrap().unwrap().owner, "Other").await.unwrap().id;
    let first = publish(&catalog, dataset, "a").await.unwrap();
    let hash = "decaf";
    publish_file(&catalog, dataset, &NewVersionFile { content_hash: hash.to_owned(), ..file("b") }).await.unwrap();
    let share = async |dataset, path, file, content_hash| {
        let attempt = acquire(&catalog, dataset, path).await?;
        let content = VersionContent::Shared { file, content_hash };
        let published = catalog.publish_version(dataset, content, None, attempt).await;
        if published.is_err() {
            catalog.fail_refresh(attempt, "no").await?;
        }
        Ok::<_, CatalogError>(published?.version)
    };
    let new = replace(&catalog, dataset, 1, &first.file, "c").await.unwrap().file;
    let shared = share(dataset, "x", first.file.id, "c0ffee").await.unwrap();
    assert_eq!((shared.number, &shared.file), (v(3), &new));

    // If several versions have the content, the new version shares the file of the newest one.
    replace(&catalog, dataset, 3, &new, "d").await.unwrap();
    let shared = share(dataset, "x", first.file.id, "c0ffee").await.unwrap();
    assert_eq!((shared.number, &*shared.file.path), (v(4), "d"));
    // A file that a version still has is shared itself.
    assert_eq!(share(dataset, "x", new.id, "c0ffee").await.unwrap().file, new);
    for (dataset, content_hash) in [(dataset, "lost"), (other, "c0ffee")] {
        let shared = share(dataset, "x", first.file.id, content_hash).await;
        assert!(matches!(shared, Err(CatalogError::Conflict)), "{shared:?}");
    }
}

async fn replacement_affects_only_its_version(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let first = publish(&catalog, dataset, "a").await.unwrap();
    let attempt = acquire(&catalog, dataset, "unused").await.unwrap();
    let shared = VersionContent::Shared { file: first.file.id, content_hash: &first.file.content_hash };
    let second = catalog.publish_version(dataset, shared, None, attempt).await.unwrap().version;
    let clone = NewDatasetClone {
        source: dataset,
        owner: catalog.dataset(dataset).await.unwrap().unwrap().owner,
        name: name("Clone"),
        private_key: Secret::new_private_key([1; 32]),
        schedule: None,
        ping_token: Secret::new_ping_token(rand::random()),
    };
    let clone = catalog.clone_dataset(&clone, 1_000, None).await.unwrap().0.id;

    replace(&catalog, dataset, 2, &second.file, "b").await.unwrap();
    assert_eq!(catalog.version(dataset, v(1)).await.unwrap().version, first);
    assert_eq!(catalog.version(clone, v(1)).await.unwrap().version.file, first.file);
    assert_eq!(unreferenced(&database).await, [""; 0]);
    // An alternate with the old file as base keeps it, too. An edit can be saved although the file was replaced.
    save(&catalog, dataset, "alt", &["a"]).await.unwrap();
    let replaced = replace(&catalog, dataset, 1, &first.file, "c").await.unwrap();
    let edited = VersionFileIds { file: first.file.id, alt: replaced.alternate.as_ref().map(|alt| alt.id) };
    catalog.reserve_file("e", LEASE).await.unwrap();
    catalog.save_alternate(dataset, v(1), &delta_file("e", &["a"]), Some(edited)).await.unwrap();
    assert_eq!((&*replaced.file.path, &*replaced.alternate.unwrap().path), ("c", "alt"));
    replace(&catalog, clone, 1, &first.file, "d").await.unwrap();
    assert_eq!(unreferenced(&database).await, ["alt"]);
    assert_eq!(numbers(&catalog.file_references(first.file.id, 100).await.unwrap()), [(1, true)]);
}

async fn replacement_with_other_content_conflicts(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let version = publish(&catalog, dataset, "a").await.unwrap();
    let other = publish(&catalog, dataset, "b").await.unwrap().file;
    catalog.reserve_file("c", LEASE).await.unwrap();
    let equal = delta_file("c", &[]);
    for (expected, file) in [
        (other.id, equal.clone()),
        (version.file.id, NewVersionFile { content_hash: "other".to_owned(), ..equal.clone() }),
        (version.file.id, NewVersionFile { entity_count: 251, ..equal.clone() }),
        (version.file.id, NewVersionFile { bases: vec!["missing".to_owned()], ..equal.clone() }),
    ] {
        let replaced = catalog.replace_version_file(dataset, v(1), expected, &file).await;
        assert!(matches!(replaced, Err(CatalogError::Conflict)), "{file:?}: {replaced:?}");
    }
    let missing = catalog.replace_version_file(dataset, v(3), version.file.id, &equal).await;
    assert!(matches!(missing, Err(CatalogError::NoVersion)), "{missing:?}");
    let missing = catalog.replace_version_file(DatasetId::new(99), v(1), version.file.id, &equal).await;
    assert!(matches!(missing, Err(CatalogError::NotFound)), "{missing:?}");
    assert_eq!(catalog.version(dataset, v(1)).await.unwrap().version, version);
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 2);
    // The reservation still exists. The size of the file can differ.
    let smaller = NewVersionFile { size_bytes: 7, ..equal };
    let replaced = catalog.replace_version_file(dataset, v(1), version.file.id, &smaller).await.unwrap();
    assert_eq!(replaced.version.file.size_bytes, 7);
}

async fn concurrent_replacements_yield_one_success(database: Database) {
    let (catalog, dataset) = with_dataset(&database).await;
    let old = publish(&catalog, dataset, "a").await.unwrap().file;
    let mut replacements = JoinSet::new();
    for number in 0..6 {
        let catalog = database.open().await;
        let old = old.clone();
        replacements.spawn(async move { replace(&catalog, dataset, 1, &old, &format!("b{number}")).await });
    }
    let (replaced, rejected): (Vec<_>, Vec<_>) = replacements.join_all().await.into_iter().partition(Result::is_ok);
    assert_eq!(replaced.len(), 1);
    assert!(rejected.iter().all(|rejected| matches!(rejected, Err(CatalogError::Conflict))), "{rejected:?}");
    assert_eq!(database.number("SELECT COUNT(*) FROM files").await, 2);
    assert_eq!(unreferenced(&database).await, ["a"]);
}

/// The environment variable with the URL of the database in which a child process replaces a file and is killed.
const CRASH_URL: &str = "STRATA_TEST_REPLACE_FILE_URL";

/// The child process of [`killed_replacement_is_complete_or_undone`]; does nothing in other runs.
#[tokio::test]
async fn replacement_for_crash_test() {
    let Ok(url) = std::env::var(CRASH_URL) else { return };
    let catalog = Catalog::open(&url).await.unwrap();
    let dataset = catalog.datasets(None, 1).await.unwrap().remove(0).id;
    let old = catalog.version(dataset, v(1)).await.unwrap().version.file;
    replace(&catalog, dataset, 1, &old, "b").await.unwrap();
}

#[cfg(debug_assertions)]
#[tokio::test]
async fn killed_replacement_is_complete_or_undone() {
    use std::os::unix::process::ExitStatusExt;

    /// The signal number of SIGKILL.
    const SIGKILL: i32 = 9;
    for (point, expected) in [("compact.uncommitted", "a"), ("compact.committed", "b")] {
        let database = Database::sqlite().await;
        let (catalog, dataset) = with_dataset(&database).await;
        publish(&catalog, dataset, "a").await.unwrap();
        catalog.close().await;
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file_bases::replacement_for_crash_test"])
            .env(CRASH_URL, &database.url)
            .env("CRASH_AT", point)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(SIGKILL), "{point}: {status}");
        let catalog = database.open().await;
        assert_eq!(catalog.version(dataset, v(1)).await.unwrap().version.file.path, expected, "{point}");
        let is_replaced = expected == "b";
        assert_eq!(unreferenced(&database).await, if is_replaced { vec!["a"] } else { Vec::new() }, "{point}");
    }
}

/// A sweep must not rely on the index of the bases, which might lack rows.
#[tokio::test]
async fn damaged_index_does_not_remove_base() {
    let database = Database::sqlite().await;
    let (catalog, dataset) = with_dataset(&database).await;
    publish(&catalog, dataset, "a").await.unwrap();
    let x = save(&catalog, dataset, "x", &["a"]).await.unwrap();
    save(&catalog, dataset, "y", &["x", "a"]).await.unwrap();
    database.execute("UPDATE files SET unreferenced_since = 1").await;
    let root = database.number("SELECT rootpage FROM sqlite_master WHERE name = 'file_bases_by_base'").await;
    catalog.close().await;
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;

    // The root page of the index becomes a leaf without entries.
    let path = database.url.strip_prefix("sqlite://").unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    let page_bytes = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let start = (usize::try_from(root).unwrap() - 1) * page_bytes;
    const INDEX_LEAF: u8 = 0x0a;
    assert_eq!(bytes[start], INDEX_LEAF);
    bytes[start + 3..start + 5].fill(0);
    let damaged = tempfile::tempdir().unwrap();
    let damaged_path = damaged.path().join("catalog.db");
    std::fs::write(&damaged_path, bytes).unwrap();

    let catalog = Catalog::open(&format!("sqlite://{}", damaged_path.display())).await.unwrap();
    assert_eq!(catalog.remove_file_records(&[x.id], Duration::ZERO).await.unwrap(), []);
    assert_eq!(catalog.recorded_file(x.id).await.unwrap().unwrap().unreferenced_since, None);
}
