//! Dashboard pages, parsed like in a browser, and checks that every page must pass.

use std::collections::{BTreeMap, BTreeSet};

use scraper::{ElementRef, Html, Selector};

use crate::service::Answer;

/// The expected content security policy.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; \
                      frame-ancestors 'none'; base-uri 'none'";

/// Returns the path patterns of all pages, such as `/ui/{dataset_id}/{name_slug}`.
pub fn page_paths() -> impl Iterator<Item = &'static str> {
    strata_dashboard::page_paths()
}

pub struct Page {
    pub html: Html,
    pub text: String,
}

/// Returns the elements that match a selector.
pub fn select<'a>(html: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    let parsed = Selector::parse(selector).expect("failed to parse selector");
    html.select(&parsed).collect()
}

/// Checks the security headers of a dashboard response.
#[track_caller]
pub fn is_guarded(answer: &Answer) {
    assert_eq!(answer.header("content-security-policy"), Some(POLICY));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("referrer-policy"), Some("same-origin"));
}

impl Page {
    /// Parses the page of a response with this status, and checks that it is well-formed and accessible, and runs only
    /// our script.
    #[track_caller]
    pub fn parse(answer: &Answer, status: u16) -> Page {
        assert_eq!((answer.status, answer.whole), (status, true), "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
        is_guarded(answer);
        let control = answer.header("cache-control").expect("missing cache-control");
        assert!(matches!(control, "private, no-cache" | "private, no-store"), "{control}");
        let text = answer.text().to_owned();
        // Parsed as without scripts, so that the contents of `noscript` are part of the page.
        let html = Html::parse_document(&text.replace("<noscript>", "").replace("</noscript>", ""));
        assert!(html.errors.is_empty(), "{:?}: {text}", html.errors);
        if text.contains("<datalist") {
            // With scripts enabled, the contents of `noscript` are text.
            assert!(select(&Html::parse_document(&text), "datalist noscript").is_empty(), "options only: {text}");
        }
        let page = Page { html, text };
        page.runs_nothing_else();
        page.is_accessible();
        page
    }

    pub fn select(&self, selector: &str) -> Vec<ElementRef<'_>> {
        select(&self.html, selector)
    }

    /// Returns the only element that matches a selector.
    #[track_caller]
    pub fn one(&self, selector: &str) -> ElementRef<'_> {
        let found = self.select(selector);
        assert_eq!(found.len(), 1, "{selector}: {}", self.text);
        found[0]
    }

    /// Returns the text of the only element that matches a selector, on one line.
    #[track_caller]
    pub fn words(&self, selector: &str) -> String {
        words(self.one(selector))
    }

    /// Returns the texts of all elements that match a selector.
    pub fn all_words(&self, selector: &str) -> Vec<String> {
        self.select(selector).into_iter().map(words).collect()
    }

    /// Returns the targets of all links, without duplicates, in order.
    pub fn links(&self) -> Vec<String> {
        let mut seen = BTreeSet::new();
        let links = self.select("a[href]").into_iter().filter_map(|link| link.attr("href"));
        let links = links.filter(|link| !link.starts_with('#')).map(str::to_owned);
        links.filter(|link| seen.insert(link.clone())).collect()
    }

    /// Returns the target of the link with this text.
    #[track_caller]
    pub fn link(&self, text: &str) -> String {
        let found = self.select("a[href]").into_iter().find(|link| words(*link) == text);
        let found = found.unwrap_or_else(|| panic!("no link {text:?}: {}", self.text));
        found.attr("href").expect("missing target").to_owned()
    }

    fn runs_nothing_else(&self) {
        // The page has one script file and no inline script.
        let script = self.one("script");
        let source = script.attr("src").unwrap_or_default();
        assert!(source.starts_with("/ui/assets/island-") && script.inner_html().is_empty(), "{}", script.html());
        for selector in ["style", "iframe", "object", "embed", "base", "link[rel=preload]"] {
            assert!(self.select(selector).is_empty(), "{selector}");
        }
        for element in self.select("*") {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on") && name != "style", "{name}={value}");
                if matches!(name, "href" | "action" | "src") {
                    assert!(!value.contains(char::is_whitespace), "{name}={value}");
                    let ours = value.starts_with('/') && !value.starts_with("//");
                    let is_icon = value.starts_with("data:image/svg+xml,") && element.value().name() == "link";
                    let is_outside = element.value().name() == "a"
                        && (value.starts_with("https://") || value.starts_with("http://"))
                        && element.attr("rel") == Some("noopener noreferrer nofollow");
                    assert!(ours || is_icon || is_outside || value.starts_with('#'), "{name}={value}");
                }
            }
        }
    }

    fn is_accessible(&self) {
        assert_eq!(self.one("html").attr("lang"), Some("en"));
        for selector in ["head > title", "h1", "main#main", "header nav[aria-label]", "footer", "a.skip[href='#main']"]
        {
            self.one(selector);
        }
        let mut ids = BTreeMap::new();
        for element in self.select("[id]") {
            let id = element.attr("id").expect("missing ID");
            assert!(ids.insert(id.to_owned(), ()).is_none(), "two elements have the id {id}");
        }
        let labels: BTreeSet<_> = self.select("label[for]").iter().filter_map(|label| label.attr("for")).collect();
        for control in self.select("input:not([type=hidden]), select, textarea") {
            let within =
                control.ancestors().filter_map(ElementRef::wrap).any(|parent| parent.value().name() == "label");
            let labelled = control.attr("id").is_some_and(|id| labels.contains(id));
            assert!(within || labelled, "no label: {}", control.html());
        }
        for name in ["aria-labelledby", "aria-describedby", "list"] {
            for element in self.select(&format!("[{name}]")) {
                for id in element.attr(name).expect("missing names").split_whitespace() {
                    assert!(ids.contains_key(id), "{name}={id} refers to no element");
                }
            }
        }
        for button in self.select("button, a[href]") {
            let named = !words(button).is_empty() || button.attr("aria-label").is_some();
            assert!(named, "no name: {}", button.html());
        }
        for head in self.select("th") {
            assert!(head.attr("scope").is_some(), "{}", head.html());
        }
    }
}

/// Returns the text of an element on one line.
pub fn words(element: ElementRef<'_>) -> String {
    element.text().flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}
