//! `…/usage`: the requests for a dataset by day.

use serde_json::json;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

use super::Browser;

const USAGE: &str = "/ui/1/ten/usage";

#[tokio::test]
async fn usage_is_shown_by_day() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]", "[{\"n\":2}]", "[{\"n\":2}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(USAGE).await;
    assert!(page.words("section[aria-labelledby=reads]").contains("There were no requests during this period."));
    assert!(page.select(".chart rect").len() <= 3, "the legend only");
    let read = owned.service.get("/api/1/ten/v1/").await;
    let etag = read.header("etag").expect("an etag").to_owned();
    assert_eq!(owned.service.get_with("/api/1/ten/v1/", &[("if-none-match", &etag)]).await.status, 304);
    let page = owner.page(USAGE).await;
    let row = page.words("tbody tr");
    assert!(row.contains(" 2 1 0 "), "{row}");
    assert!(page.words("tfoot tr").starts_with("Total 2 1 0 "));
    let charts = page.select(".chart > svg");
    let titles: Vec<String> =
        charts.iter().flat_map(|chart| chart.text().collect::<Vec<_>>()).map(|text| text.trim().to_owned()).collect();
    let titles: Vec<&String> = titles.iter().filter(|text| !text.is_empty()).collect();
    assert!(titles.len() == 2 && titles[0].ends_with(": 2 requests") && titles[1].ends_with(" bytes"), "{titles:?}");
    assert_eq!(page.select(".chart > svg .fill-good").len(), 1, "the response that was not modified");
    let stored = page.words("section[aria-labelledby=stored]");
    assert!(stored.contains("3 versions"), "{stored}");
    assert_eq!(page.words("a[aria-current=true]"), "30 days");
    assert!(owner.page(&page.link("400 days")).await.words("h2#reads").contains("400 days"));
    let wrong = owner.error(&format!("{USAGE}?days=%3Cb%3E"), 400).await;
    assert!(wrong.words("[role=alert]").contains("\"<b>\" is not valid; valid: 7, 30, 90, 400"));
}

#[tokio::test]
async fn only_owner_sees_usage() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({}), &["[{}]"]).await;
    add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
    Browser::visitor(&owned.service).error(USAGE, 401).await;
    Browser::user(&owned.service, "other@strata.test").await.error(USAGE, 404).await;
    let page = Browser::visitor(&owned.service).page("/ui/1/ten/versions").await;
    assert!(!page.links().iter().any(|link| link.ends_with("/usage") || link.ends_with("/refresh")));
}
