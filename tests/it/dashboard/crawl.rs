//! Every page of the demo is well-formed, and every link of it leads somewhere.

use std::collections::{BTreeSet, VecDeque};

use strata_testing::html::Page;
use strata_testing::{DEMO_OWNER, TestService};

use super::Browser;

/// Pages whose links are followed.
const PAGES: usize = 40;

/// Links of a page that are followed, spread over it.
const LINKS: usize = 12;

/// Follows the links from the first page on. No link of it answers anything but 200 and, for a page without a version,
/// the way to the active one.
async fn crawl(browser: &Browser<'_>) -> usize {
    let (mut waiting, mut seen) = (VecDeque::from(["/".to_owned()]), BTreeSet::new());
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
        let page = Page::of(&answer, 200);
        pages += 1;
        if pages > PAGES {
            continue;
        }
        let links: Vec<String> = page.links().into_iter().filter(|link| link.starts_with('/')).collect();
        let step = links.len().div_ceil(LINKS).max(1);
        // The first page leads to all of the demo.
        let step = if uri == "/" { 1 } else { step };
        waiting.extend(links.into_iter().step_by(step).filter(|link| !seen.contains(link)));
    }
    pages
}

#[tokio::test]
async fn every_link_answers_a_visitor() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let pages = crawl(&Browser::visitor(&service)).await;
    assert!(pages > PAGES, "{pages}");
}

#[tokio::test]
async fn every_link_answers_the_owner() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let credentials = service.services.demo.credentials().await.expect("credentials");
    let owner = Browser::of(&service, DEMO_OWNER, credentials.password.expose()).await;
    let pages = crawl(&owner).await;
    assert!(pages > PAGES, "{pages}");
}
