//! The documentation as a website.

use std::process::Stdio;

use strata_testing::pages::ROOT;
use strata_testing::scripts::tool;

/// In strict mode, broken links and pages without a navigation entry are errors.
#[test]
fn site_builds_without_warnings() {
    let site = tempfile::tempdir().expect("a directory");
    let build = tool("mkdocs")
        .args(["build", "--strict", "--site-dir"])
        .arg(site.path())
        .current_dir(ROOT)
        .stdin(Stdio::null())
        .output();
    let build = build.expect("mkdocs runs");
    assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
    let found = std::fs::read_to_string(site.path().join("search/search_index.json")).expect("a search index");
    assert!(found.contains("keep_field"), "the search index contains the pages");
}
