//! `…/settings`: what an owner says of a dataset, and its secrets.

use serde_json::json;
use strata::config::Networks;

use super::{Browser, leads_to};
use crate::support::html::Page;
use crate::support::loopback_server::{LoopbackServer, ok};
use crate::support::owned::Owned;

const SETTINGS: &str = "/ui/1/ten/settings";

async fn private() -> Owned {
    let owned = Owned::sqlite().await;
    assert_eq!(owned.dataset("Ten", json!({"private": true, "description": "d"}), &["[{\"n\":1}]"]).await, 1);
    owned
}

#[tokio::test]
async fn a_secret_is_shown_when_it_is_asked_for_and_nowhere_else() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(SETTINGS).await;
    for page in [&page, &owner.page("/ui/1/ten/active/").await, &owner.page("/").await] {
        assert!(!page.text.contains("sk_") && !page.text.contains("ping_"));
    }
    let shown = owner.submit(&page, "/ui/1/ten/settings/show-key").await;
    assert_eq!(shown.header("cache-control"), Some("private, no-store"));
    let key = Page::of(&shown, 200).words("section[aria-labelledby=key] pre code");
    let read =
        async |key: &str| owned.service.send("GET", "/api/1/ten/v1/", Some(&format!("Bearer {key}"))).await.status;
    assert_eq!(read(&key).await, 200);
    let rotated = Page::of(&owner.submit(&page, "/ui/1/ten/settings/rotate-key").await, 200);
    assert!(rotated.words("[role=status]").starts_with("The dataset has a new private key."));
    let new = rotated.select("section[aria-labelledby=key] pre code")[0].text().collect::<String>();
    assert_eq!((read(&key).await, read(&new).await), (403, 200));

    let ping = Page::of(&owner.submit(&page, "/ui/1/ten/settings/show-ping").await, 200);
    let url = ping.select("section[aria-labelledby=refreshes] pre code")[0].text().collect::<String>();
    assert!(url.starts_with("http://data.strata.test/ping/ping_"), "{url}");
    let rotated = Page::of(&owner.submit(&page, "/ui/1/ten/settings/rotate-ping").await, 200);
    assert!(!rotated.text.contains(&url) && rotated.text.contains("/ping/ping_"));
}

#[tokio::test]
async fn settings_are_saved_and_what_is_wrong_is_said() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |fields: &[(&str, &str)]| {
        owner.post("/ui/1/ten/settings/about", &[fields, &[("token", &token)]].concat()).await
    };
    for (name, status, problem) in
        [("", 400, "name: it must hold at least one"), (&"x".repeat(201), 400, "at most 200 characters")]
    {
        let page = Page::of(&saved(&[("name", name)]).await, status);
        assert!(page.words("#problem").contains(problem), "{}", page.words("#problem"));
        assert_eq!(page.one("#name").attr("value"), Some("Ten"));
    }
    owned.dataset("Eleven", json!({}), &[]).await;
    Page::of(&saved(&[("name", "Eleven")]).await, 409);
    let fields = [("name", "Twelve"), ("description", " <b> "), ("licence", "MIT"), ("listed", "true")];
    leads_to(&saved(&fields).await, "/ui/1/twelve/settings?done=about");
    let page = Browser::visitor(&owned.service).page("/").await;
    assert!(page.words(".card").starts_with("Twelve <b> 1 entity version 1 "), "{}", page.words(".card"));
    let page = owner.page("/ui/1/twelve/settings?done=about").await;
    assert_eq!(page.words("[role=status]"), "The settings are saved.");
    assert_eq!(page.words("textarea"), "<b>");
    assert!(page.one("input[name=listed]").attr("checked").is_some());
    assert!(page.one("input[name=private]").attr("checked").is_none());
    owner.error(SETTINGS, 404).await;
}

#[tokio::test]
async fn only_the_owner_sees_settings() {
    let owned = private().await;
    crate::support::owned::add_user(&owned.service, "other@strata.test", strata::model::user::Plan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    let (visitor, token) = (Browser::visitor(&owned.service), other.token("/").await);
    visitor.error(SETTINGS, 401).await;
    other.error(SETTINGS, 404).await;
    for form in ["about", "show-key", "rotate-key", "show-ping", "rotate-ping", "refresh"] {
        let uri = format!("{SETTINGS}/{form}");
        let answer = other.post(&uri, &[("token", &token), ("name", "Mine")]).await;
        assert!(!Page::of(&answer, 404).text.contains("sk_"), "{form}");
        Page::of(&visitor.post(&uri, &[("token", &token)]).await, 401);
    }
}

#[tokio::test]
async fn a_refresh_is_begun_and_its_attempts_are_shown() {
    let server = LoopbackServer::start(|_| ok("content-type: application/json\r\n", b"[{\"n\":1}]"));
    let owned = Owned::start(|config| {
        config.net.allow = Networks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({"source": server.url("/data.json?key=secret")}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(SETTINGS).await;
    assert!(!page.text.contains("secret"), "the query of a source may hold keys");
    leads_to(&owner.submit(&page, "/ui/1/ten/settings/refresh").await, "/ui/1/ten/settings?done=refreshed");
    let page = owner.page(SETTINGS).await;
    assert!(page.words("tbody").contains("manual") && page.words("tbody").contains("made version 1"));
}
