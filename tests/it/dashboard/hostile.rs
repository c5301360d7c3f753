//! Values that could break a page or run code are escaped.

use std::collections::BTreeSet;

use serde_json::json;
use strata_testing::html::{Page, words};
use strata_testing::owned::Owned;
use strata_testing::{OWNER, TestService};

use super::Browser;

const SCRIPT: &str = "</td><script>alert(1)</script><img src=x onerror=alert(1)>'\"";

/// Contains characters that are invisible or that change the direction of the following text.
const REORDERING: &str = "abc\u{202e}def\u{0}\u{200b}";

/// Asserts that `text` is shown and that no value has become an element. `Page` checks scripts and attributes.
#[track_caller]
fn assert_shown(page: &Page, text: &str) {
    assert!(page.select("img, b").is_empty());
    assert!(page.words("body").contains(text), "{}", page.text);
}

#[tokio::test]
async fn scripts_in_names_and_values_are_escaped() {
    let owned = Owned::sqlite().await;
    let about = json!({"description": SCRIPT, "licence": SCRIPT, "listed": true});
    let mut entity =
        json!({"deep": {SCRIPT: [SCRIPT]}, "url": "javascript:alert(1)", "web": "https://a.test/?<b>&\"'"});
    entity[SCRIPT] = json!(SCRIPT);
    let twice = json!([entity, entity]).to_string();
    let id = owned.dataset(&format!("X {SCRIPT}"), about, &[&twice, &twice]).await;
    let visitor = Browser::visitor(&owned.service);
    let page = visitor.page("/").await;
    assert_shown(&page, SCRIPT);
    let browse = page.select(".card h3 a")[0].attr("href").expect("a link").to_owned();
    assert!(browse.starts_with(&format!("/ui/{id}/x-")), "{browse}");
    for query in ["", "?view=json", "?flatten=true"] {
        let page = visitor.page(&format!("{browse}{query}")).await;
        assert_shown(&page, SCRIPT);
        let outside: Vec<_> = page.links().into_iter().filter(|link| !link.starts_with('/')).collect();
        let expected: &[&str] = if query == "?view=json" { &[] } else { &["https://a.test/?%3Cb%3E&%22%27"] };
        assert_eq!(outside, expected, "{query}");
        // Every link works.
        for link in page.links().into_iter().filter(|link| link.starts_with('/') && !link.contains("/openapi")) {
            let answer = visitor.get(&link).await;
            assert_eq!(answer.status, 200, "{link}");
        }
    }
    let base = browse.trim_end_matches("active/");
    assert_shown(&visitor.page(&format!("{base}v1/entity/0")).await, SCRIPT);
    assert_shown(&visitor.page(&format!("{base}v1/profile")).await, SCRIPT);
    assert_shown(&visitor.page(&format!("{base}versions")).await, SCRIPT);
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    assert_shown(&owner.page(&format!("{base}manage/freeze?version=1")).await, SCRIPT);
    // A window title has no elements for code points.
    let id = owned.dataset("a\u{202e}b", json!({}), &["[{}]"]).await;
    let page = visitor.page(&format!("/ui/{id}/a-b/active/")).await;
    assert_eq!(page.words("title"), "a\u{fffd}b v1 · strata");
}

#[tokio::test]
async fn scripts_in_urls_are_escaped() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    let escaped = form_urlencoded::Serializer::new(String::new()).append_pair("x", SCRIPT).finish();
    let escaped = escaped.trim_start_matches("x=");
    for (uri, status) in [
        (format!("/?q={escaped}"), 200),
        (format!("/?after={escaped}"), 400),
        (format!("/ui/sign-in?next={escaped}"), 200),
        (format!("/ui/1/ten/active/?{escaped}={escaped}"), 200),
        (format!("/ui/1/ten/active/?filter={escaped}:{escaped}&keywords={escaped}"), 200),
        (format!("/ui/1/ten/active/?keep_field={escaped}&dedup_key={escaped}&sort={escaped}"), 200),
        (format!("/ui/1/ten/active/?limit={escaped}"), 400),
        (format!("/ui/1/ten/active/?view={escaped}"), 400),
        (format!("/ui/1/ten/active/profile?q={escaped}&from={escaped}"), 400),
        (format!("/ui/1/ten/active/entity/{escaped}"), 400),
        (format!("/ui/1/ten/versions?before={escaped}&done={escaped}"), 400),
        (format!("/ui/1/{escaped}/active/"), 404),
        (format!("/ui/{escaped}/ten/active/"), 400),
        (format!("/ui/1/ten/{escaped}/"), 400),
    ] {
        let page = Page::parse(&visitor.get(&uri).await, status);
        assert!(page.select("img").is_empty(), "{uri}");
    }
    let owner = Browser::user(&service, OWNER).await;
    Page::parse(&owner.get(&format!("/ui/1/ten/manage/pin?version={escaped}")).await, 400);
    Page::parse(&owner.get("/ui/1/ten/manage/pin?version=7").await, 404);
}

#[tokio::test]
async fn invisible_text_is_shown_as_code_points() {
    let owned = Owned::sqlite().await;
    let entity = json!({"text": REORDERING, "k\u{202e}": 1, "family": "👩\u{200d}👧", "arabic": "سلام"});
    let id = owned.dataset("Odd", json!({"description": "d\u{202e}"}), &[&json!([entity]).to_string()]).await;
    let visitor = Browser::visitor(&owned.service);
    // In the last case, hints contain the texts.
    let ranges = "filter_gt=text:1&filter_lt=k%E2%80%AE:%E2%80%AE%E2%80%8B";
    for uri in ["active/", "active/?view=json", "v1/entity/0", &format!("active/?{ranges}")] {
        let page = visitor.page(&format!("/ui/{id}/odd/{uri}")).await;
        let names = page.all_words("main .ctl");
        assert!(!page.all_words("main bdi, main td").iter().any(|text| text.contains('\u{202e}')), "{uri}");
        assert!(names.contains(&"U+202E".to_owned()) && names.contains(&"U+200B".to_owned()), "{uri}: {names:?}");
        for element in page.select("main *") {
            let mut attributes = element.value().attrs();
            // Values in forms and attributes for the script are not changed.
            let is_read = |name: &str| matches!(name, "aria-label" | "title" | "alt" | "placeholder");
            let hides = attributes.find(|(name, value)| is_read(name) && value.contains('\u{202e}'));
            assert!(hides.is_none(), "{uri}: {hides:?}");
        }
        if uri.contains("filter") {
            assert_eq!(page.select(".hints li").len(), 2, "{uri}");
            assert!(!page.words(".hints").contains('\u{202e}'), "{uri}");
            continue;
        }
        assert!(page.text.contains("👩\u{200d}👧") && page.text.contains("سلام"), "{uri}");
        // Texts of users are isolated from the text direction around them.
        let cell = page.select("bdi, .entities td").into_iter().find(|apart| words(*apart).contains("سلام"));
        assert!(cell.is_some(), "{uri}");
    }
}

/// Regression: browsers replace some characters, so that the script confused two columns.
#[tokio::test]
async fn similar_columns_have_different_keys() {
    let service = TestService::start().await;
    service.import("Odd", &json!([{"a\u{0}": 1, "a\u{fffd}": 2, "b\r\n": 3, "b\n": 4, "c": 5}]).to_string()).await;
    let page = Browser::visitor(&service).page("/ui/1/odd/active/").await;
    let heads = page.select("thead th[data-column]");
    let keys: BTreeSet<_> = heads.iter().filter_map(|head| head.attr("data-column")).collect();
    assert_eq!(keys.len(), heads.len(), "{keys:?}");
    assert!(keys.contains("c"));
}

#[tokio::test]
async fn text_is_a_link_only_if_it_is_a_web_url() {
    let service = TestService::start().await;
    let texts = [
        "javascript:alert(1)",
        "data:text/html,x",
        "https://",
        "https://a b",
        " https://a.test",
        "https://good@evil.test/",
    ];
    service
        .import("Links", &json!([{"url": "https://a.test/?a=1&b='\"", "texts": texts, "one": texts[5]}]).to_string())
        .await;
    let visitor = Browser::visitor(&service);
    for uri in ["active/?columns=url,one", "active/entity/0"] {
        let page = visitor.page(&format!("/ui/1/links/{uri}")).await;
        let links: Vec<_> = page.links().into_iter().filter(|link| !link.starts_with('/')).collect();
        assert_eq!(links, ["https://a.test/?a=1&b=%27%22"], "{uri}");
    }
}

/// Regression: pages showed no entities and skipped the oversized one.
#[tokio::test]
async fn oversized_entity_is_noted() {
    let service = TestService::start().await;
    let large = json!({"n": 1, "text": "x".repeat(3_000_000)}).to_string();
    service.import("Large", &format!("{{\"n\":0}}\n{large}\n{{\"n\":2}}")).await;
    let visitor = Browser::visitor(&service);
    for view in ["", "view=json&"] {
        let first = visitor.page(&format!("/ui/1/large/active/?{view}")).await;
        assert!(first.words("#result").starts_with("1 of 3"), "{}", first.words("#result"));
        let page = visitor.page(&first.link("Next")).await;
        assert!(page.words("#result").starts_with("2 of 3"), "{}", page.words("#result"));
        let note = "The entity at position 1 is too large to show on this page.";
        assert_eq!(page.all_words(".note"), [note]);
        assert_eq!(page.link("1"), "/ui/1/large/active/entity/1");
        assert!(visitor.page(&page.link("1")).await.text.len() < 1_500_000);
        let next = visitor.page(&page.link("Next")).await;
        assert!(next.words("#result").starts_with("3 of 3"), "{}", next.words("#result"));
    }
    let last = visitor.page("/ui/1/large/active/?filter=n:1").await;
    assert!(last.words("#result").starts_with("1 of 1 entity"), "{}", last.words("#result"));
    assert!(!last.text.contains("The next page") && last.select("a[rel=next]").is_empty());
}

#[tokio::test]
async fn long_values_are_truncated() {
    let service = TestService::start().await;
    let long = "<".repeat(1_000_000);
    let text = format!(
        "{{\"n\":0,\"long\":\"{long}\"}}\n{{\"n\":1,\"long\":\"{long}\"}}\n{{\"n\":2,\"long\":\"{long}\"}}\n{{\"n\":3}}"
    );
    service.import("Long", &text).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/long/active/").await;
    assert!(page.text.len() < 100_000, "{}", page.text.len());
    assert!(page.words(".scroll").contains("… shortened, 1.0 MB in total"));
    // The page reads two of these entities, and the next page begins after them.
    assert_eq!(page.all_words("tbody tr > td:nth-child(2)"), ["0", "1"]);
    assert!(page.words(".note").contains("2 of 4 fit on this page"));
    assert_eq!(page.link("Next"), "/ui/1/long/active/?offset=2");
    let next = visitor.page(&page.link("Next")).await;
    assert_eq!(next.all_words("tbody tr > td:nth-child(2)"), ["2", "3"]);
    for uri in ["/ui/1/long/active/?view=json", "/ui/1/long/v1/entity/0", "/ui/1/long/v1/profile"] {
        let page = visitor.page(uri).await;
        assert!(page.text.len() < 1_500_000, "{uri}: {}", page.text.len());
    }
    let huge = format!("{{\"a\":\"{}\"}}\n{{\"a\":\"b\"}}", "x".repeat(3_000_000));
    service.import("Huge", &huge).await;
    let page = visitor.page("/ui/2/huge/active/").await;
    assert!(page.words(".note").contains("position 0 is too large"), "{}", page.words(".note"));
    let next = visitor.page(&page.link("Next")).await;
    assert_eq!(next.all_words("tbody tr > th"), ["1"]);
    let entity = visitor.page("/ui/2/huge/v1/entity/0").await;
    assert!(entity.words(".note").starts_with("This entity is too large to show on this page."));
    assert_eq!(visitor.get(&entity.link("open it as JSON")).await.status, 200);
}

#[tokio::test]
async fn many_paths_and_deep_values_are_truncated() {
    let service = TestService::start().await;
    let wide: serde_json::Map<_, _> = (0..5_000).map(|number| (format!("path{number}"), json!(number))).collect();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(120), "]".repeat(120));
    service.import("Wide", &format!("{}\n{deep}", serde_json::Value::from(wide))).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/wide/active/").await;
    assert!(page.text.len() < 400_000, "{}", page.text.len());
    assert!(page.words("main").contains("more columns are not shown"));
    let entity = visitor.page("/ui/1/wide/v1/entity/0").await;
    assert!(entity.words(".note").contains("only part of the entity"));
    visitor.page("/ui/1/wide/v1/entity/1").await;
    let mut uri = "/ui/1/wide/v1/profile?q=path49".to_owned();
    let mut paths = 0;
    loop {
        let page = visitor.page(&uri).await;
        paths += page.select("section.path").len();
        match page.select("a[rel=next]").first() {
            Some(next) => uri = next.attr("href").expect("a target").to_owned(),
            None => break,
        }
    }
    assert_eq!(paths, 111);
}

/// Regression: some invisible characters and the empty field name were not shown.
#[tokio::test]
async fn invisible_characters_and_empty_keys_have_names() {
    let service = TestService::start().await;
    let unseen = "a\u{ad}\u{2800}\u{3164}\u{e0067}";
    let wales = "\u{1F3F4}\u{E0067}\u{E0062}\u{E0077}\u{E006C}\u{E0073}\u{E007F}";
    let entity = json!({"unseen": unseen, "flag": wales, "blank": " \t", "none": "", "": "without a name"});
    service.import("Odd", &json!([entity, entity]).to_string()).await;
    let visitor = Browser::visitor(&service);
    let names = ["U+00AD", "U+2800", "U+3164", "U+E0067", "U+0020", "U+0009"].map(str::to_owned);
    for uri in ["active/", "active/entity/0", "active/profile"] {
        let page = visitor.page(&format!("/ui/1/odd/{uri}")).await;
        let shown: BTreeSet<String> = page.all_words("main .ctl").into_iter().collect();
        assert_eq!(shown, names.iter().cloned().collect(), "{uri}");
        assert!(page.text.contains(wales), "{uri}: a flag is one character");
    }
    let page = visitor.page("/ui/1/odd/active/").await;
    assert_eq!(
        page.all_words(".fields > ul > li > details > summary code").last().map(String::as_str),
        Some("(empty)")
    );
    assert!(page.words(".fields > ul > li:last-child .values").starts_with("without a name"));
    assert!(page.select(".fields > ul > li:last-child a").is_empty(), "the field has no path");
    let entity = visitor.page("/ui/1/odd/active/entity/0").await;
    assert!(entity.all_words(".entity dt").contains(&"(empty)".to_owned()));
    // Regression: a condition looked the same with and without a trailing space.
    let page = visitor.page("/ui/1/odd/active/?filter=flag:%20ok").await;
    assert!(page.words(".parts").starts_with("Remove: flag is U+0020 ok"), "{}", page.words(".parts"));
    assert_eq!(page.link("Change to: flag is ok"), "/ui/1/odd/active/?filter=flag:ok");
}
