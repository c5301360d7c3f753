//! `/ui/new`: creates a dataset.

use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect, assert_requires_exact_form, with_defaults};

const NEW: &str = "/ui/new";

#[tokio::test]
async fn dataset_is_created_or_form_shows_problem() {
    let owned = Owned::start(|config| config.plans.free_active_datasets = 1).await;
    add_user(&owned.service, "free@strata.test", UserPlan::Free).await;
    let owner = Browser::user(&owned.service, "free@strata.test").await;
    let token = owner.token(&owner.page("/").await.link("New dataset")).await;
    let others = [("description", ""), ("licence", ""), ("from", "push"), ("source", ""), ("token", token.as_str())];
    let sent = async |fields: &[(&str, &str)]| owner.post(NEW, &with_defaults(fields, &others)).await;
    let whole = with_defaults(&[("name", "Ten")], &others[..4]);
    assert_requires_exact_form(&owner, NEW, &whole, &token).await;
    Page::parse(&sent(&[("name", "Ten"), ("from", "elsewhere")]).await, 400);
    for (fields, field) in [
        (&[("name", "<->"), ("from", "url"), ("source", "<script>\"")][..], "name"),
        (&[("name", "Ten <b>"), ("from", "url"), ("source", "<script>\"")], "source"),
    ] {
        let page = Page::parse(&sent(fields).await, 400);
        assert!(!page.words(&format!("#{field}-problem")).is_empty());
        assert_eq!(page.one("#name").attr("value"), Some(fields[0].1), "the typed text is preserved");
        assert_eq!(page.one("#source").attr("value"), Some("<script>\""));
        assert_eq!(page.one("input[name=from][checked]").attr("value"), Some("url"));
    }
    let url = [("name", "Ten"), ("from", "push"), ("source", "https://strata.test/a.json")];
    let page = Page::parse(&sent(&url).await, 400);
    assert!(page.words("#source-problem").contains("Fetch from this URL"), "the URL is not dropped");
    assert_eq!(page.one("#source").attr("value"), Some("https://strata.test/a.json"));
    let long = "x".repeat(1_001);
    let page = Page::parse(&sent(&[("name", "Ten"), ("licence", &long), ("listed", "true")]).await, 400);
    assert!(page.words("#licence-problem").contains("1000"), "{}", page.words("#licence-problem"));
    assert_eq!(page.one("#licence").attr("value"), Some(&*long));
    assert_eq!(page.all_words("input[name=listed][checked]").len(), 1);
    let about = [("description", " Numbers <i> "), ("licence", "CC0"), ("listed", "true")];
    let fields = [&[("name", "Ten <b>"), ("from", "push"), ("private", "true")][..], &about].concat();
    assert_redirect(&sent(&fields).await, "/ui/1/ten-b/refresh");
    let page = owner.page("/ui/1/ten-b/refresh").await;
    assert!(page.words("h1").starts_with("Ten <b> private"), "{}", page.words("h1"));
    assert_eq!(page.words(".heading .about"), "Numbers <i>");
    assert!(page.words(".heading .facts").contains("CC0"));
    let page = owner.page("/ui/1/ten-b/settings").await;
    assert!(page.one("input[name=listed]").attr("checked").is_some());
    let page = Page::parse(&sent(&[("name", "Eleven")]).await, 403);
    assert!(page.words("[role=alert]").contains('1'), "{}", page.words("[role=alert]"));

    let visitor = Browser::visitor(&owned.service);
    visitor.error(NEW, 401).await;
    Page::parse(&visitor.post(NEW, &[("name", "x")]).await, 401);
    Page::parse(&owner.post(NEW, &[("name", "x"), ("token", "00")]).await, 403);
}
