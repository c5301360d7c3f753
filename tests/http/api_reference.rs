//! The API reference as Markdown: the pages of `docs/reference/api/` are those that the document makes.

use std::path::Path;

use askama::Template;
use strata_http::openapi::reference::{Inline, Link, Prose, Resource, resources};
use strata_testing::pages::{between, page};

trait Markdown {
    fn markdown(&self) -> String;
}

impl Markdown for Link {
    fn markdown(&self) -> String {
        let page = self.page.as_ref().map(|page| format!("{page}.md")).unwrap_or_default();
        format!("[`{}`]({page}#{})", self.text, self.anchor)
    }
}

impl Markdown for Prose {
    fn markdown(&self) -> String {
        let part = |part: &Inline| match part {
            // A vertical bar would end a cell.
            Inline::Text(part) => part.replace('|', "\\|"),
            Inline::Code(part) => format!("`{}`", part.replace('|', "\\|")),
            Inline::Link(link) => link.markdown(),
        };
        self.0.iter().map(part).collect()
    }
}

#[derive(Template)]
#[template(path = "api_resource.md", whitespace = "preserve")]
struct Page<'a> {
    resource: &'a Resource,
}

/// The operations of all pages as rows of a table.
fn index() -> String {
    let mut rows = "| Operation | What it does |\n|---|---|\n".to_owned();
    for resource in resources() {
        for operation in &resource.operations {
            let link =
                Link { text: operation.title.clone(), page: Some(resource.name.clone()), anchor: operation.anchor() };
            rows += &format!("| {} | {} |\n", link.markdown(), operation.summary.markdown());
        }
    }
    rows
}

#[test]
fn pages_match_the_document() {
    let rendered = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    std::fs::create_dir_all(&rendered).expect("a directory");
    let mut outdated = Vec::new();
    for resource in resources() {
        let path = format!("docs/reference/api/{}.md", resource.name);
        let expected = Page { resource }.render().expect("a page") + "\n";
        std::fs::write(rendered.join(format!("{}.md", resource.name)), &expected).expect("written");
        if page(&path) != expected {
            outdated.push(path);
        }
    }
    assert!(outdated.is_empty(), "{outdated:?} should be as in {}", rendered.display());
    let expected = index();
    let found = between("docs/reference/api/index.md", "<!-- operations:begin -->\n", "<!-- operations:end -->");
    assert!(found == expected.trim(), "the table of operations should be:\n\n{expected}");
}

#[test]
fn prose_alternates_text_and_code() {
    assert_eq!(Prose::new("`a` or `b|c`").markdown(), "`a` or `b\\|c`");
    assert_eq!(Prose::new("plain | text").markdown(), "plain \\| text");
}

#[test]
fn every_operation_has_an_example() {
    for operation in resources().iter().flat_map(|resource| &resource.operations) {
        assert!(operation.request.is_some(), "{}: no request", operation.title);
        let is_webhook = operation.statuses.is_empty();
        assert_eq!(operation.response.is_some(), !is_webhook, "{}: response", operation.title);
        assert!(!operation.summary.is_empty() && !operation.description.is_empty(), "{}", operation.title);
    }
}
