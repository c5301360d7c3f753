//! `…/clone`: creates a dataset from the newest version of another dataset.

use serde_json::json;
use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect, assert_requires_exact_form};

#[tokio::test]
async fn public_and_own_datasets_can_be_cloned() {
    let owned = Owned::sqlite().await;
    let about = json!({"description": "Ten <b>numbers</b>", "licence": "CC0", "listed": true});
    let id = owned.dataset("Ten", about, &["[{\"n\":1}]", "[{\"n\":1},{\"n\":2}]"]).await;
    add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
    let visitor = Browser::visitor(&owned.service);
    assert!(visitor.page(&format!("/ui/{id}/ten/versions")).await.select("a[href$='/clone']").is_empty());

    let other = Browser::user(&owned.service, "other@strata.test").await;
    let confirmation = other.page(&other.page(&format!("/ui/{id}/ten/versions")).await.link("Clone dataset…")).await;
    assert_eq!(confirmation.one("#name").attr("value"), Some("Clone of Ten"));
    assert_eq!(confirmation.link("Cancel"), format!("/ui/{id}/ten/versions"));
    let effects = confirmation.words(".effects");
    assert!(
        effects.contains("copy of this dataset’s version 2") && effects.contains("not appear in the dataset list"),
        "{effects}"
    );
    let uri = format!("/ui/{id}/ten/clone");
    assert_redirect(&other.submit(&confirmation, &uri).await, "/ui/2/clone-of-ten/active/");
    let page = other.page("/ui/2/clone-of-ten/active/").await;
    assert!(page.words("h2#result").ends_with("of 2 entities"), "{}", page.words("h2#result"));
    assert_eq!(page.words(".heading .about"), "Ten <b>numbers</b>");
    // A problem is shown next to the name, and the name is preserved.
    let again = Page::parse(&other.submit(&confirmation, &uri).await, 409);
    assert!(again.words("[role=alert]").contains("name"), "{}", again.words("[role=alert]"));
    assert_eq!(again.one("#name").attr("value"), Some("Clone of Ten"));
    let token = other.token(&uri).await;
    assert_requires_exact_form(&other, &uri, &[("name", "Another")], &token).await;
    let unnamed = Page::parse(&other.post(&uri, &[("token", &token), ("name", "<->")]).await, 400);
    assert!(!unnamed.words("#name-problem").is_empty());
    assert_eq!(unnamed.one("#name").attr("value"), Some("<->"));

    // The clone of a private dataset is private; other users cannot see either.
    let secret = owned.dataset("Secret", json!({"private": true}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let link = owner.page(&format!("/ui/{secret}/secret/settings")).await.link("Clone dataset…");
    let confirmation = owner.page(&link).await;
    assert!(confirmation.words(".effects").contains("The clone is private and has its own key."));
    assert_redirect(&owner.submit(&confirmation, &link).await, "/ui/4/clone-of-secret/active/");
    assert!(owner.page("/ui/4/clone-of-secret/active/").await.words("h1").ends_with("private"));
    Page::parse(&other.get(&link).await, 404);
    Page::parse(&other.post(&link, &[("token", &token), ("name", "Mine")]).await, 404);
    visitor.error(&uri, 401).await;
    Page::parse(&visitor.post(&uri, &[("name", "Mine")]).await, 401);
    Page::parse(&other.post(&uri, &[("name", "Mine"), ("token", "00")]).await, 403);
}

#[tokio::test]
async fn uncloneable_dataset_is_explained() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let freeze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    for (id, slug, message, ways) in [
        (id, "ten", "is frozen", &["Unfreeze dataset…", "View versions"][..]),
        (empty, "empty", "has no versions yet", &["Upload or refresh", "Set a source"]),
    ] {
        let uri = format!("/ui/{id}/{slug}/clone");
        let token = owner.token("/ui/account").await;
        let sent = owner.post(&uri, &[("name", "Mine"), ("token", &token)]).await;
        // Regression: the error page had no links.
        for page in [owner.error(&uri, 409).await, Page::parse(&sent, 409)] {
            let words = page.words("main [role=alert]");
            assert!(words.contains(message) && words.contains("clone the dataset"), "{words}");
            for way in ways {
                assert_eq!(owner.get(&page.link(way)).await.status, 200, "{way}");
            }
        }
        for page in ["versions", "settings"] {
            let page = owner.page(&format!("/ui/{id}/{slug}/{page}")).await;
            assert!(page.select("a[href$='/clone']").is_empty());
        }
    }
    assert_eq!(other.error(&format!("/ui/{id}/ten/clone"), 410).await.words("h1"), "This dataset is frozen");
    owner.error(&format!("/ui/{id}/eleven/clone"), 404).await;
    owner.error("/ui/99/ten/clone", 404).await;
}
