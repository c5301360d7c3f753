//! `…/settings`: the settings and the secrets of a dataset.

use std::ops::Range;

use serde_json::json;
use strata_config::AllowedNetworks;
use strata_testing::html::Page;
use strata_testing::owned::{self, Owned};
use strata_testing::service::Answer;
use strata_types::index_settings::{MAX_INDEX_PATH_BYTES, MAX_INDEX_PATHS};
use strata_types::user::UserPlan;

use super::{Browser, assert_redirect, assert_requires_exact_form, with_defaults};

const SETTINGS: &str = "/ui/1/ten/settings";

async fn private() -> Owned {
    let owned = Owned::sqlite().await;
    assert_eq!(owned.dataset("Ten", json!({"private": true, "description": "d"}), &["[{\"n\":1}]"]).await, 1);
    owned
}

#[tokio::test]
async fn secret_is_shown_only_on_request() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(SETTINGS).await;
    for page in [&page, &owner.page("/ui/1/ten/active/").await, &owner.page("/").await] {
        assert!(!page.text.contains("sk_") && !page.text.contains("ping_"));
    }
    let shown = owner.submit(&page, "/ui/1/ten/settings/show-key").await;
    assert_eq!(shown.header("cache-control"), Some("private, no-store"));
    let key = Page::parse(&shown, 200).one("#private-key").attr("value").expect("a key").to_owned();
    let read =
        async |key: &str| owned.service.send("GET", "/api/1/ten/v1/", Some(&format!("Bearer {key}"))).await.status;
    assert_eq!(read(&key).await, 200);
    let rotated = Page::parse(&owner.submit(&page, "/ui/1/ten/settings/rotate-key").await, 200);
    assert!(rotated.words("[role=status]").contains("private key was replaced"));
    let new = rotated.one("#private-key").attr("value").expect("a key").to_owned();
    assert_eq!((read(&key).await, read(&new).await), (403, 200));
}

#[tokio::test]
async fn settings_are_saved_or_problem_is_shown() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |fields: &[(&str, &str)]| {
        let others = [("description", ""), ("licence", ""), ("token", token.as_str())];
        owner.post("/ui/1/ten/settings/about", &with_defaults(fields, &others)).await
    };
    for (name, status, problem) in
        [("--", 400, "It must contain at least one"), (&"x".repeat(201), 400, "at most 200 characters")]
    {
        let page = Page::parse(&saved(&[("name", name)]).await, status);
        assert!(page.words("#name-problem").contains(problem), "{}", page.words("#name-problem"));
        assert_eq!(page.one("#name").attr("value"), Some(name), "the typed text is preserved");
    }
    owned.dataset("Eleven", json!({}), &[]).await;
    Page::parse(&saved(&[("name", "Eleven")]).await, 409);
    let fields = [("name", "Twelve"), ("description", " <b>\r\nof two lines "), ("licence", "MIT"), ("listed", "true")];
    assert_redirect(&saved(&fields).await, "/ui/1/twelve/settings?done=about");
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
async fn only_owner_sees_settings() {
    let owned = private().await;
    strata_testing::owned::add_user(&owned.service, "other@strata.test", strata_types::user::UserPlan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    let visitor = Browser::visitor(&owned.service);
    let token = other.token("/").await;
    visitor.error(SETTINGS, 401).await;
    other.error(SETTINGS, 404).await;
    for form in ["about", "source", "index", "show-source", "show-key", "rotate-key", "delete"] {
        let uri = format!("{SETTINGS}/{form}");
        let answer = other.post(&uri, &[("token", &token), ("name", "Mine")]).await;
        assert!(!Page::parse(&answer, 404).text.contains("sk_"), "{form}");
        Page::parse(&visitor.post(&uri, &[("token", &token)]).await, 401);
    }
}

#[tokio::test]
async fn source_is_saved_and_its_key_is_hidden() {
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |fields: &[(&str, &str)]| {
        let others = [("source", ""), ("format", ""), ("records_path", ""), ("token", token.as_str())];
        owner.post("/ui/1/ten/settings/source", &with_defaults(fields, &others)).await
    };
    for (fields, wrong, problem) in [
        (&[("from", "url"), ("source", "")][..], "source", "Enter a URL with the scheme http, https, s3, or store."),
        (&[("from", "url"), ("source", "ftp://<b>")], "source", "valid: an http, https, s3, or store URL"),
        (&[("from", "push"), ("format", "<b>")], "format", "<b>"),
        (&[("from", "push"), ("records_path", &"x".repeat(1_025))], "records_path", "It is longer than 1024 bytes."),
        (&[("from", "push"), ("format", "csv"), ("records_path", "a")], "records_path", "requires the json format"),
    ] {
        let page = Page::parse(&saved(fields).await, 400);
        let message = page.words(&format!("#{wrong}-problem"));
        assert!(message.contains(problem), "{message}");
        if wrong != "format" {
            let typed = fields.iter().find(|(name, _)| *name == wrong).map(|(_, value)| *value);
            assert_eq!(page.one(&format!("#{wrong}")).attr("value"), typed);
        }
    }
    let url = "http://127.0.0.1:1/x.csv?key=secret";
    let fields = [("from", "url"), ("source", url), ("format", "csv"), ("infer_types", "true")];
    assert_redirect(&saved(&fields).await, "/ui/1/ten/settings?done=source");
    let page = owner.page(SETTINGS).await;
    assert!(!page.text.contains("secret") && page.text.contains("http://127.0.0.1:1/x.csv?…"));
    // An empty URL field does not change the URL.
    assert_redirect(
        &saved(&[("from", "url"), ("source", ""), ("format", "tsv")]).await,
        "/ui/1/ten/settings?done=source",
    );
    let shown = owner.submit(&page, "/ui/1/ten/settings/show-source").await;
    assert_eq!(shown.header("cache-control"), Some("private, no-store"));
    let shown = Page::parse(&shown, 200);
    assert_eq!(shown.one("#source").attr("value"), Some(url));
    assert_eq!(shown.words("option[selected]"), "tsv");
    assert!(shown.one("input[name=infer_types]").attr("checked").is_none());
}

/// Regression: a form with nothing but its token cleared all settings.
#[tokio::test]
async fn incomplete_form_changes_nothing() {
    let owned = Owned::sqlite().await;
    let about = json!({"description": "d", "licence": "CC0", "source": "https://a.test/x.json?key=1", "format": "json",
        "records_path": "a.b", "index": {"always": ["a"], "never": ["b"]}, "private": true, "checks": {"required": ["a"]}});
    owned.dataset("Ten", about, &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let dataset = async || owned.call("GET", "/dataset/view?dataset_id=1", "").await.text().to_owned();
    let before = dataset().await;
    for form in ["show-source", "show-key", "rotate-key", "delete"] {
        assert_requires_exact_form(&owner, &format!("{SETTINGS}/{form}"), &[], &token).await;
    }
    for (form, fields) in [
        ("about", &[("name", "Ten"), ("description", ""), ("licence", "")][..]),
        ("source", &[("from", "push"), ("source", ""), ("format", ""), ("records_path", "")]),
        ("index", &[("always", ""), ("never", "")]),
        (
            "checks",
            &[
                ("min_entities", ""),
                ("max_entities", ""),
                ("max_drop_percent", ""),
                ("required", ""),
                ("unique", ""),
                ("types", ""),
                ("json_schema", ""),
            ],
        ),
    ] {
        let uri = format!("{SETTINGS}/{form}");
        assert_requires_exact_form(&owner, &uri, fields, &token).await;
        let page = Page::parse(&owner.post(&uri, &[("token", &token)]).await, 400);
        let names = fields.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let message = page.words("[role=alert]");
        assert!(message.contains(&format!("missing fields: {names}.")), "{message}");
    }
    let other = [("from", "elsewhere"), ("source", ""), ("format", ""), ("records_path", ""), ("token", &token)];
    let page = Page::parse(&owner.post(&format!("{SETTINGS}/source"), &other).await, 400);
    assert!(page.words("[role=alert]").contains("valid: push, url"), "{}", page.words("[role=alert]"));
    assert_eq!(dataset().await, before);
}

#[tokio::test]
async fn index_is_saved_and_empty_dataset_is_deleted() {
    let owned = private().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let saved = async |always: &str, never: &str| {
        let fields = [("token", token.as_str()), ("always", always), ("never", never)];
        owner.post("/ui/1/ten/settings/index", &fields).await
    };
    let page = Page::parse(&saved("a\n<b>", "<b>").await, 400);
    assert_eq!(page.words("#index-problem"), "`<b>` is in both `always` and `never`; valid: only one of them.");
    assert_eq!((page.words("#always"), page.words("#never")), ("a <b>".to_owned(), "<b>".to_owned()));
    assert_redirect(&saved("b\r\n\r\n a \r\nb", "").await, "/ui/1/ten/settings?done=index");
    let page = owner.page(SETTINGS).await;
    assert_eq!((page.words("#always").as_str(), page.words("#never").as_str()), ("a b", ""));
    // The maximum number of paths with the maximum length, in characters that a form encodes with three bytes.
    let list = |ends: Range<usize>| {
        let paths = ends.map(|end| format!("{}{end:03}", "/".repeat(MAX_INDEX_PATH_BYTES - 3)));
        paths.collect::<Vec<_>>().join("\r\n")
    };
    let always = list(0..MAX_INDEX_PATHS);
    let never = list(MAX_INDEX_PATHS..2 * MAX_INDEX_PATHS);
    assert_redirect(&saved(&always, &never).await, "/ui/1/ten/settings?done=index");
    let refused = Page::parse(&saved(&list(0..MAX_INDEX_PATHS + 1), &never).await, 400);
    assert!(refused.words("#index-problem").contains("list contains 65 paths"), "{}", refused.words("#index-problem"));
    assert_redirect(&saved("", "").await, "/ui/1/ten/settings?done=index");

    assert!(page.words("section[aria-labelledby=delete]").contains("cannot delete a dataset that has versions"));
    assert!(page.select("a[href$='/settings/delete']").is_empty(), "versions are permanent");
    Page::parse(&owner.post("/ui/1/ten/settings/delete", &[("token", &token)]).await, 409);
    owned.dataset("Empty", json!({}), &[]).await;
    let confirm = owner.page(&owner.page("/ui/2/empty/settings").await.link("Delete dataset…")).await;
    assert_redirect(&owner.submit(&confirm, "/ui/2/empty/settings/delete").await, "/");
    owner.error("/ui/2/empty/settings", 404).await;
}

/// Returns the hidden field with the values of a form when the page was loaded.
fn previous_values(page: &Page, form: &str) -> String {
    page.one(&format!("form[action$='/{form}'] input[name=was]")).attr("value").expect("previous values").to_owned()
}

/// Regression: saving only the description in an old tab made a private dataset public again.
#[tokio::test]
async fn old_page_does_not_revert_later_changes() {
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
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
    let about = previous_values(&old, "about");
    let about = [("name", "Ten"), ("description", "new"), ("licence", ""), ("was", &about), ("token", &token)];
    assert_redirect(&owner.post("/ui/1/ten/settings/about", &about).await, "/ui/1/ten/settings?done=about");
    let source = previous_values(&old, "source");
    let source = [
        ("from", "push"),
        ("source", ""),
        ("format", "json"),
        ("records_path", ""),
        ("was", &source),
        ("token", &token),
    ];
    assert_redirect(&owner.post("/ui/1/ten/settings/source", &source).await, "/ui/1/ten/settings?done=source");
    let index = previous_values(&old, "index");
    let index = [("always", ""), ("never", ""), ("was", &index), ("token", &token)];
    assert_redirect(&owner.post("/ui/1/ten/settings/index", &index).await, "/ui/1/ten/settings?done=index");
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
    // Invalid previous values are rejected.
    let wrong = [("name", "Ten"), ("description", ""), ("licence", ""), ("was", "{"), ("token", &token)];
    let message = Page::parse(&owner.post("/ui/1/ten/settings/about", &wrong).await, 400).words("[role=alert]");
    assert!(message.contains("the field \"was\" has an invalid value"), "{message}");
}

#[tokio::test]
async fn rejected_form_keeps_its_values() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(SETTINGS).await;
    let token = owner.token(SETTINGS).await;
    // A typed URL is not dropped although the other choice is selected.
    let source = previous_values(&page, "source");
    let url = "https://example.org/x.json";
    let fields =
        [("from", "push"), ("source", url), ("format", ""), ("records_path", ""), ("was", &source), ("token", &token)];
    let refused = Page::parse(&owner.post("/ui/1/ten/settings/source", &fields).await, 400);
    assert_eq!(
        refused.words("#source-problem"),
        "To use this URL, choose “Fetch from this URL”; otherwise, clear this field."
    );
    let field = refused.one("#source");
    assert_eq!((field.attr("value"), field.attr("autofocus")), (Some(url), Some("")));
    assert_eq!(previous_values(&refused, "source"), source, "the previous values are those of the first page");
    assert!(refused.words("title").starts_with("Error: Settings, Ten"), "{}", refused.words("title"));

    // A dataset with versions cannot be deleted, and the page links to its versions.
    let message = owner.error("/ui/1/ten/settings/delete", 409).await;
    assert!(message.text.contains("/ui/1/ten/versions"), "{}", message.text);

    // A form of another session and a form without a session.
    let about = [("name", "Ten"), ("description", "a long text"), ("licence", ""), ("token", "00")];
    let forged = Page::parse(&owner.post("/ui/1/ten/settings/about", &about).await, 403);
    assert_eq!(forged.words("#typed"), "name: Ten description: a long text");
    assert_eq!(forged.link("Open the page again"), "/ui/1/ten/settings");
    let visitor = Browser::visitor(&owned.service);
    let ended = Page::parse(&visitor.post("/ui/1/ten/settings/about", &about).await, 401);
    assert_eq!(ended.words("#typed"), "name: Ten description: a long text");
    assert_eq!(ended.link("Sign in"), "/ui/sign-in?next=/ui/1/ten/settings");
    // Passwords are not repeated.
    let password = [("old", "secret-1"), ("new", "secret-2"), ("again", "secret-2"), ("token", "00")];
    let forged = Page::parse(&owner.post("/ui/account/password", &password).await, 403);
    assert!(!forged.text.contains("secret-") && forged.select("#typed").is_empty(), "{}", forged.text);
}

#[tokio::test]
async fn long_description_is_folded() {
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

/// Submits the form of checks with these fields and empty other fields.
async fn post_checks(owner: &Browser<'_>, token: &str, fields: &[(&str, &str)]) -> Answer {
    let names = ["min_entities", "max_entities", "max_drop_percent", "required", "unique", "types", "json_schema"];
    let empty: Vec<(&str, &str)> = names.into_iter().map(|name| (name, "")).collect();
    let fields = [&with_defaults(fields, &empty)[..], &[("token", token)]].concat();
    owner.post("/ui/1/ten/settings/checks", &fields).await
}

#[tokio::test]
async fn checks_are_suggested_saved_and_cleared() {
    let owned = Owned::sqlite().await;
    let entities = r#"[{"id":1,"a.b":{"c":"x"},"p":null},{"id":2,"a.b":{"c":"x"}}]"#;
    owned.dataset("Ten", json!({}), &[entities]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(SETTINGS).await;
    let checks = async || {
        let view = owned.call("GET", "/dataset/view?dataset_id=1", "").await;
        serde_json::from_str::<serde_json::Value>(view.text()).expect("JSON")["dataset"]["checks"].clone()
    };
    // The suggestions are not saved, and the active version passes them.
    let page = owner.page(&format!("{SETTINGS}?suggest=checks")).await;
    let value = |name: &str| page.one(&format!("#{name}")).attr("value").unwrap_or_default().to_owned();
    assert_eq!((value("min_entities"), value("max_drop_percent")), ("1".to_owned(), "20".to_owned()));
    assert_eq!(page.words("#required"), r"id a\.b a\.b.c");
    assert_eq!(page.words("#unique"), "id");
    assert_eq!(page.words("#types"), r"id: number a\.b: object a\.b.c: string p: null");
    assert_eq!(checks().await, json!(null));
    let page = owner.page(SETTINGS).await;
    assert_eq!((page.words("#required"), page.words("#types")), (String::new(), String::new()));

    let fields = [
        ("min_entities", "1"),
        ("max_drop_percent", "12.5"),
        ("required", "id\r\n\r\n a\\.b.c "),
        ("unique", "id, a\\.b.c\r\nx\\,y"),
        ("types", "id: number\r\na\\:b: string,null"),
        ("json_schema", "{\"type\":\"object\"}"),
    ];
    assert_redirect(&post_checks(&owner, &token, &fields).await, "/ui/1/ten/settings?done=checks");
    let expected = json!({
        "min_entities": 1,
        "max_drop_percent": 12.5,
        "required": ["id", "a\\.b.c"],
        "unique": [["id", "a\\.b.c"], ["x\\,y"]],
        "types": { "id": ["number"], "a\\:b": ["string", "null"] },
        "json_schema": { "type": "object" }
    });
    assert_eq!(checks().await, expected);
    let page = owner.page(&format!("{SETTINGS}?done=checks")).await;
    assert!(page.words("[role=status]").contains("The checks were saved. They apply to new versions."));
    assert_eq!(page.words("#unique"), r"id,a\.b.c x\,y");
    assert_eq!(page.words("#types"), r"id: number a\:b: string, null");

    // A form that was opened earlier changes only the fields that the owner edited.
    let was = page.one("form[action*='/settings/checks'] input[name=was]").attr("value").unwrap_or_default().to_owned();
    let stored = json!({ "dataset_id": 1, "checks": { "max_entities": 9 } }).to_string();
    assert_eq!(owned.call("POST", "/dataset/update", &stored).await.status, 200);
    let unchanged = [
        ("min_entities", "1"),
        ("max_drop_percent", "12.5"),
        ("required", "id\r\na\\.b.c"),
        ("unique", "id,a\\.b.c\r\nx\\,y"),
        ("types", "id: number\r\na\\:b: string, null"),
        ("json_schema", "{\r\n  \"type\": \"object\"\r\n}"),
        ("was", &was),
    ];
    assert_redirect(&post_checks(&owner, &token, &unchanged).await, "/ui/1/ten/settings?done=checks");
    assert_eq!(checks().await, json!({ "max_entities": 9 }));

    // Problems are shown next to the form, which keeps its values.
    for (field, text, problem) in [
        ("min_entities", "many", "`min_entities`: \"many\" is not valid; valid: an integer from 0"),
        ("types", "id number", "`types`: in the line \"id number\", the colon is missing"),
        ("types", "id: int", "`types`: \"int\" is not valid; valid: an object that maps paths"),
        ("unique", ",", "`unique`: a list without paths is not valid"),
        ("json_schema", "{", "`json_schema`: it is not JSON: EOF while parsing"),
        ("json_schema", "{\"type\":1}", "`json_schema`: not a valid JSON Schema: \"/type\": 1 is not valid"),
    ] {
        let page = Page::parse(&post_checks(&owner, &token, &[(field, text), ("max_entities", "7")]).await, 400);
        let message = page.words("#checks-problem");
        assert!(message.contains(problem), "{message}");
        let typed = page
            .one(&format!("#{field}"))
            .attr("value")
            .map_or_else(|| page.words(&format!("#{field}")), str::to_owned);
        assert_eq!((typed.as_str(), page.one("#max_entities").attr("value")), (text, Some("7")));
    }
    assert_eq!(checks().await, json!({ "max_entities": 9 }));
    assert_redirect(&post_checks(&owner, &token, &[]).await, "/ui/1/ten/settings?done=checks");
    assert_eq!(checks().await, json!(null));
}

#[tokio::test]
async fn failed_attempt_links_to_failing_entities() {
    let owned = Owned::sqlite().await;
    let checks = json!({ "required": ["name"], "max_entities": 9 });
    let id = owned.dataset("Ten", json!({ "checks": checks }), &[r#"[{"name":"a"}]"#]).await;
    let entities = json!([{ "name": "a" }, { "n": 1 }, { "name": null, "html": "<b>\u{202e}" }, {}, {}]);
    let body = json!({ "dataset_id": id, "entities": entities }).to_string();
    assert_eq!(owned.call("POST", "/dataset/refresh", &body).await.status, 422);
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page("/ui/1/ten/refresh").await;
    let history = page.words("section[aria-labelledby=history]");
    assert!(history.contains("passed 2 checks"), "{history}");
    assert!(
        history.contains("the new entities fail 1 of 2 checks: required: 4 of 5 entities fail; first at position 1")
    );
    let href = page.one("td.failed a").attr("href").expect("missing link").to_owned();
    let results = owner.page(href.split('#').next().unwrap_or_default()).await;
    let shown = results.words("section[aria-labelledby=checks]");
    for text in [
        "max_entities: passed",
        "Position 1: {\"n\":1}",
        "Position 2: {\"name\":null,\"html\":\"<b>",
        "And 1 more entity.",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    // Others see neither the attempts nor the checks.
    let (_, other) = owned::add_user(&owned.service, "eve@strata.test", UserPlan::Pro).await;
    assert_eq!(owned::call(&owned.service, &other, "GET", "/dataset/view?dataset_id=1", "").await.status, 404);
    let visitor = Browser::user(&owned.service, "eve@strata.test").await;
    visitor.error(href.split('#').next().unwrap_or_default(), 404).await;
}
