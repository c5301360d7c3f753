//! The pages of the API reference are those that the document makes.

use std::path::Path;

use strata_http::openapi::reference::{markdown_index, resources};
use strata_testing::pages::{between, page};

#[test]
fn pages_match_the_document() {
    let rendered = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    std::fs::create_dir_all(&rendered).expect("a directory");
    let mut outdated = Vec::new();
    for resource in resources() {
        let path = format!("docs/reference/api/{}.md", resource.name);
        let expected = resource.markdown();
        std::fs::write(rendered.join(format!("{}.md", resource.name)), &expected).expect("written");
        if page(&path) != expected {
            outdated.push(path);
        }
    }
    assert!(outdated.is_empty(), "{outdated:?} should be as in {}", rendered.display());
    let expected = markdown_index();
    let index = between("docs/reference/api/index.md", "<!-- operations:begin -->\n", "<!-- operations:end -->");
    assert!(index == expected.trim(), "the table of operations should be:\n\n{expected}");
}
