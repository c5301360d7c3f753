//! Every page of the demo is well-formed, and none of its links is broken.

use std::collections::{BTreeSet, VecDeque};

use strata_testing::html::Page;
use strata_testing::{DEMO_OWNER, TestService};

use super::Browser;

/// The number of pages whose links are followed.
const MAX_CRAWLED_PAGES: usize = 40;

/// The number of links of a page that are followed, evenly spread over the page.
const MAX_LINKS_PER_PAGE: usize = 12;

/// Follows links from the dataset list. Every response must be 200, possibly after a redirect to the active version.
/// Returns the number of pages.
async fn crawl(browser: &Browser<'_>) -> usize {
    let mut waiting = VecDeque::from(["/".to_owned()]);
    let mut seen = BTreeSet::new();
    let mut pages = 0;
    while let Some(uri) = waiting.pop_front() {
        if !seen.insert(uri.clone()) {
            continue;
        }
        let answer = browser.get(&uri).await;
        assert_eq!(answer.status, 200, "{uri}: {}", String::from_utf8_lossy(&answer.body));
        if !answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            continue;
        }
        let page = Page::parse(&answer, 200);
        pages += 1;
        if pages > MAX_CRAWLED_PAGES {
            continue;
        }
        let links: Vec<String> = page.links().into_iter().filter(|link| link.starts_with('/')).collect();
        let step = links.len().div_ceil(MAX_LINKS_PER_PAGE).max(1);
        // The dataset list links to all datasets of the demo.
        let step = if uri == "/" { 1 } else { step };
        waiting.extend(links.into_iter().step_by(step).filter(|link| !seen.contains(link)));
    }
    pages
}

#[tokio::test]
async fn every_link_works_for_visitor() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let pages = crawl(&Browser::visitor(&service)).await;
    assert!(pages > MAX_CRAWLED_PAGES, "{pages}");
}

#[tokio::test]
async fn every_link_works_for_owner() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let credentials = service.services.demo.reset_credentials().await.expect("credentials");
    let owner = Browser::sign_in(&service, DEMO_OWNER, credentials.password.expose()).await;
    let pages = crawl(&owner).await;
    assert!(pages > MAX_CRAWLED_PAGES, "{pages}");
}
