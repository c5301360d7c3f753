//! `/`: the listed datasets, the search, and paging.

use strata_testing::html::{Page, words};
use strata_testing::owned::{add_user, call, parsed};
use strata_testing::{DEMO_OWNER, OWNER, TestService};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect};

fn names(page: &Page) -> Vec<String> {
    page.all_words(".card h3 a")
}

#[tokio::test]
async fn demo_is_listed_with_examples() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let page = Browser::visitor(&service).page("/").await;
    let listed = ["World Countries", "Emoji", "Earthquakes", "Football Matches", "US Airports", "US Unemployment"];
    assert_eq!(names(&page), listed);
    let card = words(page.select(".card").into_iter().next().expect("a card"));
    for part in ["250 entities", "version 1", "MB", "just now", "ODbL-1.0", "250 countries and territories"] {
        assert!(card.contains(part) || (part == "MB" && card.contains("kB")), "{part}: {card}");
    }
    assert_eq!(page.link("World Countries"), "/ui/1/world-countries/active/");
    let example = page.link("Countries where German is spoken");
    assert_eq!(example, "/ui/1/world-countries/active/?filter=languages.deu:german");
    assert_eq!(
        page.link("How many countries border France"),
        "/ui/1/world-countries/active/?filter=borders:FRA&count=true"
    );

    let owner = service.services.demo.reset_credentials().await.expect("credentials");
    let owner = Browser::sign_in(&service, DEMO_OWNER, owner.password.expose()).await;
    let page = owner.page("/").await;
    let own = [&listed[..], &["Palmer Penguins"]].concat();
    assert_eq!(names(&page), own, "the owner's datasets are not listed twice");
    assert!(page.all_words(".card h3").last().expect("a card").ends_with("private"));
}

#[tokio::test]
async fn same_name_of_other_owner_has_no_examples() {
    let owned = strata_testing::owned::Owned::sqlite().await;
    owned.dataset("Emoji", serde_json::json!({"listed": true}), &["[{\"label\":\"x\"}]"]).await;
    let page = Browser::visitor(&owned.service).page("/").await;
    assert_eq!(names(&page), ["Emoji"]);
    assert!(page.select(".examples").is_empty());
}

#[tokio::test]
async fn dataset_list_is_searched() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let visitor = Browser::visitor(&service);
    for (query, found) in [
        ("q=COUNT", &["World Countries", "US Unemployment"][..]),
        ("q=football", &["Football Matches"]),
        ("q=+", &["World Countries", "Emoji", "Earthquakes", "Football Matches", "US Airports", "US Unemployment"]),
        ("q=penguins", &[]),
        ("q=%3Cscript%3E", &[]),
    ] {
        assert_eq!(names(&visitor.page(&format!("/?{query}")).await), found, "{query}");
    }
    let page = visitor.error(&format!("/?q={}", "x".repeat(201)), 400).await;
    assert!(page.words("#problem").contains("longer than 200 characters"), "{}", page.words("#problem"));
    assert_eq!(page.one("#q").attr("aria-describedby"), Some("problem"));
}

#[tokio::test]
async fn dataset_list_is_paged() {
    let owned = strata_testing::owned::Owned::start(|config| config.plans.pro_active_datasets = 100).await;
    for number in 0..53 {
        owned.dataset(&format!("Set {number}"), serde_json::json!({"listed": true}), &["[{}]"]).await;
    }
    let visitor = Browser::visitor(&owned.service);
    let first = visitor.page("/?q=set").await;
    assert_eq!(names(&first).len(), 50);
    let last = visitor.page(&first.link("Next page")).await;
    assert_eq!(names(&last), ["Set 50", "Set 51", "Set 52"]);
    assert!(last.select("a[rel=next]").is_empty());
    assert_eq!(last.link("First page"), "/?q=set");
    // An owner sees pages of own datasets, followed by datasets of other users.
    let (_, token) = add_user(&owned.service, "eve@strata.test", UserPlan::Pro).await;
    let post = async |path, body| parsed(&call(&owned.service, &token, "POST", path, body).await);
    post("/dataset/create", r#"{"name":"Other","listed":true}"#).await;
    post("/dataset/refresh", r#"{"dataset_id":54,"entities":[{}]}"#).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page("/").await;
    assert_eq!(page.all_words("section[aria-labelledby=own] .card h3 a").len(), 50);
    assert_eq!(page.all_words("section[aria-labelledby=listed] .card h3 a"), ["Other"]);
    assert!(page.words("nav.pages").contains("53 in total"), "{}", page.words("nav.pages"));
    let next = owner.page(&page.link("Next page of your datasets")).await;
    assert_eq!(next.all_words("section[aria-labelledby=own] .card h3 a"), ["Set 50", "Set 51", "Set 52"]);
    assert_eq!(next.link("Previous page of your datasets"), "/");
    let found = owner.page("/?q=set&own=50").await;
    assert_eq!((names(&found).len(), found.link("Previous page of your datasets")), (3, "/?q=set".to_owned()));
    assert!(owner.page("/?own=99").await.select("section[aria-labelledby=own] .card").is_empty());
    owner.error("/?own=x", 400).await;
}

#[tokio::test]
async fn own_datasets_come_first() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    service.import("Mine", "{\"n\":1}").await;
    service.import("Mine", "{\"n\":2}").await;
    service.try_import("Secret", true, b"{\"n\":1}").await.expect("imported");
    service.import("Cold", "{\"n\":1}").await;
    let owner = Browser::user(&service, OWNER).await;
    for (id, name, action) in [(8, "mine", "pin"), (10, "cold", "freeze")] {
        let confirm = owner.page(&format!("/ui/{id}/{name}/manage/{action}?version=1")).await;
        let done = owner.submit(&confirm, &format!("/ui/{id}/{name}/manage/{action}")).await;
        assert_redirect(&done, &format!("/ui/{id}/{name}/versions?done={action}"));
    }
    let page = owner.page("/").await;
    let heads = page.all_words("section[aria-labelledby=own] .card h3");
    assert_eq!(heads, ["Mine not listed pinned", "Secret private", "Cold not listed frozen pinned"]);
    assert_eq!(page.all_words("section[aria-labelledby=listed] .card h3").len(), 6);
    // Frozen datasets cannot be read.
    assert_eq!(page.link("Cold"), "/ui/10/cold/versions");
    owner.error("/ui/10/cold/active/", 410).await;
    owner.page("/ui/10/cold/versions").await;
    let visitor = Browser::visitor(&service);
    for page in ["active/", "v1/profile", "versions"] {
        let gone = visitor.error(&format!("/ui/10/cold/{page}"), 410).await;
        assert_eq!(gone.words("h1"), "This dataset is frozen");
    }
    assert_eq!(names(&owner.page("/?q=sec").await), ["Secret"]);
}
