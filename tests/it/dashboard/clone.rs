//! `…/clone`: a dataset that begins with the newest version of another.

use serde_json::json;
use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::Plan;

use super::{Browser, leads_to, takes_only_the_whole_form};

#[tokio::test]
async fn a_user_clones_what_everybody_reads_and_an_owner_all_of_theirs() {
    let owned = Owned::sqlite().await;
    let about = json!({"description": "Ten <b>numbers</b>", "licence": "CC0", "listed": true});
    let id = owned.dataset("Ten", about, &["[{\"n\":1}]", "[{\"n\":1},{\"n\":2}]"]).await;
    add_user(&owned.service, "other@strata.test", Plan::Free).await;
    let visitor = Browser::visitor(&owned.service);
    assert!(visitor.page(&format!("/ui/{id}/ten/versions")).await.select("a[href$='/clone']").is_empty());

    let other = Browser::user(&owned.service, "other@strata.test").await;
    let asked = other.page(&other.page(&format!("/ui/{id}/ten/versions")).await.link("Clone dataset…")).await;
    assert_eq!(asked.one("#name").attr("value"), Some("Clone of Ten"));
    assert_eq!(asked.link("Cancel"), format!("/ui/{id}/ten/versions"));
    let effects = asked.words(".effects");
    assert!(
        effects.contains("copy of this dataset’s version 2") && effects.contains("not appear in the dataset list"),
        "{effects}"
    );
    let uri = format!("/ui/{id}/ten/clone");
    leads_to(&other.submit(&asked, &uri).await, "/ui/2/clone-of-ten/active/");
    let page = other.page("/ui/2/clone-of-ten/active/").await;
    assert!(page.words("h2#result").ends_with("of 2 entities"), "{}", page.words("h2#result"));
    assert_eq!(page.words(".heading .about"), "Ten <b>numbers</b>");
    // What is wrong is said beside the name, which stays.
    let again = Page::of(&other.submit(&asked, &uri).await, 409);
    assert!(again.words("[role=alert]").contains("name"), "{}", again.words("[role=alert]"));
    assert_eq!(again.one("#name").attr("value"), Some("Clone of Ten"));
    let token = other.token(&uri).await;
    takes_only_the_whole_form(&other, &uri, &[("name", "Another")], &token).await;
    let unnamed = Page::of(&other.post(&uri, &[("token", &token), ("name", "<->")]).await, 400);
    assert!(!unnamed.words("#name-problem").is_empty());
    assert_eq!(unnamed.one("#name").attr("value"), Some("<->"));

    // One's own private dataset has a private clone; to others it is not there.
    let secret = owned.dataset("Secret", json!({"private": true}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let link = owner.page(&format!("/ui/{secret}/secret/settings")).await.link("Clone dataset…");
    let asked = owner.page(&link).await;
    assert!(asked.words(".effects").contains("The clone is private and has its own key."));
    leads_to(&owner.submit(&asked, &link).await, "/ui/4/clone-of-secret/active/");
    assert!(owner.page("/ui/4/clone-of-secret/active/").await.words("h1").ends_with("private"));
    Page::of(&other.get(&link).await, 404);
    Page::of(&other.post(&link, &[("token", &token), ("name", "Mine")]).await, 404);
    visitor.error(&uri, 401).await;
    Page::of(&visitor.post(&uri, &[("name", "Mine")]).await, 401);
    Page::of(&other.post(&uri, &[("name", "Mine"), ("token", "00")]).await, 403);
}

#[tokio::test]
async fn what_cannot_be_cloned_is_told_and_offered_nowhere() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let froze = json!({"dataset_id": id, "version_number": 1, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &froze).await.status, 200);
    add_user(&owned.service, "other@strata.test", Plan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    for (id, slug, told, ways) in [
        (id, "ten", "is frozen", &["Unfreeze dataset…", "View versions"][..]),
        (empty, "empty", "has no versions yet", &["Upload or refresh", "Set a source"]),
    ] {
        let uri = format!("/ui/{id}/{slug}/clone");
        let token = owner.token("/ui/account").await;
        let sent = owner.post(&uri, &[("name", "Mine"), ("token", &token)]).await;
        // It was an error that led nowhere.
        for page in [owner.error(&uri, 409).await, Page::of(&sent, 409)] {
            let words = page.words("main [role=alert]");
            assert!(words.contains(told) && words.contains("clone the dataset"), "{words}");
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
