//! The API reference as Markdown: `docs/reference/api/` must match the OpenAPI document.

use std::path::Path;

use askama::Template;
use strata_http::openapi::reference::{InlineText, ReferenceLink, ReferencePage, RichText, reference_pages};
use strata_testing::pages::{between, page};

trait Markdown {
    fn markdown(&self) -> String;
}

impl Markdown for ReferenceLink {
    fn markdown(&self) -> String {
        let page = self.page.as_ref().map(|page| format!("{page}.md")).unwrap_or_default();
        format!("[`{}`]({page}#{})", self.text, self.anchor)
    }
}

impl Markdown for RichText {
    fn markdown(&self) -> String {
        let part = |part: &InlineText| match part {
            // A vertical bar would end a cell.
            InlineText::Text(part) => part.replace('|', "\\|"),
            InlineText::Code(part) => format!("`{}`", part.replace('|', "\\|")),
            InlineText::Link(link) => link.markdown(),
        };
        self.0.iter().map(part).collect()
    }
}

#[derive(Template)]
#[template(path = "api_resource.md", whitespace = "preserve")]
struct ApiPageTemplate<'a> {
    resource: &'a ReferencePage,
}

/// The operations of all pages as rows of a table.
fn index() -> String {
    let mut rows = "| Operation | What it does |\n|---|---|\n".to_owned();
    for resource in reference_pages() {
        for operation in &resource.operations {
            let link = ReferenceLink {
                text: operation.title.clone(),
                page: Some(resource.name.clone()),
                anchor: operation.anchor(),
            };
            rows += &format!("| {} | {} |\n", link.markdown(), operation.summary.markdown());
        }
    }
    rows
}

#[test]
fn api_reference_pages_match_document() {
    let rendered = Path::new(env!("CARGO_TARGET_TMPDIR")).join("api");
    std::fs::create_dir_all(&rendered).expect("failed to create directory");
    let mut outdated = Vec::new();
    for resource in reference_pages() {
        let path = format!("docs/reference/api/{}.md", resource.name);
        let expected = ApiPageTemplate { resource }.render().expect("missing page") + "\n";
        std::fs::write(rendered.join(format!("{}.md", resource.name)), &expected).expect("failed to write");
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
fn rich_text_alternates_text_and_code() {
    assert_eq!(RichText::new("`a` or `b|c`").markdown(), "`a` or `b\\|c`");
    assert_eq!(RichText::new("plain | text").markdown(), "plain \\| text");
}

#[test]
fn operations_have_examples() {
    for operation in reference_pages().iter().flat_map(|resource| &resource.operations) {
        assert!(operation.request.is_some(), "{}: no request", operation.title);
        let is_webhook = operation.statuses.is_empty();
        assert_eq!(operation.response.is_some(), !is_webhook, "{}: response", operation.title);
        assert!(!operation.summary.is_empty() && !operation.description.is_empty(), "{}", operation.title);
    }
}
