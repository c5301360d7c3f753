//! Checks of lists of entities, compared with a naive implementation.

mod reference;
mod schemas;
mod settings;
mod sorter;
mod texts;

use serde_json::Value;
use strata_checks::{ActiveVersion, CheckReport, CheckRun, CheckSettings, KeySorter};
use strata_store::spool_quota::SpoolReservation;
use strata_types::version::VersionNumber;

fn parse(checks: &str) -> CheckSettings {
    CheckSettings::parse_text(checks).unwrap_or_else(|error| panic!("{checks}: {error}"))
}

fn parse_error(checks: &str) -> String {
    match CheckSettings::parse_text(checks) {
        Ok(_) => panic!("{checks} is valid"),
        Err(error) => error.to_string(),
    }
}

fn canonical(entity: &str) -> Vec<u8> {
    let mut canonical = Vec::new();
    strata_json::canonicalize(entity.as_bytes(), &mut canonical).unwrap_or_else(|error| panic!("{entity}: {error}"));
    canonical
}

/// Runs checks on canonical entities, with at most `max_keys` hashes of keys in memory.
fn run(checks: &str, entities: &[Vec<u8>], old_count: Option<u64>, max_keys: usize) -> CheckReport {
    let directory = tempfile::tempdir().expect("failed to create directory");
    let sorter = KeySorter::with_max_buffered_records(directory.path(), SpoolReservation::unbounded(), max_keys);
    let mut run = CheckRun::with_sorter(parse(checks), sorter);
    let mut lines = Vec::new();
    for entity in entities {
        lines.extend_from_slice(entity);
        lines.push(b'\n');
    }
    run.add_lines(&lines).expect("failed to add entities");
    let sorted = run.sort_keys().expect("failed to sort keys");
    let repeated: Vec<_> = sorted.positions().iter().map(|position| entities[*position as usize].clone()).collect();
    let active = old_count.map(|entity_count| ActiveVersion { number: VersionNumber::new(7), entity_count });
    sorted.into_report(active, &repeated)
}

/// Runs checks on a JSON array of entities, and returns the texts of all failed checks.
fn failures(checks: &str, entities: &str, old_count: Option<u64>) -> Vec<String> {
    let entities: Vec<Value> = serde_json::from_str(entities).expect("failed to parse entities");
    let entities: Vec<_> = entities.iter().map(|entity| canonical(&entity.to_string())).collect();
    let report = run(checks, &entities, old_count, 1_000);
    assert_eq!(report.has_passed(), report.results.iter().all(|result| result.text.is_none()));
    report.results.into_iter().filter_map(|result| result.text).collect()
}
