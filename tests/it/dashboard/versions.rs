//! `…/versions`: the timeline, and the actions of the owner.

use serde_json::json;
use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect};

/// Creates a dataset with three versions: 2 entities, 3 entities, and the same 3 entities.
async fn three() -> (Owned, u64) {
    let owned = Owned::sqlite().await;
    let two = "[{\"n\":1},{\"n\":2}]";
    let three = "[{\"n\":1},{\"n\":2},{\"n\":3}]";
    let id = owned.dataset("Ten", json!({"listed": true}), &[two, three, three]).await;
    (owned, id)
}

/// Opens the confirmation page of an action and submits its form.
async fn perform_action(owner: &Browser<'_>, id: u64, action: &str, version: &str) -> Page {
    let uri = format!("/ui/{id}/ten/manage/{action}");
    let confirm = owner.page(&format!("{uri}{version}")).await;
    let done = owner.submit(&confirm, &uri).await;
    assert_redirect(&done, &format!("/ui/{id}/ten/versions?done={action}"));
    owner.page(&format!("/ui/{id}/ten/versions?done={action}")).await
}

#[tokio::test]
async fn timeline_shows_state_of_each_version() {
    let (owned, id) = three().await;
    assert_eq!(owned.save(id, 2, "[{\"n\":9}]").await.status, 200);
    let visitor = Browser::visitor(&owned.service);
    let page = visitor.page(&format!("/ui/{id}/ten/versions")).await;
    assert_eq!(page.all_words(".timeline h3"), ["Version 3 active latest", "Version 2", "Version 1"]);
    let facts = page.all_words(".timeline .facts");
    assert!(facts[0].contains("3 entities same entities as the previous version"), "{facts:?}");
    assert!(
        facts[1].contains("+1 from the previous version") && facts[1].contains("alternate with 1 entity"),
        "{facts:?}"
    );
    assert!(facts[2].contains("2 entities") && !facts[2].contains("previous"), "{facts:?}");
    // Visitors see no actions.
    assert!(!page.links().iter().any(|link| link.contains("/manage/")));
    for link in page.links().iter().filter(|link| link.starts_with("/ui/")) {
        assert_eq!(visitor.get(link).await.status, 200, "{link}");
    }
}

#[tokio::test]
async fn pin_and_unpin_explain_their_effects() {
    let (owned, id) = three().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(&format!("/ui/{id}/ten/versions")).await;
    let pin = page.select("a[aria-label='Pin version 1']")[0].attr("href").expect("a link").to_owned();
    let confirm = owner.page(&pin).await;
    assert_eq!(confirm.words("main h2"), "Pin version 1?");
    let effects = confirm.all_words(".effects li");
    assert_eq!(effects[0], "Requests for “active” will return version 1. They currently return version 3.");
    // The active version can be pinned, too.
    let same = owner.page(&format!("/ui/{id}/ten/manage/pin?version=3")).await;
    assert_eq!(same.all_words(".effects li")[0], "Requests for “active” will continue to return version 3.");
    let page = perform_action(&owner, id, "pin", "?version=1").await;
    assert!(page.words("[role=status]").starts_with("The version was pinned."));
    assert_eq!(page.all_words(".timeline h3"), ["Version 3 latest", "Version 2", "Version 1 active pinned"]);
    assert_eq!(owned.lines(&format!("/api/{id}/ten/active/")).await.lines().count(), 2);
    // An action without an effect redirects to the versions without a confirmation.
    let versions = format!("/ui/{id}/ten/versions");
    assert_redirect(&owner.get(&format!("/ui/{id}/ten/manage/pin?version=1")).await, &versions);
    assert_redirect(&owner.get(&format!("/ui/{id}/ten/manage/unfreeze")).await, &versions);
    // Pages of other versions and the refresh page show the pinned version.
    let newest = owner.page(&format!("/ui/{id}/ten/v3/")).await;
    assert_eq!(
        (newest.words(".heading .facts"), newest.link("v1")),
        ("Version v3 Active: v1".to_owned(), format!("/ui/{id}/ten/active/"))
    );
    assert_eq!(
        owner.page(&format!("/ui/{id}/ten/v1/")).await.words(".heading .facts"),
        "Version v1, active and pinned"
    );
    let refresh = owner.page(&format!("/ui/{id}/ten/refresh")).await;
    assert!(refresh.words(".note").starts_with("Version 1 is pinned, so it stays"), "{}", refresh.words(".note"));

    let confirm = owner.page(&page.link("Unpin version…")).await;
    assert!(confirm.all_words(".effects li")[0].contains("the newest version, 3."));
    let page = perform_action(&owner, id, "unpin", "").await;
    assert_eq!(page.all_words(".timeline h3")[0], "Version 3 active latest");
    assert_redirect(&owner.get(&format!("/ui/{id}/ten/manage/unpin")).await, &versions);
    assert!(!owner.page(&format!("/ui/{id}/ten/refresh")).await.text.contains("is pinned"));
    assert_eq!(owned.lines(&format!("/api/{id}/ten/active/")).await.lines().count(), 3);
}

#[tokio::test]
async fn freeze_and_unfreeze_change_availability() {
    let (owned, id) = three().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let confirm = owner.page(&format!("/ui/{id}/ten/manage/freeze?version=2")).await;
    let effects = confirm.words(".effects");
    for part in ["410", "All refreshes will stop", "Version 2 will be pinned", "you can unfreeze the dataset"] {
        assert!(effects.contains(part), "{effects}");
    }
    let page = perform_action(&owner, id, "freeze", "?version=2").await;
    assert!(page.words(".panel.danger").starts_with("This dataset is frozen"));
    owned.service.get(&format!("/api/{id}/ten/active/")).await.is_error(410);
    let pin = owner.page(&format!("/ui/{id}/ten/manage/pin?version=1")).await;
    let effect = "Once you unfreeze the dataset, requests for “active” will return version 1.";
    assert_eq!(pin.all_words(".effects li")[0], effect);
    // Freezing the dataset at its pinned version has no effect, so the link redirects.
    for link in page.links().iter().filter(|link| link.starts_with("/ui/")) {
        let status = owner.get(link).await.status;
        let expected = if ["/active/", "/profile", "/changes"].iter().any(|end| link.ends_with(end)) {
            [200, 410]
        } else {
            [200, 200]
        };
        assert!(expected.contains(&status), "{link}: {status}");
    }
    let page = perform_action(&owner, id, "unfreeze", "").await;
    assert!(page.select(".panel.danger").is_empty());
    assert_eq!(owned.lines(&format!("/api/{id}/ten/active/")).await.lines().count(), 3);
    // Impossible actions return errors.
    let token = owner.token(&format!("/ui/{id}/ten/versions")).await;
    let refused = owner.post(&format!("/ui/{id}/ten/manage/unfreeze"), &[("token", &token)]).await;
    assert_eq!(Page::parse(&refused, 409).words("[role=alert]"), "This dataset is not frozen.");
    let refused = owner.post(&format!("/ui/{id}/ten/manage/pin"), &[("token", &token), ("version", "9")]).await;
    assert!(Page::parse(&refused, 404).words("[role=alert]").contains("versions are 1 to 3"));
}

#[tokio::test]
async fn only_owner_can_manage_versions() {
    let (owned, id) = three().await;
    add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    let token = other.token("/").await;
    for action in ["pin", "unpin", "freeze", "unfreeze"] {
        let uri = format!("/ui/{id}/ten/manage/{action}");
        Page::parse(&other.get(&format!("{uri}?version=1")).await, 404);
        Page::parse(&other.post(&uri, &[("token", &token), ("version", "1")]).await, 404);
        let visitor = Browser::visitor(&owned.service);
        Page::parse(&visitor.get(&format!("{uri}?version=1")).await, 401);
        Page::parse(&visitor.post(&uri, &[("token", &token), ("version", "1")]).await, 401);
    }
    assert_eq!(owned.lines(&format!("/api/{id}/ten/active/")).await.lines().count(), 3);
}

#[tokio::test]
async fn timeline_is_paged() {
    let owned = Owned::sqlite().await;
    let lists: Vec<String> = (0..52).map(|n| format!("[{{\"n\":{n}}}]")).collect();
    let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
    let id = owned.dataset("Ten", json!({}), &lists).await;
    let visitor = Browser::visitor(&owned.service);
    let page = visitor.page(&format!("/ui/{id}/ten/versions")).await;
    assert_eq!((page.words("main .wide h2"), page.select(".timeline > li").len()), ("52 versions".to_owned(), 50));
    assert!(page.all_words(".timeline .facts")[49].contains("±0"), "compared with a version of the next page");
    let older = visitor.page(&page.link("Older")).await;
    assert_eq!(older.all_words(".timeline h3"), ["Version 2", "Version 1"]);
    assert_eq!(older.link("Newest"), format!("/ui/{id}/ten/versions"));
}

#[tokio::test]
async fn unavailable_version_page_has_links() {
    let (owned, id) = three().await;
    let empty = owned.dataset("Empty", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for page in ["active/", "active/profile", "active/entity/0"] {
        let page = owner.error(&format!("/ui/{empty}/empty/{page}"), 404).await;
        assert!(page.words("[role=alert]").starts_with("This dataset has no versions yet"));
        assert_eq!(page.link("Upload or refresh"), format!("/ui/{empty}/empty/refresh"));
        assert_eq!(page.link("Versions"), format!("/ui/{empty}/empty/versions"));
    }
    let page = owner.page(&format!("/ui/{empty}/empty/versions")).await;
    assert_eq!(page.link("Set a source"), format!("/ui/{empty}/empty/settings"));

    perform_action(&owner, id, "freeze", "?version=2").await;
    for (page, version) in [("active/", "active"), ("v1/entity/0", "v1"), ("v1/download", "v1")] {
        let page = owner.error(&format!("/ui/{id}/ten/{page}"), 410).await;
        assert_eq!(page.link("Unfreeze dataset…"), format!("/ui/{id}/ten/manage/unfreeze"));
        assert_eq!(page.link("Profile"), format!("/ui/{id}/ten/{version}/profile"));
    }
    let page = owner.page(&format!("/ui/{id}/ten/v3/profile")).await;
    assert_eq!(page.words(".wide .facts strong"), "3 entities");
    assert!(page.words(".heading .facts").contains("v3"));
    assert!(!page.links().iter().any(|link| link.contains("?filter")), "readers get 410");
    let visitor = Browser::visitor(&owned.service);
    visitor.error(&format!("/ui/{id}/ten/v3/profile"), 410).await;
    assert!(visitor.error(&format!("/ui/{id}/ten/active/"), 410).await.select(".tabs").is_empty());
}

#[tokio::test]
async fn comparison_form_proposes_last_two_versions() {
    let (owned, id) = three().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for page in ["versions", "diff"] {
        let page = owner.page(&format!("/ui/{id}/ten/{page}")).await;
        assert_eq!((page.one("#v1").attr("value"), page.one("#v2").attr("value")), (Some("2"), Some("3")));
    }
}

#[tokio::test]
async fn compare_link_proposes_previous_version() {
    let (owned, id) = three().await;
    assert_eq!(owned.save(id, 3, "[{\"n\":9}]").await.status, 200);
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for (from, v1, v2, alt) in [
        ("v2/", "1", "2", false),
        ("v1/", "1", "2", false),
        ("active/profile", "2", "3", false),
        ("v3/alt/", "3", "3", true),
        ("refresh", "2", "3", false),
    ] {
        let link = owner.page(&format!("/ui/{id}/ten/{from}")).await.link("Compare");
        let page = owner.page(&link).await;
        let proposed = ["#v1", "#v2"].map(|field| page.one(field).attr("value").unwrap_or_default().to_owned());
        assert_eq!(proposed, [v1, v2], "{from}");
        assert_eq!(page.one("input[name=alt]").attr("checked").is_some(), alt, "{from}");
        assert!(page.select(".differences").is_empty(), "the page compares only after the form is sent");
    }
    for (version, status) in [("0", 404), ("9", 404), ("x", 400), ("-1", 400)] {
        let page = owner.error(&format!("/ui/{id}/ten/diff?of={version}"), status).await;
        assert_eq!(page.one("#v2").attr("value"), Some("3"), "{version}");
        assert!(
            page.words("#problem").contains(if status == 404 { "its versions are 1 to 3" } else { "valid: " }),
            "{version}"
        );
    }
    let visitor = Browser::visitor(&owned.service);
    assert!(visitor.page(&format!("/ui/{id}/ten/v2/")).await.select("a[href*='/diff']").is_empty());
}
