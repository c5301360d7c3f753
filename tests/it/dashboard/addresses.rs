//! Invalid parameters of pages: the error shows the problem and the valid values.

use serde_json::json;
use strata_testing::owned::Owned;

use super::{Browser, assert_redirect};

const HUGE: &str = "99999999999999999999999";

/// Creates a dataset with two versions; the second has an alternate.
async fn ten() -> Owned {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({"listed": true}), &["[{\"n\":1}]", "[{\"n\":1},{\"n\":2}]"]).await;
    assert_eq!((id, owned.save(id, 2, "[{\"n\":3}]").await.status), (1, 200));
    owned
}

/// Regression: invalid values were silently replaced by the default.
#[tokio::test]
async fn invalid_parameter_error_lists_valid_values() {
    let owned = ten().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let whole = format!("decimal digits only, from 0 to {}", u64::MAX);
    for (uri, problem, valid) in [
        ("/?after=x", "parameter after: \"x\" is not a whole number", whole.as_str()),
        (&format!("/?after={HUGE}"), "after: \"99999999999999999999999\" is too large", &whole),
        ("/?q=a&q=b", "parameter q: \"b\" is a second value", "q given at most once"),
        ("/?q=%FF", "\"q=%FF\" in the query string is not UTF-8", "percent-encoded UTF-8"),
        ("/ui/1/ten/active/?view=xml", "parameter view: \"xml\" is not valid", "table, json"),
        ("/ui/1/ten/active/?view=json&view=json", "\"json\" is a second value", "view given at most once"),
        ("/ui/1/ten/active/?add_path=n&add_operator=like", "add_operator: \"like\" is not valid", "filter_contains"),
        ("/ui/1/ten/active/?form=1&add_path=n&add_operator=like", "add_operator: \"like\"", "filter, filter_contains"),
        (&format!("/ui/1/ten/active/?offset={HUGE}"), "offset: \"99999999999999999999999\" is too large", &whole),
        ("/ui/1/ten/v1/explain?view=xml", "parameter view: \"xml\" is not valid", "table, json"),
        (
            "/ui/1/ten/v1/explain?keywords=%FF",
            "\"keywords=%FF\" in the query string is not UTF-8",
            "percent-encoded UTF-8",
        ),
        ("/ui/1/ten/v1/profile?from=-1", "parameter from: \"-1\" is not a whole number", &whole),
        ("/ui/1/ten/v1/profile?from=1&from=2", "\"2\" is a second value", "from given at most once"),
        ("/ui/1/ten/versions?before=x", "parameter before: \"x\" is not a whole number", &whole),
        ("/ui/1/ten/versions?done=x", "parameter done: \"x\" is not valid", "pin, unpin, freeze, unfreeze"),
        ("/ui/1/ten/diff?v1=1&v2=2&view=zz", "parameter view: \"zz\" is not valid", "changes, whole"),
        ("/ui/1/ten/diff?view=zz", "parameter view: \"zz\" is not valid", "changes, whole"),
        ("/ui/1/ten/diff?limit=x", "limit: \"x\" is not valid", "a whole number"),
        ("/ui/1/ten/diff?change_type=x", "change_type: \"x\" is not valid", "added, subtracted, modified"),
        ("/ui/1/ten/diff?alt=x", "alt: \"x\" is not valid", "true, false, 1, or 0"),
        ("/ui/1/ten/diff?of=x", "parameter of: \"x\" is not a whole number", &whole),
        ("/ui/1/ten/diff?v1=%FF&v2=2", "\"v1=%FF\" in the query string is not UTF-8", "percent-encoded UTF-8"),
        ("/ui/1/ten/usage?days=401", "parameter days: \"401\" is not valid", "7, 30, 90, 400"),
        ("/ui/1/ten/usage?days=60", "parameter days: \"60\" is not valid", "7, 30, 90, 400"),
        ("/ui/1/ten/usage?days=", "parameter days: \"\" is not valid", "7, 30, 90, 400"),
        ("/ui/1/ten/refresh?done=x", "parameter done: \"x\" is not valid", "begun, made, schedule"),
        ("/ui/1/ten/refresh?before=x", "parameter before: \"x\" is not a whole number", &whole),
        ("/ui/1/ten/refresh?ended=x", "parameter ended: \"x\" is not a whole number", &whole),
        ("/ui/1/ten/webhook?done=x", "parameter done: \"x\" is not valid", "register, delete"),
        ("/ui/1/ten/webhook?before=x", "parameter before: \"x\" is not a whole number", &whole),
        ("/ui/1/ten/settings?done=x", "parameter done: \"x\" is not valid", "about, source, index"),
        ("/ui/1/ten/v2/alternate?done=x", "parameter done: \"x\" is not valid", "saved, beside, deleted"),
        (
            "/ui/1/ten/v2/alternate/edit?position=0&entity=0",
            "position: \"0\" cannot be combined with entity",
            "but not both",
        ),
        ("/ui/1/ten/v2/alternate/edit?entity=x", "but is \"x\"", "a whole number"),
        ("/ui/1/ten/v2/alternate/add?position=x", "This is not a valid position", "0 to 1"),
        ("/ui/1/ten/v2/alternate/add?position=2", "This position is past the end of the list", "0 to 1"),
        (&format!("/ui/1/ten/v2/alternate/add?position={HUGE}"), "This position is past the end of the list", "0 to 1"),
        (
            "/ui/1/ten/v2/alternate/remove?positions=0&position=0",
            "positions: \"0\" cannot be combined with position",
            "but not both",
        ),
        (&format!("/ui/1/ten/v2/alternate/remove?positions={HUGE}"), "is larger than any position", "ranges"),
        ("/ui/account?done=x", "parameter done: \"x\" is not valid", "end-session, delete-token, password"),
        (
            "/ui/account/delete-token?name=a&name=b",
            "parameter name: \"b\" is a second value",
            "name given at most once",
        ),
        ("/ui/sign-in?next=/&next=/", "parameter next: \"/\" is a second value", "next given at most once"),
    ] {
        let page = owner.error(uri, 400).await;
        let message = page.words("main [role=alert]");
        let (found, right) = message.split_once("; valid: ").unwrap_or((&message, &message));
        assert!(found.contains(problem) && right.contains(valid), "{uri}: {message}");
    }
    // The form omits an invalid view but keeps typed values.
    let page = owner.error("/ui/1/ten/active/?view=xml&filter=n:1", 400).await;
    assert!(page.select("form.query input[name=view]").is_empty() && page.select("table").is_empty());
    let page = owner.error("/ui/1/ten/active/?add_path=n&add_operator=like&add_value=7", 400).await;
    assert_eq!(page.one("#add_operator").attr("aria-invalid"), Some("true"));
    assert_eq!(page.one("#add_value").attr("value"), Some("7"));
    let page = owner.error("/ui/1/ten/v2/alternate/add?position=2", 400).await;
    assert_eq!(page.one("#position").attr("value"), Some("2"));
    let page = owner.error("/ui/1/ten/diff?of=9", 404).await;
    assert_eq!(page.words("#problem"), "There is no version 9; its versions are 1 to 2.");
    assert_eq!(page.one("#v1").attr("value"), Some("1"), "the form is still shown");
    // Valid values are accepted.
    for uri in [
        "/ui/1/ten/active/?view=table",
        "/ui/1/ten/active/?view=json",
        "/ui/1/ten/v1/explain?view=json",
        "/ui/1/ten/v1/profile?from=0&q=n",
        "/ui/1/ten/versions?before=2&done=pin",
        "/ui/1/ten/diff?v1=1&v2=2&view=changes&of=2",
        "/ui/1/ten/diff?alt=TRUE&of=2&v1=",
        "/ui/1/ten/usage?days=400",
        "/ui/1/ten/refresh?done=schedule&before=5&ended=1",
        "/ui/1/ten/v2/alternate/add?position=1",
    ] {
        let page = owner.page(uri).await;
        assert!(page.select(".ignored").is_empty(), "{uri}");
    }
}

/// Pages ignore unknown parameters and list them, as reads do.
#[tokio::test]
async fn unknown_parameters_are_listed() {
    let owned = ten().await;
    owned.dataset("Empty", json!({}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for (uri, valid) in [
        ("/", "q, after, own"),
        ("/ui/sign-in", "next"),
        ("/ui/account", "done"),
        ("/ui/new", "none"),
        ("/ui/1/ten/v1/profile", "q, from, histogram"),
        ("/ui/1/ten/v1/entity/0", "none"),
        ("/ui/1/ten/versions", "before, done"),
        ("/ui/1/ten/manage/pin?version=1", "version"),
        ("/ui/1/ten/manage/freeze?version=1", "version"),
        ("/ui/1/ten/clone", "none"),
        ("/ui/1/ten/usage", "days"),
        ("/ui/1/ten/refresh", "done, ended, before, checks"),
        ("/ui/1/ten/webhook", "done, before, version"),
        ("/ui/1/ten/settings", "done, suggest"),
        ("/ui/2/empty/settings/delete", "none"),
        ("/ui/1/ten/v2/alternate", "done"),
        ("/ui/1/ten/v2/alternate/edit?position=0", "position, entity"),
        ("/ui/1/ten/v2/alternate/add", "position"),
        ("/ui/1/ten/v2/alternate/remove?position=0", "positions, position"),
        ("/ui/1/ten/v2/alternate/delete", "none"),
    ] {
        assert!(owner.page(uri).await.select(".ignored").is_empty(), "{uri}");
        let separator = if uri.contains('?') { '&' } else { '?' };
        let page = owner.page(&format!("{uri}{separator}offset=-1&%3Cb%3E=%E2%80%AE&offset=2")).await;
        let message = page.words(".ignored");
        let expected = format!("This page ignores unknown parameters: \"offset\", \"<b>\"; valid: {valid}.");
        assert_eq!(message, expected, "{uri}");
    }
    let many: Vec<String> = (0..50).map(|number| format!("p{number}=1")).collect();
    let message = owner.page(&format!("/?{}", many.join("&"))).await.words(".ignored");
    assert!(message.contains("\"p4\" and more; valid"), "{message}");
    // A file cannot contain a note, so the response has a header, as the response of a read does.
    let uri = "ten/v1/download?format=csv&view=json&offset=0&colums=n";
    let file = owner.get(&format!("/ui/1/{uri}")).await;
    let read = owner.get("/api/1/ten/v1/?view=json&colums=n").await;
    assert_eq!((file.status, file.text()), (200, "n\n1\n"));
    assert_eq!(file.header("x-unknown-parameters"), Some("view,colums"));
    assert_eq!(file.header("x-unknown-parameters"), read.header("x-unknown-parameters"));
    // Redirects keep the query string.
    assert_redirect(&owner.get("/ui/1/ten?filter=n:1&view=json").await, "/ui/1/ten/active/?filter=n:1&view=json");
}

/// Regression: pages silently showed only 200 records.
#[tokio::test]
async fn diff_limit_above_page_size_is_noted() {
    let owned = ten().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for (limit, shown) in [("99999", "99999"), (HUGE, HUGE)] {
        let page = owner.page(&format!("/ui/1/ten/diff?v1=1&v2=2&limit={limit}")).await;
        let note = format!("A page shows at most 200 records. The API call below returns up to {shown}.");
        assert_eq!(page.all_words(".note"), [note]);
        let call = page.one(".call a").attr("href").expect("a call").to_owned();
        assert_eq!(call, format!("/dataset/diff?dataset_id=1&v1=1&v2=2&limit={limit}"));
        assert_eq!(owner.get(&call).await.status, 200);
    }
    assert!(owner.page("/ui/1/ten/diff?v1=1&v2=2&limit=200").await.select(".note").is_empty());
}

/// Regression: the position was shown as 18,446,744,073,709,551,615.
#[tokio::test]
async fn position_error_repeats_typed_number() {
    let owned = ten().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for uri in [
        format!("/ui/1/ten/v2/entity/{HUGE}"),
        format!("/ui/1/ten/v2/alternate/edit?position={HUGE}"),
        format!("/ui/1/ten/v2/alternate/edit?entity={HUGE}"),
    ] {
        let message = owner.error(&uri, 404).await.words("[role=alert]");
        assert!(message.starts_with(&format!("There is no position {HUGE}: ")), "{uri}: {message}");
    }
    let long = "9".repeat(8_000);
    let message = owner.error(&format!("/ui/1/ten/v2/entity/{long}"), 404).await.words("[role=alert]");
    assert!(
        message.starts_with(&format!("There is no position {}…: ", &long[..40])) && message.len() < 200,
        "{message}"
    );
    let past = owner.page("/ui/1/ten/v1/profile?from=4711").await;
    assert_eq!(past.words(".result h2"), "There is no path number 4,712 (1 path in total).");
}

/// Regression: a long text was repeated as a whole or truncated silently.
#[tokio::test]
async fn search_text_is_limited() {
    let owned = ten().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let visitor = Browser::visitor(&owned.service);
    let long = "x".repeat(60_000);
    for browser in [&owner, &visitor] {
        for uri in ["/?q=", "/?after=3&q=", "/ui/1/ten/v1/profile?q="] {
            let page = browser.error(&format!("{uri}{long}"), 400).await;
            assert!(page.words("#problem").contains("longer than 200 characters"), "{uri}");
            assert_eq!(page.one("#q").attr("value").map(str::len), Some(200), "{uri}");
            assert!(page.text.len() < 12_000, "{uri}: {}", page.text.len());
        }
        let within = "n".repeat(200);
        browser.page(&format!("/?q={within}")).await;
        assert_eq!(
            browser.page(&format!("/ui/1/ten/v1/profile?q={within}")).await.one("#q").attr("value"),
            Some(&*within)
        );
    }
}
