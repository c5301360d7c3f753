//! `index`: which paths have an indexed column in a file because the settings say so, and what sorting by one costs.

use strata_format::profile::{NotShredded, ShreddingBounds};
use strata_format::writer::WriteOptions;
use strata_query::cost;
use strata_testing::versions::{Files, nothing_shredded, of};
use strata_types::index::{INDEX_PATHS, IndexSettings};
use strata_types::request::{ReadRequest, Sort};

fn index(always: &[&str], never: &[&str]) -> IndexSettings {
    IndexSettings::try_new(always, never).expect("an index")
}

/// Entities with a path for each reason not to have a shredded column.
fn entities() -> Vec<String> {
    (0..1_000)
        .map(|number| {
            let rare = if number % 100 == 0 { format!(r#""rare":"r{number}","#) } else { String::new() };
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
        sort: Some(Sort { field: field.to_owned(), descending: false }),
        limit: Some(10),
        ..ReadRequest::default()
    }
}

#[test]
fn the_file_has_the_shredded_columns_that_are_asked_for() {
    let files = Files::new();
    let check = |options: &WriteOptions, shredded_columns: &[&str]| {
        let reader = files.open(&files.write(&entities(), options));
        let found: Vec<String> =
            reader.layout().shredded_columns.iter().map(|shredded| shredded.keys.join(".")).collect();
        assert_eq!(found, shredded_columns, "{options:?}");
        assert_eq!(reader.layout().index, options.index);
        let profile = files.profile(&entities(), options);
        for record in &profile.paths {
            assert_eq!(record.shredded, shredded_columns.contains(&record.path.as_str()), "{}", record.path);
        }
        (reader, profile)
    };
    let with = |index| WriteOptions { index, ..WriteOptions::default() };

    let (plain, profile) = check(&with(index(&[], &[])), &["n", "name", "o.p"]);
    let why = |path: &str| of(&profile, path).why_not_shredded;
    assert_eq!((why("rare"), why("text")), (Some(NotShredded::TooRare), Some(NotShredded::TextsTooLong)));
    assert_eq!((why("o"), why("n")), (Some(NotShredded::NoScalar), None));

    let asked = index(&["rare", "text", "o", "nowhere.to\\.be", "name"], &["n"]);
    let (tuned, profile) = check(&with(asked), &["rare", "text", "name", "o.p"]);
    assert_eq!(of(&profile, "n").why_not_shredded, Some(NotShredded::Excluded));
    assert_eq!(profile.index.always, ["name", "nowhere.to\\.be", "o", "rare", "text"]);
    assert_eq!(profile.index.never, ["n"]);
    let unmet: Vec<_> = profile.index.unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect();
    assert_eq!(unmet, [("nowhere.to\\.be", NotShredded::NoScalar), ("o", NotShredded::NoScalar)]);
    // A sort on it is told from the shredded column, long texts or not; without one, from all documents.
    for (field, cheap) in [("text", &tuned), ("rare", &tuned), ("n", &plain)] {
        let dear = if field == "n" { &tuned } else { &plain };
        let [low, high] =
            [cheap, dear].map(|reader| files.bench.runtime.block_on(cost::work_bytes(reader, &sorted_by(field))));
        assert!(low * 4 < high, "{field}: {low} and {high}");
    }

    // What is excluded is that path, and not those below it.
    check(&with(index(&[], &["o", "name"])), &["n", "o.p"]);
    // What is asked for takes no room from the others, nor needs any.
    let few = ShreddingBounds { shredded_columns: 1, ..ShreddingBounds::default() };
    let (_, profile) =
        check(&WriteOptions { shredding: few, ..with(index(&["text", "o.p"], &[])) }, &["text", "n", "o.p"]);
    assert_eq!(of(&profile, "name").why_not_shredded, Some(NotShredded::NoRoom));
    check(&WriteOptions { shredding: nothing_shredded(), ..with(index(&["name"], &[])) }, &["name"]);
}

#[test]
fn as_many_shredded_columns_as_there_can_be_are_written_and_read() {
    let entity: Vec<String> = (0..200).map(|number| format!(r#""p{number}":"x{number}""#)).collect();
    let entities = vec![format!("{{{}}}", entity.join(",")); 50];
    let always: Vec<String> = (200 - INDEX_PATHS..200).map(|number| format!("p{number}")).collect();
    let options =
        WriteOptions { index: IndexSettings::try_new(&always, &[]).expect("an index"), ..WriteOptions::default() };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), ShreddingBounds::default().shredded_columns + INDEX_PATHS);
    let profile = files.profile(&entities, &options);
    assert_eq!(profile.paths.iter().filter(|record| record.shredded).count(), 128);
    assert_eq!(profile.index.unmet, []);
}

#[test]
fn a_path_that_is_not_followed_is_not_shredded_and_the_profile_says_so() {
    let mut entities: Vec<String> = (0..10_100).map(|number| format!(r#"{{"p{number}":1}}"#)).collect();
    entities.push(r#"{"late":1}"#.to_owned());
    let options =
        WriteOptions { index: index(&["late", "p7"], &[]), shredding: nothing_shredded(), ..WriteOptions::default() };
    let files = Files::new();
    let reader = files.open(&files.write(&entities, &options));
    assert_eq!(reader.layout().shredded_columns.len(), 1);
    let unmet = files.profile(&entities, &options).index.unmet;
    assert_eq!(
        unmet.iter().map(|unmet| (unmet.path.as_str(), unmet.why)).collect::<Vec<_>>(),
        [("late", NotShredded::NotFollowed)]
    );
}
