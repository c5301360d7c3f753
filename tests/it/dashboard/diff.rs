//! `…/diff`: compares two versions, or a version and its alternate.

use serde_json::{Value, json};
use strata_testing::html::Page;
use strata_testing::owned::{Owned, add_user};
use strata_types::limits::MAX_DIFF_SUMMARY_ENTITIES;
use strata_types::user::UserPlan;

use super::{Browser, comparison_rows};

const SCRIPT: &str = "</td><script>alert(1)</script><img src=x onerror=alert(1)>'\"";

/// Creates a dataset with two versions: one entity is modified, one removed, one added, and one unchanged.
async fn two(settings: Value) -> (Owned, u64) {
    let owned = Owned::sqlite().await;
    let one = r#"[{"name":"Ada","given":"Augusta","k":"k","l":"l","born":1815,"tags":["a","b"],"at":{"city":"London","zip":"1"}},{"name":"Bob","x":1},{"name":"Same","y":1}]"#;
    let other = r#"[{"name":"Ada","given":"Augusta","k":"k","l":"l","born":1816,"tags":["a","c","b"],"at":{"city":"London"}},{"name":"Same","y":1.0},{"title":"New"}]"#;
    let id = owned.dataset("Ten", settings, &[one, other]).await;
    (owned, id)
}

async fn owner(owned: &Owned) -> Browser<'_> {
    Browser::user(&owned.service, "ada@strata.test").await
}

#[tokio::test]
async fn diff_has_totals_summary_and_records() {
    let (owned, id) = two(json!({})).await;
    let owner = owner(&owned).await;
    let page = owner.page(&format!("/ui/{id}/ten/diff?v1=1&v2=2")).await;
    let totals = page.all_words(".totals > div");
    assert_eq!(totals, ["Version 1 3", "removed 1", "changed 1", "added 1", "unchanged 1", "Version 2 3"]);
    assert_eq!(page.all_words(".summary tbody th"), ["at.zip", "born", "tags"]);
    assert_eq!(page.all_words(".summary tbody td.number"), ["1", "1", "1"]);
    assert!(!page.words(".summary caption").contains("It counts"), "all paths are counted");
    assert_eq!(
        page.all_words(".record h4"),
        [
            "Changed entity 0 of version 1 → to entity 0 of version 2 3 paths differ",
            "Removed entity 1 of version 1",
            "Added entity 2 of version 2"
        ]
    );
    let found = comparison_rows(&page);
    assert_eq!(found[0], "born changed 1815 1816");
    assert_eq!(found[1], "tags[1] added missing \"c\"");
    assert_eq!(found[2], "at.zip removed \"1\" missing");
    assert_eq!(found[3..], ["name removed \"Bob\"", "x removed 1", "title added \"New\""]);
    // The table of an added or removed entity has one value column.
    for (kind, heads) in [
        ("modified", &["Path", "Version 1", "Version 2"][..]),
        ("subtracted", &["Path", "Version 1"]),
        ("added", &["Path", "Version 2"]),
    ] {
        assert_eq!(page.all_words(&format!(".record.{kind} thead th[scope=col]")), heads, "{kind}");
        for row in page.select(&format!(".record.{kind} tbody tr")) {
            assert_eq!(row.child_elements().count(), heads.len(), "{kind}: {}", row.html());
        }
    }
    assert_eq!(page.all_words("del"), ["1815", "1", "Bob", "1"]);
    assert_eq!(page.all_words("ins"), ["1816", "c", "New"]);
    for link in page.links().iter().filter(|link| link.starts_with("/ui/")) {
        assert_eq!(owner.get(link).await.status, 200, "{link}");
    }
    // The page links to the equivalent API call, which accepts the session.
    let call = page.one(".call a").attr("href").expect("a call").to_owned();
    assert_eq!(call, format!("/dataset/diff?dataset_id={id}&v1=1&v2=2&limit=20"));
    let answer: Value = serde_json::from_str(owner.get(&call).await.text()).expect("JSON");
    assert_eq!((&answer["modified"], answer["records"].as_array().map(Vec::len)), (&json!(1), Some(3)));

    // All fields are shown on request.
    let whole = owner.page(&page.link("Show unchanged fields")).await;
    assert_eq!(comparison_rows(&whole)[0], "name same \"Ada\" \"Ada\"");
    assert_eq!(whole.link("Hide unchanged fields"), format!("/ui/{id}/ten/diff?v1=1&v2=2"));
}

#[tokio::test]
async fn records_are_filtered_by_type_and_paged() {
    let owned = Owned::sqlite().await;
    let list = |from: usize, to: usize, version: usize| {
        let entities: Vec<String> = (from..to).map(|n| format!("{{\"n\":{n},\"m\":{n},\"v\":{version}}}")).collect();
        format!("[{}]", entities.join(","))
    };
    let more = MAX_DIFF_SUMMARY_ENTITIES + 30;
    let id = owned.dataset("Ten", json!({}), &[&list(0, more, 1), &list(5, more + 7, 2)]).await;
    let owner = owner(&owned).await;
    let uri = format!("/ui/{id}/ten/diff?v1=v1&v2=latest");
    let page = owner.page(&uri).await;
    let kinds = page.all_words("nav[aria-label='Change types'] a");
    assert_eq!(
        kinds,
        ["All 1,037".to_owned(), "Changed 1,025".to_owned(), "Removed 5".to_owned(), "Added 7".to_owned()]
    );
    let caption = page.words(".summary caption");
    assert!(caption.contains("This table covers only the first 1,000 of 1,025 changed entities."), "{caption}");
    assert_eq!(page.all_words(".summary tbody td.number"), ["1,000"]);
    assert_eq!(page.select(".record").len(), 20);

    let added = owner.page(&page.link("Added 7")).await;
    assert_eq!((added.select(".record").len(), added.select(".record.added").len()), (7, 7));
    assert!(added.select(".summary").is_empty() && added.select("nav.pages").is_empty());
    owner.page(&added.link("Summary by path")).await.one(".summary");

    // Paging shows every record once.
    let mut uri = format!("{uri}&limit=200");
    let mut records = Vec::new();
    let mut pages = 0;
    loop {
        let page = owner.page(&uri).await;
        records.extend(page.all_words(".record h4"));
        pages += 1;
        match page.select("a[rel=next]").first() {
            Some(next) => uri = next.attr("href").expect("a target").to_owned(),
            None => break,
        }
    }
    assert_eq!((records.len(), pages), (1_037, 6));
    records.sort();
    records.dedup();
    assert_eq!(records.len(), 1_037);
    let last = owner.page(&page.link("Last")).await;
    assert_eq!(last.select(".record").len(), 17);
    let before = owner.page(&last.link("Previous")).await;
    assert_eq!(before.select(".record").len(), 20);
    let past = owner.page(&format!("/ui/{id}/ten/diff?v1=1&v2=2&offset=99999999999999999999")).await;
    assert!(past.select(".record").is_empty());
    assert!(past.words(".note").ends_with("The last record is 1,036."), "{}", past.words(".note"));
    owner.page(&past.link("Previous")).await;
}

#[tokio::test]
async fn alternate_is_compared_with_its_version() {
    let (owned, id) = two(json!({})).await;
    let owner = owner(&owned).await;
    let uri = format!("/ui/{id}/ten/diff?v1=2&v2=2&alt=true");
    let none = owner.error(&uri, 404).await;
    assert!(none.words("[role=alert]").contains("has no alternate"));
    assert_eq!(none.one("#v1").attr("value"), Some("2"));
    assert!(none.one("input[name=alt]").attr("checked").is_some());
    let alternate = r#"[{"name":"Ada","given":"Augusta","k":"k","l":"l","born":1816,"tags":["a","c","b"],"at":{"city":"Paris"}},{"name":"Same","y":1}]"#;
    assert_eq!(owned.save(id, 2, alternate).await.status, 200);
    let page = owner.page(&uri).await;
    assert_eq!(page.all_words(".totals > div")[5], "Version 2, alternate 2");
    assert_eq!(comparison_rows(&page)[0], "at.city changed \"London\" \"Paris\"");
    let links = page.links();
    assert!(links.contains(&format!("/ui/{id}/ten/v2/alt/entity/0")), "{links:?}");
    for link in links.iter().filter(|link| link.starts_with("/ui/")) {
        assert_eq!(owner.get(link).await.status, 200, "{link}");
    }
    // The API returns the same numbers.
    let call = page.one(".call a").attr("href").expect("a call").to_owned();
    let answer: Value = serde_json::from_str(owner.get(&call).await.text()).expect("JSON");
    assert_eq!((&answer["modified"], &answer["subtracted"], &answer["total_v2"]), (&json!(1), &json!(1), &json!(2)));
    let versions = owner.page(&format!("/ui/{id}/ten/versions")).await;
    assert_eq!(versions.link("Changes in the alternate"), uri);
    let changes = versions.one("a[aria-label='Changes in version 2']").attr("href");
    assert_eq!(changes, Some(&*format!("/ui/{id}/ten/diff?v1=1&v2=2")));
    assert_eq!(versions.one("form.line[method=get]").attr("action"), Some(&*format!("/ui/{id}/ten/diff")));
}

#[tokio::test]
async fn comparison_error_is_shown_in_form() {
    let (owned, id) = two(json!({})).await;
    let owner = owner(&owned).await;
    let uri = format!("/ui/{id}/ten/diff");
    let form = owner.page(&uri).await;
    assert!(form.select("[role=alert]").is_empty() && form.words("#versions").contains("1 to 2"));
    owner.page(&format!("{uri}?v1=&v2=")).await;
    for (query, status, message) in [
        ("v1=1", 400, "v2: missing"),
        ("v1=x&v2=2", 400, "v1"),
        ("v1=1&v2=9", 404, "versions are 1 to 2"),
        ("v1=1&v2=2&limit=x", 400, "limit"),
        ("v1=1&v2=2&change_type=x", 400, "valid: added, subtracted, modified"),
        ("v1=1&v2=2&dataset_id=99", 400, "specified more than once"),
        ("v1=1&v2=%3Cscript%3E", 400, "<script>"),
    ] {
        let page = owner.error(&format!("{uri}?{query}"), status).await;
        assert!(page.words("[role=alert]").contains(message), "{query}: {}", page.words("[role=alert]"));
    }
    let same = owner.page(&format!("{uri}?v1=1&v2=1&dataset_id={id}")).await;
    assert_eq!(same.words(".note"), "Both contain the same entities.");
    // The page lists unknown parameters, and the API call omits them.
    let odd = owner.page(&format!("{uri}?v1=1&v2=2&odd=x")).await;
    assert_eq!(
        odd.words(".note.ignored"),
        "This page ignores unknown parameters: \"odd\"; valid: v1, v2, change_type, alt, offset, limit, view, \
         of."
    );
    assert_eq!(odd.select(".record").len(), 3);
    assert!(!odd.words(".call").contains("odd"), "{}", odd.words(".call"));
}

#[tokio::test]
async fn only_owner_can_compare() {
    for settings in [json!({"listed": true}), json!({"private": true})] {
        let (owned, id) = two(settings).await;
        add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
        let other = Browser::user(&owned.service, "other@strata.test").await;
        let uri = format!("/ui/{id}/ten/diff?v1=1&v2=2");
        let refused = other.error(&uri, 404).await;
        let missing = other.error("/ui/999/ten/diff?v1=1&v2=2", 404).await;
        assert_eq!(refused.words("[role=alert]"), missing.words("[role=alert]"));
        let visitor = Browser::visitor(&owned.service);
        let refused = visitor.error(&uri, 401).await;
        let missing = visitor.error("/ui/999/ten/diff", 401).await;
        assert_eq!(refused.words("[role=alert]"), missing.words("[role=alert]"));
        Page::parse(&owner(&owned).await.get(&format!("/ui/{id}/other/diff?v1=1&v2=2")).await, 404);
    }
}

#[tokio::test]
async fn frozen_dataset_can_be_compared_by_owner() {
    let (owned, id) = two(json!({})).await;
    let body = json!({"dataset_id": id, "version_number": 2, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &body).await.status, 200);
    let page = owner(&owned).await.page(&format!("/ui/{id}/ten/diff?v1=1&v2=2")).await;
    assert_eq!(page.select(".record").len(), 3);
    assert!(!page.links().iter().any(|link| link.contains("/entity/")), "readers get 410");
}

#[tokio::test]
async fn hostile_values_are_escaped_and_truncated() {
    let owned = Owned::sqlite().await;
    let entity =
        |value: &str| json!([{SCRIPT: {"odd": [value]}, "k\u{202e}": "abc\u{202e}\u{0}", "same": 1}]).to_string();
    let id = owned.dataset("Odd", json!({}), &[&entity(SCRIPT), &entity("<b>\u{200b}")]).await;
    let owner = owner(&owned).await;
    for query in ["v1=1&v2=2", "v1=1&v2=2&view=whole"] {
        let page = owner.page(&format!("/ui/{id}/odd/diff?{query}")).await;
        assert!(page.select("img, b").is_empty());
        assert!(page.words("body").contains("alert(1)"));
        assert!(page.all_words("main .ctl").contains(&"U+200B".to_owned()), "{query}");
        assert!(!page.text.contains('\u{202e}'), "{query}");
    }
    // A string of 10 MB, a long array, and many paths.
    let long = |end: &str| {
        format!("[{{\"n\":1,\"m\":2,\"long\":\"{}{end}\"}},{{\"n\":2,\"m\":2,\"k\":3}}]", "x".repeat(10_000_000))
    };
    let id = owned.dataset("Long", json!({}), &[&long("a"), &long("b").replace("\"k\":3", "\"k\":4")]).await;
    let page = owner.page(&format!("/ui/{id}/long/diff?v1=1&v2=2")).await;
    assert!(page.words("main").contains("too large for this page"), "{}", page.words("main"));
    assert!(page.text.len() < 100_000);
    let next = owner.page(&page.link("Next")).await;
    assert_eq!(comparison_rows(&next), ["k changed 3 4"]);
    let wide = |value: usize| {
        let members: Vec<String> = (0..5_000).map(|n| format!("\"p{n}\":{}", n + value)).collect();
        format!("[{{\"n\":1,\"same\":1,\"list\":[{}],{}}}]", vec!["7"; 50_000].join(","), members.join(","))
    };
    let wide = [wide(0), wide(0).replace("\"p1\":1", "\"p1\":2"), wide(1).replace(",7", ",[8]")];
    let id = owned.dataset("Wide", json!({}), &[&wide[0], &wide[1], &wide[2]]).await;
    let page = owner.page(&format!("/ui/{id}/wide/diff?v1=1&v2=2")).await;
    assert_eq!(comparison_rows(&page), ["p1 changed 1 2"]);
    let whole = owner.page(&format!("/ui/{id}/wide/diff?v1=1&v2=2&view=whole")).await;
    assert!(whole.words("main").contains("54,") || whole.words("main").contains("paths are not shown"));
    assert!(whole.text.len() < 1_000_000, "{}", whole.text.len());
    let page = owner.page(&format!("/ui/{id}/wide/diff?v1=1&v2=3")).await;
    assert!(page.text.len() < 1_000_000, "{}", page.text.len());
}

#[tokio::test]
async fn visitors_see_changes_of_version() {
    let (owned, id) = two(json!({})).await;
    let visitor = Browser::visitor(&owned.service);
    let uri = format!("/ui/{id}/ten/v2/changes");
    let page = visitor.page(&uri).await;
    let owner = owner(&owned).await;
    let compared = owner.page(&format!("/ui/{id}/ten/diff?v1=1&v2=2")).await;
    // The results are the same as in the owner's comparison.
    for selector in [".totals > div", ".summary tbody tr", ".record h4", "nav[aria-label='Change types'] a"] {
        assert_eq!(page.all_words(selector), compared.all_words(selector), "{selector}");
    }
    assert_eq!(comparison_rows(&page), comparison_rows(&compared));
    for link in page.links().iter().filter(|link| link.starts_with("/ui/")) {
        assert_eq!(visitor.get(link).await.status, 200, "{link}");
    }
    assert!(!page.links().iter().any(|link| link.contains("/diff")), "{:?}", page.links());
    let call = page.one(".call a").attr("href").expect("a call").to_owned();
    assert_eq!(call, format!("/changes/{id}/ten/v2/?since=v1"));
    assert_eq!(visitor.get(&call).await.text().lines().count(), 4);

    let added = visitor.page(&page.link("Added 1")).await;
    assert_eq!(added.all_words(".record h4"), ["Added entity 2 of version 2"]);
    let whole = visitor.page(&page.link("Show unchanged fields")).await;
    assert_eq!(comparison_rows(&whole)[0], "name same \"Ada\" \"Ada\"");
    assert_eq!(whole.link("Hide unchanged fields"), uri);
    let past = visitor.page(&format!("{uri}?offset=7")).await;
    assert!(past.words(".note").ends_with("The last record is 2."), "{}", past.words(".note"));
    visitor.error(&format!("{uri}?change_type=new"), 400).await;
    visitor.error(&format!("{uri}?view=all"), 400).await;
    visitor.error(&format!("/ui/{id}/ten/v3/changes"), 404).await;
    let ignored = visitor.page(&format!("{uri}?v1=7&limit=1")).await;
    assert_eq!(ignored.select(".record").len(), 3);
    let note = "This page ignores unknown parameters: \"v1\", \"limit\"";
    assert!(ignored.words(".note.ignored").starts_with(note), "{}", ignored.words(".note.ignored"));
}

#[tokio::test]
async fn changes_are_linked_from_pages_of_version() {
    let (owned, id) = two(json!({})).await;
    let visitor = Browser::visitor(&owned.service);
    let links = |page: &Page| -> Vec<String> {
        page.links().into_iter().filter(|link| link.starts_with("/ui/1/") && link.ends_with("/changes")).collect()
    };
    for (page, version) in [("v2/", "v2"), ("v1/profile", "v1"), ("active/", "active"), ("active/changes", "v2")] {
        let page = visitor.page(&format!("/ui/{id}/ten/{page}")).await;
        assert_eq!(links(&page), [format!("/ui/{id}/ten/{version}/changes")]);
    }
    let versions = visitor.page(&format!("/ui/{id}/ten/versions")).await;
    assert_eq!(links(&versions), ["active", "v2"].map(|version| format!("/ui/{id}/ten/{version}/changes")));
    let first = visitor.page(&format!("/ui/{id}/ten/v1/changes")).await;
    assert!(first.select(".record, .call").is_empty());
    assert!(first.words("main").contains("there is no earlier version to compare it with"));
    // An alternate has no changes, so its pages link to the changes of its version.
    assert_eq!(owned.save(id, 2, "[{\"n\":9}]").await.status, 200);
    let alternate = visitor.page(&format!("/ui/{id}/ten/v2/alt/")).await;
    assert_eq!(links(&alternate), [format!("/ui/{id}/ten/v2/changes")]);
}

#[tokio::test]
async fn changes_have_access_rules_of_queries() {
    let (owned, id) = two(json!({"private": true})).await;
    let uri = format!("/ui/{id}/ten/v2/changes");
    Browser::visitor(&owned.service).error(&uri, 404).await;
    let owner = owner(&owned).await;
    let page = owner.page(&uri).await;
    assert_eq!(page.select(".record").len(), 3);
    assert!(page.select(".call a").is_empty(), "a browser cannot send a private key");
    assert!(page.words(".call").contains("Authorization: Bearer PRIVATE_KEY"));

    let public = json!({"dataset_id": id, "private": false}).to_string();
    assert_eq!(owned.call("POST", "/dataset/update", &public).await.status, 200);
    let visitor = Browser::visitor(&owned.service);
    visitor.page(&uri).await;
    let freeze = json!({"dataset_id": id, "version_number": 2, "freeze": true}).to_string();
    assert_eq!(owned.call("POST", "/dataset/rollback", &freeze).await.status, 200);
    visitor.error(&uri, 410).await;
    assert!(owner.error(&uri, 410).await.words("main").contains("frozen"));
}
