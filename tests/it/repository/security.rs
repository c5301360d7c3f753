//! The promises in `docs/internals/security-tests.md`: the tests that each promise names must exist.

use std::fs;
use std::path::Path;

use strata_testing::pages::ROOT;
use strata_testing::tests::tests;

#[test]
fn every_promise_names_a_test_that_exists() {
    let tests = tests();
    let page = fs::read_to_string(Path::new(ROOT).join("docs/internals/security-tests.md")).expect("the page");
    let mut promises = 0;
    for row in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Promise")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, whom, named] = cells[..] else { panic!("a promise has three cells: {row}") };
        assert!(
            ["client", "owner", "operator", "everybody"].contains(&whom),
            "{promise}: unknown beneficiary {whom:?}"
        );
        let names: Vec<_> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{promise}: no test in the row");
        for name in names {
            assert!(tests.contains(name), "{promise}: there is no test {name} below tests/it");
        }
        promises += 1;
    }
    assert!(promises >= 40, "found only {promises} promises: has the format of the page changed?");
}
