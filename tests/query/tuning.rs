//! `index`: which paths have an indexed column because of the settings, and the cost of sorting by them.

use strata_format::profile::{NotShreddedReason, ShreddingLimits};
use strata_format::writer::WriteOptions;
use strata_query::cost;
use strata_testing::versions::{Files, nothing_shredded, path_record};
use strata_types::index_settings::{IndexSettings, MAX_INDEX_PATHS};
use strata_types::read_request::{ReadRequest, SortField};

fn index(always: &[&str], never: &[&str]) -> IndexSettings {
    IndexSettings::try_new(always, never).expect("an index")
}

/// Entities with a path for each reason not to have an indexed column.
fn entities() -> Vec<String> {
    (0..1_200)
        .map(|number| {
            let rare = if number == 0 { format!(r#""rare":"r{number}","#) } else { String::new() };
            let text = format!("{number} {}", "a longer text that nobody filters by, ".repeat(6));
            format!(
                r#"{{{rare}"text":"{text}","n":{number},"name":"Name {}","o":{{"p":[{number},null]}}}}"#,
                number % 7
            )
        })
        .collect()
}

fn sorted_by(field: &str) -> ReadRequest {
    ReadRequest {
        sort: Some(SortField { field: field.to_owned(), descending: false }),
        limit: Some(10),
        ..ReadRequest::default()
    }
}

#[test]
fn index_settings_decide_indexed_columns() {
    let files = Files::new();
    let check = |options: &WriteOptions, shredded_columns: &[&str]| {
        let reader = files.open(&files.write(&entities(), options));
        let found: Vec<String> =
            reader.layout().shredded_columns.iter().map(|shredded| shredded.keys.join(".")).collect();
        assert_eq!(found, shredded_columns, "{options:?}");
        assert_eq!(reader.layout().index, options.index_settings);
        let profile = files.profile(&entities(), options);
        for record in &profile.paths {
            assert_eq!(record.shredded, shredded_columns.contains(&record.path.as_str()), "{}", record.path);
        }
        (reader, profile)
    };
    let with = |index| WriteOptions { index_settings: index, ..WriteOptions::default() };

    let (plain, profile) = check(&with(index(&[], &[])), &["n", "name", "o.p"]);
    let why = |path: &str| path_record(&profile, path).why_not_shredded;
    assert_eq!((why("rare"), why("text")), (Some(NotShreddedReason::TooRare), Some(NotShreddedReason::TextsTooLong)));
    assert_eq!((why("o"), why("n")), (Some(NotShreddedReason::NoScalar), None));

    let settings = index(&["rare", "text", "o", "nowhere.to\\.be", "name"], &["n"]);
    let (tuned, profile) = check(&with(settings), &["rare", "text", "name", "o.p"]);
    assert_eq!(path_record(&profile, "n").why_not_shredded, Some(NotShreddedReason::Excluded));
    assert_eq!(profile.index.always, ["name", "nowhere.to\\.be", "o", "rare", "text"]);
    assert_eq!(profile.index.never, ["n"]);
    let unmet: Vec<_> = profile.index.unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect();
    assert_eq!(unmet, [("nowhere.to\\.be", NotShreddedReason::NoScalar), ("o", NotShreddedReason::NoScalar)]);
    // A sort reads the indexed column, even if its texts are long. Without an indexed column, the sort reads all
    // documents.
    for (field, cheap) in [("text", &tuned), ("rare", &tuned), ("n", &plain)] {
        let expensive = if field == "n" { &tuned } else { &plain };
        let [low, high] = [cheap, expensive]
            .map(|reader| files.bench.runtime.block_on(cost::estimate_request_bytes(reader, &sorted_by(field))));
        assert!(low * 4 < high, "{field}: {low} and {high}");
    }

    // `never` excludes only the path itself, not the paths below it.
    check(&with(index(&[], &["o", "name"])), &["n", "o.p"]);
    // Paths in `always` do not count toward the maximum number of columns.
    let one_column = ShreddingLimits { max_columns: 1, ..ShreddingLimits::default() };
    let (_, profile) = check(
        &WriteOptions { shredding_limits: one_column, ..with(index(&["text", "o.p"], &[])) },
        &["text", "n", "o.p"],
    );
    assert_eq!(path_record(&profile, "name").why_not_shredded, Some(NotShreddedReason::NoRoom));
    check(&WriteOptions { shredding_limits: nothing_shredded(), ..with(index(&["name"], &[])) }, &["name"]);
}

#[test]
fn maximum_number_of_indexed_columns_is_written() {
    let entity: Vec<String> = (0..200).map(|number| format!(r#""p{number}":"x{number}""#)).collect();
    let entities = vec![format!("{{{}}}", entity.join(",")); 50];
    let always: Vec<String> = (200 - MAX_INDEX_PATHS..200).map(|number| format!("p{number}")).collect();
    let options = WriteOptions {
        index_settings: IndexSettings::try_new(&always, &[]).expect("an index"),
        ..WriteOptions::default()
    };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), ShreddingLimits::default().max_columns + MAX_INDEX_PATHS);
    let profile = files.profile(&entities, &options);
    assert_eq!(profile.paths.iter().filter(|record| record.shredded).count(), 128);
    assert_eq!(profile.index.unmet, []);
}

#[test]
fn untracked_path_is_reported_as_not_indexed() {
    let mut entities: Vec<String> = (0..10_100).map(|number| format!(r#"{{"p{number}":1}}"#)).collect();
    entities.push(r#"{"late":1}"#.to_owned());
    let options = WriteOptions {
        index_settings: index(&["late", "p7"], &[]),
        shredding_limits: nothing_shredded(),
        ..WriteOptions::default()
    };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), 1);
    let unmet = files.profile(&entities, &options).index.unmet;
    assert_eq!(
        unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect::<Vec<_>>(),
        [("late", NotShreddedReason::NotFollowed)]
    );
}
