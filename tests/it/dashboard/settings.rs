//! `…/settings`: what an owner says of a dataset, and its secrets.

use std::ops::Range;

use serde_json::json;
use strata_config::Networks;
use strata_testing::html::Page;
use strata_testing::owned::Owned;
use strata_types::index::{INDEX_PATH_BYTES, INDEX_PATHS};

use super::{Browser, filled, leads_to, takes_only_the_whole_form};

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
    let key = Page::of(&shown, 200).one("#private-key").attr("value").expect("a key").to_owned();
    let read =
        async |key: &str| owned.service.send("GET", "/api/1/ten/v1/", Some(&format!("Bearer {key}"))).await.status;
    assert_eq!(read(&key).await, 200);
    let rotated = Page::of(&owner.submit(&page, "/ui/1/ten/settings/rotate-key").await, 200);
    assert!(rotated.words("[role=status]").contains("private key was replaced"));
    let new = rotated.one("#private-key").attr("value").expect("a key").to_owned();
    assert_eq!((read(&key).await, read(&new).await), (403, 200));
}

#[tokio::test]
async fn settings_are_saved_and_what_is_wrong_is_said() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |fields: &[(&str, &str)]| {
        let others = [("description", ""), ("licence", ""), ("token", token.as_str())];
        owner.post("/ui/1/ten/settings/about", &filled(fields, &others)).await
    };
    for (name, status, problem) in
        [("--", 400, "It must contain at least one"), (&"x".repeat(201), 400, "at most 200 characters")]
    {
        let page = Page::of(&saved(&[("name", name)]).await, status);
        assert!(page.words("#name-problem").contains(problem), "{}", page.words("#name-problem"));
        assert_eq!(page.one("#name").attr("value"), Some(name), "what was typed is kept");
    }
    owned.dataset("Eleven", json!({}), &[]).await;
    Page::of(&saved(&[("name", "Eleven")]).await, 409);
    let fields = [("name", "Twelve"), ("description", " <b>\r\nof two lines "), ("licence", "MIT"), ("listed", "true")];
    leads_to(&saved(&fields).await, "/ui/1/twelve/settings?done=about");
    let page = Browser::visitor(&owned.service).page("/").await;
    let card = page.words(".card");
    assert!(card.starts_with("Twelve <b> of two lines 1 entity version 1 "), "{card}");
    let listed = owned.service.get("/datasets").await;
    assert!(listed.text().contains(r#""description":"<b>\nof two lines""#), "{}", listed.text());
    let page = owner.page("/ui/1/twelve/settings?done=about").await;
    assert_eq!(page.words("[role=status]"), "The settings were saved.");
    assert_eq!(page.words("#description"), "<b> of two lines");
    assert!(page.one("input[name=listed]").attr("checked").is_some());
    assert!(page.one("input[name=private]").attr("checked").is_none());
    owner.error(SETTINGS, 404).await;
}

#[tokio::test]
async fn only_the_owner_sees_settings() {
    let owned = private().await;
    strata_testing::owned::add_user(&owned.service, "other@strata.test", strata_types::user::Plan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    let (visitor, token) = (Browser::visitor(&owned.service), other.token("/").await);
    visitor.error(SETTINGS, 401).await;
    other.error(SETTINGS, 404).await;
    for form in ["about", "source", "index", "show-source", "show-key", "rotate-key", "delete"] {
        let uri = format!("{SETTINGS}/{form}");
        let answer = other.post(&uri, &[("token", &token), ("name", "Mine")]).await;
        assert!(!Page::of(&answer, 404).text.contains("sk_"), "{form}");
        Page::of(&visitor.post(&uri, &[("token", &token)]).await, 401);
    }
}

#[tokio::test]
async fn a_source_is_saved_and_what_may_be_a_key_in_it_is_shown_when_asked_for() {
    let owned = Owned::start(|config| {
        config.net.allow = Networks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |fields: &[(&str, &str)]| {
        let others = [("source", ""), ("format", ""), ("records_path", ""), ("token", token.as_str())];
        owner.post("/ui/1/ten/settings/source", &filled(fields, &others)).await
    };
    for (fields, wrong, problem) in [
        (&[("from", "url"), ("source", "")][..], "source", "Enter a URL with the scheme http, https, s3, or store."),
        (&[("from", "url"), ("source", "ftp://<b>")], "source", "valid: an http, https, s3, or store URL"),
        (&[("from", "push"), ("format", "<b>")], "format", "<b>"),
        (&[("from", "push"), ("records_path", &"x".repeat(1_025))], "records_path", "It is longer than 1024 bytes."),
        (&[("from", "push"), ("format", "csv"), ("records_path", "a")], "records_path", "requires the json format"),
    ] {
        let page = Page::of(&saved(fields).await, 400);
        let told = page.words(&format!("#{wrong}-problem"));
        assert!(told.contains(problem), "{told}");
        if wrong != "format" {
            let typed = fields.iter().find(|(name, _)| *name == wrong).map(|(_, value)| *value);
            assert_eq!(page.one(&format!("#{wrong}")).attr("value"), typed);
        }
    }
    let url = "http://127.0.0.1:1/x.csv?key=secret";
    let fields = [("from", "url"), ("source", url), ("format", "csv"), ("infer_types", "true")];
    leads_to(&saved(&fields).await, "/ui/1/ten/settings?done=source");
    let page = owner.page(SETTINGS).await;
    assert!(!page.text.contains("secret") && page.text.contains("http://127.0.0.1:1/x.csv?…"));
    // Left empty, it stays as it is.
    leads_to(&saved(&[("from", "url"), ("source", ""), ("format", "tsv")]).await, "/ui/1/ten/settings?done=source");
    let shown = owner.submit(&page, "/ui/1/ten/settings/show-source").await;
    assert_eq!(shown.header("cache-control"), Some("private, no-store"));
    let shown = Page::of(&shown, 200);
    assert_eq!(shown.one("#source").attr("value"), Some(url));
    assert_eq!(shown.words("option[selected]"), "tsv");
    assert!(shown.one("input[name=infer_types]").attr("checked").is_none());
}

/// A form with nothing but its token cleared what it was of, and was answered as one that had saved it.
#[tokio::test]
async fn an_incomplete_form_changes_nothing() {
    let owned = Owned::sqlite().await;
    let about = json!({"description": "d", "licence": "CC0", "source": "https://a.test/x.json?key=1", "format": "json",
        "records_path": "a.b", "index": {"always": ["a"], "never": ["b"]}, "private": true});
    owned.dataset("Ten", about, &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let dataset = async || owned.call("GET", "/dataset/view?dataset_id=1", "").await.text().to_owned();
    let before = dataset().await;
    for form in ["show-source", "show-key", "rotate-key", "delete"] {
        takes_only_the_whole_form(&owner, &format!("{SETTINGS}/{form}"), &[], &token).await;
    }
    for (form, fields) in [
        ("about", &[("name", "Ten"), ("description", ""), ("licence", "")][..]),
        ("source", &[("from", "push"), ("source", ""), ("format", ""), ("records_path", "")]),
        ("index", &[("always", ""), ("never", "")]),
    ] {
        let uri = format!("{SETTINGS}/{form}");
        takes_only_the_whole_form(&owner, &uri, fields, &token).await;
        let page = Page::of(&owner.post(&uri, &[("token", &token)]).await, 400);
        let names = fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let told = page.words("[role=alert]");
        assert!(told.contains(&format!("missing fields: {names}.")), "{told}");
    }
    let other = [("from", "elsewhere"), ("source", ""), ("format", ""), ("records_path", ""), ("token", &token)];
    let page = Page::of(&owner.post(&format!("{SETTINGS}/source"), &other).await, 400);
    assert!(page.words("[role=alert]").contains("valid: push, url"), "{}", page.words("[role=alert]"));
    assert_eq!(dataset().await, before);
}

#[tokio::test]
async fn an_index_is_saved_and_a_dataset_without_a_version_is_deleted() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |always: &str, never: &str| {
        let fields = [("token", token.as_str()), ("always", always), ("never", never)];
        owner.post("/ui/1/ten/settings/index", &fields).await
    };
    let page = Page::of(&saved("a\n<b>", "<b>").await, 400);
    assert_eq!(page.words("#index-problem"), "`<b>` is in both `always` and `never`; valid: only one of them.");
    assert_eq!((page.words("#always"), page.words("#never")), ("a <b>".to_owned(), "<b>".to_owned()));
    leads_to(&saved("b\r\n\r\n a \r\nb", "").await, "/ui/1/ten/settings?done=index");
    let page = owner.page(SETTINGS).await;
    assert_eq!((page.words("#always").as_str(), page.words("#never").as_str()), ("a b", ""));
    // As many as there may be, as long as they may be, in characters that a form writes with three bytes each.
    let list = |ends: Range<usize>| {
        let paths = ends.map(|end| format!("{}{end:03}", "/".repeat(INDEX_PATH_BYTES - 3)));
        paths.collect::<Vec<_>>().join("\r\n")
    };
    let (always, never) = (list(0..INDEX_PATHS), list(INDEX_PATHS..2 * INDEX_PATHS));
    leads_to(&saved(&always, &never).await, "/ui/1/ten/settings?done=index");
    let refused = Page::of(&saved(&list(0..INDEX_PATHS + 1), &never).await, 400);
    assert!(refused.words("#index-problem").contains("list contains 65 paths"), "{}", refused.words("#index-problem"));
    leads_to(&saved("", "").await, "/ui/1/ten/settings?done=index");

    assert!(page.words("section[aria-labelledby=delete]").contains("cannot delete a dataset that has versions"));
    assert!(page.select("a[href$='/settings/delete']").is_empty(), "versions are permanent");
    Page::of(&owner.post("/ui/1/ten/settings/delete", &[("token", &token)]).await, 409);
    owned.dataset("Empty", json!({}), &[]).await;
    let confirm = owner.page(&owner.page("/ui/2/empty/settings").await.link("Delete dataset…")).await;
    leads_to(&owner.submit(&confirm, "/ui/2/empty/settings/delete").await, "/");
    owner.error("/ui/2/empty/settings", 404).await;
}

/// What a form of the page held when it was opened.
fn was(page: &Page, form: &str) -> String {
    page.one(&format!("form[action$='/{form}'] input[name=was]")).attr("value").expect("what was").to_owned()
}

/// A tab that was opened while the dataset was public made it public again, with another description alone.
#[tokio::test]
async fn an_old_page_takes_back_nothing_that_was_saved_since() {
    let owned = Owned::start(|config| {
        config.net.allow = Networks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({"description": "d"}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let old = owner.page(SETTINGS).await;
    let token = owner.token(SETTINGS).await;
    let url = "http://127.0.0.1:1/x.json";
    let since = json!({"dataset_id": 1, "private": true, "licence": "CC0", "source": url, "infer_types": true,
        "index": {"always": ["a"], "never": []}});
    owned.call("POST", "/dataset/update", &since.to_string()).await;
    let about = was(&old, "about");
    let about = [("name", "Ten"), ("description", "new"), ("licence", ""), ("was", &about), ("token", &token)];
    leads_to(&owner.post("/ui/1/ten/settings/about", &about).await, "/ui/1/ten/settings?done=about");
    let source = was(&old, "source");
    let source = [
        ("from", "push"),
        ("source", ""),
        ("format", "json"),
        ("records_path", ""),
        ("was", &source),
        ("token", &token),
    ];
    leads_to(&owner.post("/ui/1/ten/settings/source", &source).await, "/ui/1/ten/settings?done=source");
    let index = was(&old, "index");
    let index = [("always", ""), ("never", ""), ("was", &index), ("token", &token)];
    leads_to(&owner.post("/ui/1/ten/settings/index", &index).await, "/ui/1/ten/settings?done=index");
    let seen = owned.call("GET", "/dataset/view?dataset_id=1", "").await;
    let seen: serde_json::Value = serde_json::from_str(seen.text()).expect("JSON");
    let dataset = &seen["dataset"];
    for (field, value) in [
        ("private", json!(true)),
        ("description", json!("new")),
        ("licence", json!("CC0")),
        ("source", json!(url)),
        ("format", json!("json")),
        ("infer_types", json!(true)),
        ("index", json!({"always": ["a"], "never": []})),
    ] {
        assert_eq!(dataset[field], value, "{field}");
    }
    // What the page of a form did not write there is none of it.
    let wrong = [("name", "Ten"), ("description", ""), ("licence", ""), ("was", "{"), ("token", &token)];
    let told = Page::of(&owner.post("/ui/1/ten/settings/about", &wrong).await, 400).words("[role=alert]");
    assert!(told.contains("the field \"was\" has an invalid value"), "{told}");
}

#[tokio::test]
async fn a_form_that_is_refused_is_not_lost() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let (page, token) = (owner.page(SETTINGS).await, owner.token(SETTINGS).await);
    // A URL beside the other choice is not dropped.
    let source = was(&page, "source");
    let url = "https://example.org/x.json";
    let fields =
        [("from", "push"), ("source", url), ("format", ""), ("records_path", ""), ("was", &source), ("token", &token)];
    let refused = Page::of(&owner.post("/ui/1/ten/settings/source", &fields).await, 400);
    assert_eq!(
        refused.words("#source-problem"),
        "To use this URL, choose “Fetch from this URL”; otherwise, clear this field."
    );
    let field = refused.one("#source");
    assert_eq!((field.attr("value"), field.attr("autofocus")), (Some(url), Some("")));
    assert_eq!(was(&refused, "source"), source, "it is compared with what the first page held");
    assert!(refused.words("title").starts_with("Error: Settings, Ten"), "{}", refused.words("title"));

    // What there is to delete.
    let told = owner.error("/ui/1/ten/settings/delete", 409).await;
    assert!(told.text.contains("/ui/1/ten/versions"), "{}", told.text);

    // Another session, and none.
    let about = [("name", "Ten"), ("description", "a long text"), ("licence", ""), ("token", "00")];
    let forged = Page::of(&owner.post("/ui/1/ten/settings/about", &about).await, 403);
    assert_eq!(forged.words("#typed"), "name: Ten description: a long text");
    assert_eq!(forged.link("Open the page again"), "/ui/1/ten/settings");
    let visitor = Browser::visitor(&owned.service);
    let ended = Page::of(&visitor.post("/ui/1/ten/settings/about", &about).await, 401);
    assert_eq!(ended.words("#typed"), "name: Ten description: a long text");
    assert_eq!(ended.link("Sign in"), "/ui/sign-in?next=/ui/1/ten/settings");
    // Passwords are not shown again.
    let password = [("old", "secret-1"), ("new", "secret-2"), ("again", "secret-2"), ("token", "00")];
    let forged = Page::of(&owner.post("/ui/account/password", &password).await, 403);
    assert!(!forged.text.contains("secret-") && forged.select("#typed").is_empty(), "{}", forged.text);
}

#[tokio::test]
async fn a_long_description_is_folded_above_every_page() {
    let owned = Owned::sqlite().await;
    let text = format!("The first line.\n{}", "More of it. ".repeat(100));
    owned.dataset("Long", json!({"description": text.trim()}), &["[{\"n\":1}]"]).await;
    owned.dataset("Short", json!({"description": "One.\nTwo."}), &["[{\"n\":1}]"]).await;
    let visitor = Browser::visitor(&owned.service);
    let page = visitor.page("/ui/1/long/active/").await;
    assert_eq!(page.words("details.about > summary"), "The first line.");
    assert!(page.words("details.about").ends_with("More of it."));
    let page = visitor.page("/ui/2/short/active/").await;
    assert_eq!((page.words("p.about"), page.select("details.about").len()), ("One. Two.".to_owned(), 0));
}
