//! The page of a version's entities: its contents and its links.

use serde_json::{Value, json};
use strata_testing::html::{Page, words};
use strata_testing::owned::Owned;
use strata_testing::{OWNER, TestService};

use super::{Browser, assert_redirect};

/// Imports ten entities with `n` from 0 to 9 and `k` from 0 to 4.
async fn ten() -> TestService {
    let service = TestService::start().await;
    let entities: Vec<String> =
        (0..10).map(|n| format!("{{\"n\":{n},\"k\":{},\"in\":{{\"x\":[1,2]}}}}", n / 2)).collect();
    service.import("Ten", &entities.join("\n")).await;
    service
}

const TEN: &str = "/ui/1/ten/active/";

/// Returns the first column after the positions.
fn first_column(page: &Page) -> Vec<String> {
    page.all_words("tbody tr > td:nth-child(2)")
}

fn positions(page: &Page) -> Vec<String> {
    page.all_words("tbody tr > th")
}

#[tokio::test]
async fn page_shows_entities_of_equivalent_read() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    for query in [
        "",
        "filter=k:3",
        "filter_contains=n:1&sort=n:desc",
        "filter_gt=n:2&filter_lte=n:5",
        "keywords=4,7",
        "sort=n:desc&limit=3&offset=2",
        "dedup=true&dedup_key=k",
        "sample=4&seed=3",
        "keep_field=n&limit=2",
        "format=csv&filter=k:1",
        "count=false&denull=1",
        "offset=20",
        "limit=0",
    ] {
        let page = visitor.page(&format!("{TEN}?{query}")).await;
        let api = page.one(".call a").attr("href").expect("a link").to_owned();
        let read = service.get(&api.replace("format=csv", "format=json")).await;
        let entities: Vec<Value> = serde_json::from_str(read.text()).expect("JSON");
        let expected: Vec<String> = entities.iter().map(|entity| entity["n"].to_string()).collect();
        assert_eq!(first_column(&page), expected, "{query}: {api}");
        for (position, entity) in positions(&page).iter().zip(&entities) {
            assert_eq!(position, &entity["n"].to_string(), "{query}: the position in the version");
        }
        // The displayed link is the absolute URL.
        assert_eq!(page.words(".call a"), format!("http://{}{api}", super::HOST), "{query}");
    }
    let page = visitor.page(TEN).await;
    assert_eq!(page.all_words("thead th"), ["#", "n", "k", "in"]);
    assert_eq!(page.words("h2#result"), "1 to 10 of 10 entities");
    let nested = words(page.select("tbody details").into_iter().next().expect("a nested value"));
    assert_eq!(nested, "{x: […]} { \"x\": [ 1, 2 ] }");
    let page = visitor.page(&format!("{TEN}?count=1&filter=k:1")).await;
    assert_eq!((page.words(".big").as_str(), page.select("table").len()), ("2 entities", 0));
}

#[tokio::test]
async fn page_links_reach_all_entities() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let mut seen = Vec::new();
    let mut uri = format!("{TEN}?limit=3&filter_gt=n:0");
    let mut pages = 0;
    loop {
        let page = visitor.page(&uri).await;
        seen.extend(first_column(&page));
        pages += 1;
        assert!(page.words("h2#result").ends_with("of 9 entities"), "{uri}");
        match page.select("a[rel=next]").first() {
            Some(next) => uri = next.attr("href").expect("a target").to_owned(),
            None => break,
        }
    }
    assert_eq!((seen.join(""), pages), ("123456789".to_owned(), 3));
    let last = visitor.page(&uri).await;
    let first = visitor.page(&last.link("First")).await;
    assert_eq!(first_column(&first), ["1", "2", "3"]);
    assert_eq!(first.link("Last"), uri);
    assert_eq!(first_column(&visitor.page(&last.link("Previous")).await), ["4", "5", "6"]);
    // Also from a page after the last entity.
    let beyond = visitor.page(&format!("{TEN}?limit=3&offset=1000")).await;
    assert_eq!(beyond.words("h2#result"), "No entities to show from number 1,001 onward (10 entities in total).");
    assert_eq!(first_column(&visitor.page(&beyond.link("Previous")).await), ["9"]);
    let none = visitor.page(&format!("{TEN}?filter=n:77")).await;
    assert_eq!(none.words("h2#result"), "No entities match.");
    assert_eq!(
        none.all_words(".steps a"),
        ["Remove: n is 77", "Change to: n contains 77", "Search all fields for 77", "Show all entities"]
    );
    assert_eq!(first_column(&visitor.page(&none.link("Show all entities")).await).len(), 10);
    let sample = visitor.page(&format!("{TEN}?sample=4&limit=2")).await;
    assert_eq!((first_column(&sample).len(), sample.select(".pages").len()), (2, 0));
    assert!(sample.words(".note").contains("different each time"));
    assert_eq!(
        visitor.page(&format!("{TEN}?sample=4&seed=1&limit=3")).await.words("h2#result"),
        "1 to 3 of 4 entities"
    );
}

#[tokio::test]
async fn page_has_at_most_200_entities() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..450).map(|n| format!("{{\"n\":{n}}}")).collect();
    service.import("Many", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    service.import("None", "[]").await;
    assert_eq!(visitor.page("/ui/2/none/active/").await.words("h2#result"), "This version has no entities.");
    assert_eq!(first_column(&visitor.page("/ui/1/many/active/").await).len(), 50);
    let page = visitor.page("/ui/1/many/active/?limit=1000").await;
    assert_eq!(first_column(&page).len(), 200);
    assert_eq!(page.words(".note"), "A page shows at most 200 entities. The API call returns up to 1,000.");
    for all_there in ["limit=1000&filter_lt=n:150", "limit=1000&offset=250"] {
        assert!(visitor.page(&format!("/ui/1/many/active/?{all_there}")).await.select(".note").is_empty());
    }
    let next = visitor.page(&page.link("Next")).await;
    assert_eq!((first_column(&next)[0].as_str(), first_column(&next).len()), ("200", 200));
    let last = visitor.page(&page.link("Last")).await;
    assert_eq!((first_column(&last)[0].as_str(), first_column(&last).len()), ("400", 50));
    // Downloads contain more entities than a page.
    let csv = service.get(&page.link("csv")).await;
    assert_eq!(csv.text().lines().count(), 451);
}

#[tokio::test]
async fn parameter_error_is_shown_next_to_its_field() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    for (query, field) in [
        ("limit=x", Some("#limit")),
        ("filter=k:1&filter=nocolon", Some("input[name=filter][value=nocolon]")),
        ("filter=:x&keywords=a", Some("input[name=filter]")),
        ("sort=n:up", Some("#sort")),
        ("offset=-1", None),
        ("limit=1&limit=2", Some("#limit")),
        ("seed=1", Some("#seed")),
        ("unknown=1&strict=true", None),
        ("strict=true&filter=nothing:1", None),
        ("dedup=perhaps", Some("input[name=dedup]")),
        ("keywords=a&keywords_mode=xor", Some("input[name=keywords_mode]")),
        ("filter=%FF:1", None),
    ] {
        let api = service.get(&format!("/api/1/ten/active/?{query}")).await;
        let page = visitor.error(&format!("{TEN}?{query}"), api.status).await;
        let message = match query.starts_with("filter=:x") {
            true => "Enter a field name. This condition has only a value.".to_owned(),
            false => api.text().split_whitespace().collect::<Vec<_>>().join(" "),
        };
        assert_eq!(page.words("form #problem"), message, "{query}");
        assert_eq!(page.select("form #problem").len(), 1, "{query}");
        assert_eq!(page.select("form [aria-invalid]").len(), usize::from(field.is_some()), "{query}");
        if let Some(field) = field {
            let field = page.one(field);
            assert_eq!((field.attr("aria-invalid"), field.attr("aria-describedby")), (Some("true"), Some("problem")));
            assert!(page.select("details.more:not([open]) #problem").is_empty(), "{query}: the problem is hidden");
        }
        assert!(page.select("table").is_empty());
    }
    // The form contains the invalid values, so that the user can correct them.
    let page = visitor.error(&format!("{TEN}?filter=nocolon&sort=n:up&limit=x"), 400).await;
    assert_eq!(page.one("input[name=filter]").attr("value"), Some("nocolon"));
    assert_eq!(page.one("#sort").attr("value"), Some("n:up"));
    // Hints list ignored parameters with suggestions.
    let page = visitor.page(&format!("{TEN}?filtr=k:1&filter=kk:1&sort=in.x")).await;
    let hints = page.all_words(".hints li");
    assert_eq!(hints[0], "This page ignores the unknown parameter \"filtr\". Did you mean filter?");
    assert!(hints[1].starts_with("No entity has the field \"kk\" (filter)."), "{hints:?}");
    assert_eq!(page.link("Did you mean filter?"), format!("{TEN}?filter=k:1&filter=kk:1&sort=in.x"));
    let service = TestService::start().await;
    service.import("Places", r#"[{"region":"x","at":{"long":1}},{"region":"y","at":{"long":2}}]"#).await;
    let visitor = Browser::visitor(&service);
    let places = "/ui/1/places/active/";
    let page = visitor.page(&format!("{places}?filter=regoin:X&filter_gt=at.lon:1&sort=regoin:desc&offset=1")).await;
    assert_eq!(
        page.link("Did you mean \"region\"?"),
        format!("{places}?filter=region:X&filter_gt=at.lon:1&sort=regoin:desc")
    );
    assert_eq!(
        page.link("Did you mean \"at.long\"?"),
        format!("{places}?filter=regoin:X&filter_gt=at.long:1&sort=regoin:desc")
    );
}

/// Regression: the page reported no matches without an explanation.
#[tokio::test]
async fn range_of_wrong_type_has_hint() {
    let service = TestService::start().await;
    service.import("Books", r#"[{"published":"1999","pages":5,"in":{"x":true}},{"published":"2024","pages":9}]"#).await;
    let visitor = Browser::visitor(&service);
    let books = "/ui/1/books/active/";
    let page = visitor.page(&format!("{books}?filter_gt=published:2020&filter_lt=pages:900&offset=1")).await;
    let message = "published contains strings but no numbers. filter_gt=published:2020 compares only numbers, so it \
                finds nothing.";
    let advice = "filter_gt=published:\"2020\" compares strings by code point.";
    assert_eq!(page.all_words("div.hints[role=status] > ul > li"), [format!("{message} {advice}")]);
    let href = page.link(advice);
    assert_eq!(href, format!("{books}?filter_gt=published:%222020%22&filter_lt=pages:900"));
    let page = visitor.page(&href).await;
    assert!(
        page.select(".hints").is_empty() && page.words("#result").contains("1 entity"),
        "{}",
        page.words("#result")
    );
    // In a strict read, all fields exist, so the read succeeds.
    let page = visitor.page(&format!("{books}?filter_lte=pages:%229%22&strict=true")).await;
    assert_eq!(page.link("Did you mean filter_lte=pages:9 ?"), format!("{books}?filter_lte=pages:9&strict=true"));
    let page = visitor.page(&format!("{books}?filter_gte=pages:many&filter_gt=in.x:1&filter_gt=none:1")).await;
    let hints = page.all_words(".hints li");
    assert_eq!(hints.len(), 3, "{hints:?}");
    assert!(hints[0].starts_with("No entity has the field \"none\" (filter_gt)."), "{hints:?}");
    assert_eq!(hints[1], "in.x contains no numbers, so filter_gt=in.x:1 finds nothing.");
    assert!(hints[2].ends_with("To compare numbers, use a JSON number, such as 1.5 ."), "{hints:?}");
    assert_eq!(page.all_words(".hints li:nth-child(2) code"), ["in.x", "filter_gt=in.x:1"]);
    assert!(page.select(".hints a").is_empty());
}

#[tokio::test]
async fn submitted_form_redirects_to_short_url() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let sent = "form=1&view=json&keywords=&filter=k%3A1&filter=&add_path=n&add_operator=filter_gt&add_value=2&sort=\
                &limit=5&keep_field=&dedup_key=&sample=&seed=";
    let clean = "/ui/1/ten/active/?view=json&filter=k:1&limit=5&filter_gt=n:2";
    assert_redirect(&visitor.get(&format!("{TEN}?{sent}")).await, clean);
    let page = visitor.page(clean).await;
    assert_eq!(page.one("input[name=view]").attr("value"), Some("json"));
    assert_eq!(page.all_words(".json li").len(), 1);
    let values: Vec<_> = page.select(".condition input").iter().filter_map(|input| input.attr("value")).collect();
    assert_eq!(values, ["k:1", "n:2"]);
    assert_eq!(page.link("Remove filter k:1"), "/ui/1/ten/active/?view=json&limit=5&filter_gt=n:2");
    assert_eq!(page.link("Table"), "/ui/1/ten/active/?filter=k:1&limit=5&filter_gt=n:2");
    assert_eq!(page.link("Reset"), TEN);
    // While the form is folded, the page lists the active parts of the query with links that remove them.
    assert!(page.one("details.more").attr("open").is_none());
    assert_eq!(page.words("details.more > summary"), "Conditions, sorting, and fields 3 active");
    assert_eq!(
        page.all_words(".parts a"),
        ["Remove: k is 1 ×", "Remove: 5 per page ×", "Remove: n is greater than 2 ×", "Reset"]
    );
    assert_eq!(page.link("Remove: n is greater than 2 ×"), "/ui/1/ten/active/?view=json&filter=k:1&limit=5");
    assert_redirect(
        &visitor.get(&format!("{TEN}?form=1&add_path=k&add_operator=null&add_value=")).await,
        "/ui/1/ten/active/?filter=k:null",
    );
    // A colon in a field name is escaped in the condition.
    for (sent, clean) in [
        ("add_path=x:k&add_operator=filter&add_value=1:2", "?filter=x%5C:k:1:2"),
        (r"add_path=a\:b\.c&add_operator=filter&add_value=d", r"?filter=a%5C:b%5C.c:d"),
        ("add_path=&add_operator=filter&add_value=x", "?filter=:x"),
        ("add_path=c&add_value=x", "?filter=c:x"),
        ("add_path=&add_operator=filter&add_value=", ""),
    ] {
        let answer = visitor.get(&format!("{TEN}?form=1&{sent}")).await;
        assert_redirect(&answer, &format!("{TEN}{clean}"));
    }
}

/// Returns the texts and the query strings of links.
fn queries(page: &Page, selector: &str) -> Vec<(String, String)> {
    let query = |href: &str| href.split_once('?').map_or(String::new(), |(_, query)| query.to_owned());
    let links = page.select(selector).into_iter();
    links.map(|link| (words(link), query(link.attr("href").unwrap_or_default()))).collect()
}

#[tokio::test]
async fn active_query_part_is_removed_by_its_link() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let long = "x".repeat(2_000);
    let long_words = format!("a is {}…", "x".repeat(60));
    let long_rest = format!("filter=a:{long}");
    for (query, parts) in [
        ("view=json&limit=50&offset=10&keywords=a", &[][..]),
        ("view=json&limit=5&offset=10", &[("5 per page", "view=json")]),
        ("columns=a,b&sort=c", &[("only the columns a,b", "sort=c"), ("sorted by c", "columns=a,b")]),
        (
            r"filter=a\:b:x&filter_gt=n:3&sort=n:desc&offset=9",
            &[
                (r"a\:b is x", "filter_gt=n:3&sort=n:desc"),
                ("n is greater than 3", "filter=a%5C:b:x&sort=n:desc"),
                ("sorted by n descending", "filter=a%5C:b:x&filter_gt=n:3"),
            ],
        ),
        (
            "dedup=1&dedup_key=a&sample=3&seed=1&denull=true&include_source=false&flatten=0",
            &[
                ("without duplicates by a", "sample=3&seed=1&denull=true&include_source=false&flatten=0"),
                ("random sample of 3", "dedup=1&dedup_key=a&denull=true&include_source=false&flatten=0"),
                (
                    "without nulls and empty strings",
                    "dedup=1&dedup_key=a&sample=3&seed=1&include_source=false&flatten=0",
                ),
                ("without _source", "dedup=1&dedup_key=a&sample=3&seed=1&denull=true&flatten=0"),
            ],
        ),
        (&format!("{long_rest}&sort=b"), &[(&long_words, "sort=b"), ("sorted by b", &long_rest)]),
    ] {
        let page = visitor.page(&format!("{TEN}?{query}")).await;
        let expected: Vec<_> =
            parts.iter().map(|(words, rest)| (format!("Remove: {words} ×"), (*rest).to_owned())).collect();
        assert_eq!(queries(&page, ".parts a:not(.reset)"), expected, "{query}");
    }
}

/// Regression: a long condition silently hid the list of active parts.
#[tokio::test]
async fn long_query_lists_active_parts() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    for (bytes, links) in [(2_000, 3), (6_000, 1)] {
        let page = visitor.page(&format!("{TEN}?filter=k:1&filter_contains=k:{}", "x".repeat(bytes))).await;
        let parts = page.all_words(".parts li");
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert!(parts[0].contains("k is 1") && parts[1].contains("k contains xxx") && parts[2] == "Reset", "{parts:?}");
        assert_eq!(page.select(".parts a").len(), links, "{bytes}");
    }
    let page = visitor.page(&format!("{TEN}?{}", ["filter=k:1"; 25].join("&"))).await;
    let parts = page.all_words(".parts li");
    assert_eq!((parts.len(), parts[20].as_str()), (22, "and 5 more"));
}

/// The script identifies columns by `data-column`.
#[tokio::test]
async fn columns_have_short_unique_keys() {
    let service = TestService::start().await;
    let long = "n".repeat(240);
    service.import("Names", &json!([{"n": 1, format!("{long}a"): 2, format!("{long}b"): 3}]).to_string()).await;
    let page = Browser::visitor(&service).page("/ui/1/names/active/").await;
    let columns: Vec<_> = page.select("thead th[data-column]").iter().filter_map(|th| th.attr("data-column")).collect();
    // The table also has the column `_source`.
    assert_eq!((columns.len(), columns[0]), (page.select("tbody td").len(), "n"));
    assert!(columns.iter().all(|column| column.len() <= 120), "{columns:?}");
    assert_ne!(columns[1], columns[2]);
}

#[tokio::test]
async fn links_sort_and_filter() {
    let service = TestService::start().await;
    let text = r#"[{"a:b":"x y","n":2,"deep":{"t":"A&B"}},{"a:b":"x y","n":10,"deep":{"t":"A&B"}},{"a:b":null,"n":2}]"#;
    service.import("Odd", text).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/odd/active/?limit=9&offset=1").await;
    // Columns of objects have no sort link.
    assert_eq!(page.all_words("thead a"), ["a:b", "n"]);
    let sorted = page.link("n");
    assert_eq!(sorted, "/ui/1/odd/active/?limit=9&sort=n:asc");
    let page = visitor.page(&sorted).await;
    assert_eq!(page.all_words("th[aria-sort=ascending]"), ["n ▲"]);
    let page = visitor.page(&page.link("n ▲")).await;
    assert_eq!(positions(&page), ["1", "0", "2"]);
    // The values of the profile link to filters.
    for (text, found) in [("x y", 2), ("A&B", 2), ("is null (or the string “null”)", 1), ("2", 2)] {
        let result = visitor.page(&page.link(text)).await;
        assert_eq!(positions(&result).len(), found, "{text}");
    }
    let options: Vec<_> = page.select("#paths option").iter().filter_map(|option| option.attr("value")).collect();
    assert_eq!(options, [r"a\:b", "n", "deep", "deep.t"]);
    // Links do not repeat a long query.
    let long = visitor.page(&format!("/ui/1/odd/active/?keywords={}", "y,".repeat(600))).await;
    assert!(long.text.len() < 40_000, "{}", long.text.len());
}

#[tokio::test]
async fn entity_page_links_to_neighbors_and_back() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page(&format!("{TEN}?filter=k:2&sort=n:desc")).await;
    let entity = visitor.page(&page.link("5")).await;
    assert_eq!(entity.words(".entity"), "n 5 k 2 in {1 field} x [2 items] 0 1 1 2");
    assert_eq!(entity.link("Previous"), "/ui/1/ten/v1/entity/4");
    assert_eq!(entity.link("Next"), "/ui/1/ten/v1/entity/6");
    assert_eq!(entity.one(".call a").attr("href"), Some("/api/1/ten/v1/?offset=5&limit=1"));
    assert!(visitor.page("/ui/1/ten/v1/entity/9").await.select("a[rel=next]").is_empty());
    assert!(visitor.page("/ui/1/ten/v1/entity/0").await.select("a[rel=prev]").is_empty());
    // The way back is the `Referer` if it is a page of the same dataset.
    for (from, back) in [
        ("http://any.test/ui/1/ten/active/?filter=k:2&sort=n:desc", Some("/ui/1/ten/active/?filter=k:2&sort=n:desc")),
        ("http://any.test/ui/1/ten/v1/?keywords=%3Cb%3E%22", Some("/ui/1/ten/v1/?keywords=%3Cb%3E%22")),
        ("http://any.test/ui/1/ten/active/", Some("/ui/1/ten/active/")),
        ("http://any.test/ui/1/ten/v1/profile?filter=k:2", None),
        ("http://any.test/ui/2/ten/v1/?filter=k:2", None),
        ("http://any.test/ui/1/other/v1/?filter=k:2", None),
        ("javascript:alert(1)//ui/1/ten/v1/?filter=k:2", None),
        ("/ui/1/ten/v1/?filter=k:2", None),
    ] {
        let back = back.unwrap_or("/ui/1/ten/v1/");
        let request = axum::http::Request::get("/ui/1/ten/v1/entity/5").header("referer", from);
        let entity = Page::parse(&visitor.send(request, axum::body::Body::empty()).await, 200);
        let shown = entity.select(".views a").first().and_then(|link| link.attr("href").map(str::to_owned));
        assert_eq!(shown.as_deref(), Some(back), "{from}");
        assert_eq!(Some(entity.link("Data").as_str()), back.split('?').next(), "{from}");
    }
    let many: Vec<String> = (0..120).map(|n| format!("{{\"n\":{n}}}")).collect();
    service.import("Many", &many.join("\n")).await;
    let entity = visitor.page("/ui/2/many/v1/entity/119").await;
    assert_eq!(entity.link("Back to the entities"), "/ui/2/many/v1/?offset=100", "the page with the entity");
}

#[tokio::test]
async fn downloads_contain_all_matches() {
    let service = ten().await;
    let page = Browser::visitor(&service).page(&format!("{TEN}?filter=k:1&view=json")).await;
    assert!(page.all_words(".panel h3").contains(&"Download all matches".to_owned()));
    for (format, bytes) in [("json", 60), ("jsonl", 50), ("csv", 10), ("tsv", 10), ("xml", 50), ("parquet", 200)] {
        let href = page.link(format);
        let file = page.one(&format!(".downloads a[href='{href}']")).attr("download");
        assert_eq!(file, Some(format!("ten-v1.{format}").as_str()));
        assert!(href.starts_with("/api/1/ten/active/?filter=k:1&format="), "{href}");
        let answer = service.get(&href).await;
        assert!(answer.status == 200 && answer.body.len() > bytes, "{href}");
        assert_eq!(answer.header("x-total-count"), Some("2"), "{href}");
    }
}

#[tokio::test]
async fn alternate_can_be_browsed() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1},{\"n\":2}]"]).await;
    assert_eq!(owned.save(id, 1, "[{\"n\":3},{\"n\":4},{\"n\":5}]").await.status, 200);
    let visitor = Browser::visitor(&owned.service);
    for uri in ["v1/alt/", "active/alt", "v1/?alt=true"] {
        let page = visitor.page(&format!("/ui/{id}/ten/{uri}")).await;
        assert_eq!(first_column(&page), ["3", "4", "5"], "{uri}");
        assert!(page.words(".heading").contains("alternate"), "{uri}");
        let entity = visitor.page(&page.link("1")).await;
        assert_eq!(entity.words(".entity"), "n 4", "{uri}");
        visitor.page(&page.link("Profile")).await;
    }
    assert_eq!(first_column(&visitor.page(&format!("/ui/{id}/ten/v1/")).await), ["1", "2"]);
}

#[tokio::test]
async fn snippets_contain_query_of_page() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let query = "filter=k:1&filter=n:%22'%24(x)%5C&keywords=a,b&dedup=1&limit=2&total=TRUE";
    let page = visitor.page(&format!("{TEN}?{query}")).await;
    let names =
        ["URL", "curl", "Python, requests", "Python, pandas", "DuckDB", "Polars", "JavaScript", "MCP tool call"];
    assert_eq!(page.all_words(".snippet summary"), names);
    let url = "http://data.strata.test/api/1/ten/active/?filter=k:1&filter=n:%22%27%24%28x%29%5C&keywords=a,b&dedup=1&limit=2&total=TRUE";
    let texts = page.all_words(".snippet code");
    for text in &texts[..7] {
        assert!(text.contains(url), "{text}");
        let outside = text.replace(url, "");
        assert!(!outside.contains("$(") && !outside.contains('\\'), "{text}");
    }
    assert_eq!(texts[1], format!("curl '{url}'"));
    assert_eq!(
        texts[4],
        format!(
            "-- DuckDB downloads its httpfs extension once. If it cannot, download and read the Parquet file. \
             INSTALL httpfs; LOAD httpfs; SELECT * FROM read_parquet('{url}&format=parquet&typed=true');"
        )
    );
    let call: Value = serde_json::from_str(&texts[7]).expect("JSON");
    let arguments = json!({
        "dataset_id": 1, "version": "active", "filter": ["k:1", "n:\"'$(x)\\"], "keywords": ["a,b"], "dedup": true,
        "limit": 2, "total": true
    });
    assert_eq!(call, json!({"name": "read", "arguments": arguments}));

    service.try_import("Secret", true, b"{\"n\":1}").await.expect("imported");
    let owner = Browser::user(&service, OWNER).await;
    let page = owner.page("/ui/2/secret/v1/").await;
    let texts = page.all_words(".snippet code");
    for text in texts[1..].iter().take(6) {
        assert!(text.contains("Bearer PRIVATE_KEY"), "{text}");
    }
    assert!(page.select(".call a").is_empty(), "browsers do not send the private key");
    assert_eq!(page.link("csv"), "/ui/2/secret/v1/download?format=csv");
    let csv = owner.get(&page.link("csv")).await;
    assert_eq!((csv.text(), csv.header("cache-control")), ("n\n1\n", Some("no-store")));
    let limited = owner.page("/ui/2/secret/v1/?limit=0").await.link("csv");
    assert_eq!(limited, "/ui/2/secret/v1/download?limit=0&format=csv");
    assert!(!owner.get(&limited).await.text().contains('1'));
    assert!(csv.header("content-disposition").expect("a file").contains("secret-v1.csv"));
}

#[tokio::test]
async fn keywords_are_marked_and_columns_selected() {
    let service = TestService::start().await;
    let text = r#"[{"a":"One <b>two</b>","in":{"two":"x TWO"},"n":22},{"a":"none","n":1}]"#;
    service.import("Words", text).await;
    let visitor = Browser::visitor(&service);
    for view in ["", "&view=json"] {
        let page = visitor.page(&format!("/ui/1/words/active/?keywords=Two,22{view}")).await;
        assert_eq!(page.all_words("mark"), ["two", "TWO", "22"], "keys are not searched");
    }
    // If a value is folded, its first match is visible.
    let far = format!(r#"[{{"text":"{}two","in":{{"of":[{{"x":"Two"}}]}}}}]"#, "y".repeat(200));
    service.import("Far", &far).await;
    let page = visitor.page("/ui/2/far/active/?keywords=two").await;
    assert_eq!(page.all_words("td summary .hit mark"), ["two", "Two"]);
    // A match is also visible if its column would be omitted.
    let many: Vec<String> = (0..65).map(|field| format!("\"f{field}\":\"{}\"", "y".repeat(20))).collect();
    let late = [r#"{"a":true,"last":"x two"}"#.to_owned(), format!("{{{},\"last\":\"Two\"}}", many.join(","))];
    service.import("Late", &format!("[{}]", late.join(","))).await;
    let late = visitor.page("/ui/3/late/active/?keywords=two").await;
    assert_eq!(
        (late.all_words("mark"), late.all_words("thead th")[2].as_str()),
        (vec!["two".into(), "Two".into()], "last")
    );
    let late = visitor.page("/ui/3/late/active/?keywords=two&sort=f64:desc").await;
    assert_eq!((late.all_words("mark").len(), late.all_words("thead th").len()), (2, 61));
    assert_eq!(visitor.page("/ui/3/late/active/?keywords=rue").await.all_words("mark"), ["rue"]);
    let link = format!(r#"{{"url":"https://example.org/{}/needle","n":1{}22}}"#, "p/".repeat(60), "0".repeat(150));
    service.import("Cut", &link).await;
    for keyword in ["needle", "22"] {
        let page = visitor.page(&format!("/ui/4/cut/active/?keywords={keyword}")).await;
        let notes = page.all_words(".cut").iter().filter(|cut| cut.contains("more matches in the rest")).count();
        assert_eq!(notes, 1, "{keyword}");
    }
    // The column with matches in the most rows moves forward.
    let wide = |place: usize| {
        let fields = (0..6)
            .map(|field| format!("\"f{field}\":\"{}{}\"", "z".repeat(40), if field == place { "two" } else { "" }));
        format!("{{\"id\":1,{}}}", fields.collect::<Vec<_>>().join(","))
    };
    service.import("Wide", &format!("[{}]", [4, 5, 5, 3].map(wide).join(","))).await;
    let wide = visitor.page("/ui/5/wide/active/?keywords=two").await;
    assert_eq!(wide.all_words("thead th")[..5], ["#", "id", "f5", "f3", "f4"]);
    let around = [format!("…{} two", "y".repeat(30)), r#"{"of":[{"x":" Two "}]}"#.to_owned()];
    assert_eq!(page.all_words("td summary .hit"), around);
    assert!(visitor.page("/ui/1/words/active/?filter=n:22").await.select("mark").is_empty());

    let page = visitor.page("/ui/1/words/active/?columns=n,missing,a,n&filter=in.two:x%20two").await;
    assert_eq!(page.all_words("thead th"), ["#", "n", "missing", "a"]);
    assert_eq!(page.all_words("tbody td"), ["22", "", "One <b>two</b>"]);
    assert_eq!(page.words(".note"), "1 more column is hidden. Show all");
    assert_eq!(page.link("Show all"), "/ui/1/words/active/?filter=in.two:x%20two");
    assert_eq!(page.one(".call a").attr("href"), Some("/api/1/words/active/?filter=in.two:x%20two&limit=50"));

    // Hints list missing columns with suggestions.
    assert_eq!(page.all_words(".hints li"), ["No entity has the field \"missing\" (columns)."]);
    let page = visitor.page("/ui/1/words/active/?columns=a,in.two").await;
    assert!(page.words(".hints li").starts_with("A table has columns only for top-level fields, but \"in.two\" is"));
    let flattened = page.link("Show a column for each nested field");
    assert_eq!(flattened, "/ui/1/words/active/?columns=a,in.two&flatten=true");
    let page = visitor.page(&flattened).await;
    assert_eq!(
        (page.all_words("thead th"), page.select(".hints").len()),
        (vec!["#", "a", "in.two"].into_iter().map(str::to_owned).collect(), 0)
    );
    let many: Vec<String> = (0..63).map(|number| format!("c{number}")).collect();
    let page = visitor.page(&format!("/ui/1/words/active/?columns={}", many.join(","))).await;
    let note = "A table shows at most 60 columns, so 3 columns are not shown.";
    assert!(page.all_words(".note").contains(&note.to_owned()));

    // The tree of paths links to complete and incomplete conditions.
    let page = visitor.page("/ui/1/words/active/").await;
    assert_eq!(page.all_words(".fields li li > details > summary code"), ["two"]);
    assert_eq!(page.link("at least…"), "/ui/1/words/active/?add_path=n&add_operator=filter_gte#add_value");
    assert_eq!(page.link("is…"), "/ui/1/words/active/?add_path=a&add_operator=filter#add_value");
    let draft = visitor.page("/ui/1/words/active/?add_path=n&add_operator=filter_gte").await;
    assert_eq!(draft.one("#add_path").attr("value"), Some("n"));
    assert_eq!(draft.one("#add_operator option[selected]").attr("value"), Some("filter_gte"));
}

/// Returns the kind of a cell, its text, and its marked parts.
fn cell(page: &Page) -> (String, String, Vec<String>) {
    let cell = page.one("tbody tr > td:nth-child(2)");
    let parsed = |selector: &str| scraper::Selector::parse(selector).expect("a selector");
    let folded = cell.select(&parsed("summary")).next();
    let kind = if folded.is_some() { "folded" } else { cell.attr("class").unwrap_or("text") };
    let shown = folded.unwrap_or(cell);
    (kind.to_owned(), words(shown), shown.select(&parsed("mark")).map(words).collect())
}

#[tokio::test]
async fn value_unfolds_only_if_it_is_long() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    let long = format!("\"{}\"", "y".repeat(121));
    let ending = format!("\"{}z\"", "y".repeat(2_000));
    let cut = format!("{{\"a\":\"{}z\"}}", "y".repeat(4_000));
    let wide = format!("[{}1]", "1,".repeat(99));
    let long_member = format!("{{\"a\":\"{}\",\"b\":1}}", "x".repeat(100));
    let ys = format!("{}…", "y".repeat(90));
    let hit_ys = format!("{ys} …{} z", "y".repeat(30));
    let cut_ys = format!("{{a: \"{}… of 1 field}}", "y".repeat(56));
    for (number, (value, keyword, kind, text, highlighter)) in [
        ("\"x\"", "", "text", "x", &[][..]),
        ("[]", "", "nested", "[]", &[]),
        ("[1,[],{}]", "", "nested", "[1, [], {}]", &[]),
        ("[\"x\",1]", "X", "nested", "[\" x \", 1]", &["x"]),
        (r#"{"a":"<b>\u202e"}"#, "", "nested", "{a: \"<b> U+202E \"}", &[]),
        ("{\"a\":{}}", "a", "nested", "{a: {}}", &[]),
        ("{\"a\":\"a\"}", "a", "nested", "{a: \" a \"}", &["a"]),
        ("true", "RU", "boolean", "t ru e", &["ru"]),
        ("\"a<B>&\"", "<b", "text", "a <B >&", &["<B"]),
        ("[1,[2],{\"a\":1}]", "", "folded", "[1, […], {…}]", &[]),
        ("[[1],2,[2]]", "2", "folded", "[[…], 2 , […]]", &["2"]),
        ("[[1],[12]]", "2", "folded", "[[…], […]] [[1],[1 2 ]]", &["2"]),
        (&wide, "", "folded", &format!("[{}… of 100 items]", "1, ".repeat(20)), &[]),
        (&long_member, "", "folded", &format!("{{a: \"{}… of 2 fields}}", "x".repeat(56)), &[]),
        (&long, "", "folded", &ys, &[]),
        (&long, "z", "folded", &ys, &[]),
        (&ending, "Z", "folded", &hit_ys, &["z"]),
        (&cut, "z", "folded", &format!("{cut_ys} …{} z \"}}", "y".repeat(30)), &["z"]),
    ]
    .into_iter()
    .enumerate()
    {
        // The second field contains the keyword, so that each entity matches.
        service.import(&format!("Value {number}"), &format!("{{\"v\":{value},\"k\":\"{keyword}\"}}")).await;
        let query =
            if keyword.is_empty() { String::new() } else { format!("?keywords={}", keyword.replace('<', "%3C")) };
        let page = visitor.page(&format!("/ui/{}/value-{number}/active/{query}", number + 1)).await;
        let highlighter = highlighter.iter().map(|mark| (*mark).to_owned()).collect::<Vec<_>>();
        assert_eq!(cell(&page), (kind.to_owned(), text.to_owned(), highlighter), "{value} {keyword}");
    }
}

#[tokio::test]
async fn column_width_fits_cells_and_name() {
    let service = TestService::start().await;
    let entity = json!({
        "n": 123, "population": 1, "a name that is longer than its values": 1, "t20": "x".repeat(20),
        "t40": "x".repeat(40), "t80": "x".repeat(80), "t120": "x".repeat(120), "wide": "日本語日本語", "in": [[1]]
    });
    service.import("Widths", &json!([entity, {"n": 1}]).to_string()).await;
    let page = Browser::visitor(&service).page("/ui/1/widths/active/").await;
    let style = page.one("link[rel=stylesheet]").attr("href").expect("a path").to_owned();
    let sheet = service.get(&style).await.text().to_owned();
    let width = |selector: &str| {
        let class = page.one(selector).attr("class").expect("classes").to_owned();
        class.split(' ').find(|class| class.starts_with('w')).expect("a width").to_owned()
    };
    for (column, expected) in [
        ("n", "w4"),
        ("population", "w14"),
        ("a name that is longer than its values", "w17"),
        ("t20", "w20"),
        ("t40", "w29"),
        ("t80", "w36"),
        ("t120", "w46"),
        ("wide", "w11"),
        ("in", "w29"),
    ] {
        assert_eq!(width(&format!("th[data-column='{column}']")), expected, "{column}");
    }
    assert_eq!(width("thead th.position"), "w4");
    for width in [4, 6, 8, 11, 14, 17, 20, 24, 29, 36, 46] {
        assert!(sheet.contains(&format!(".w{width} {{ width: calc({width}ch + 1.4rem); }}")), "{width}");
    }
}

#[tokio::test]
async fn heavy_count_is_made_on_request() {
    let service = TestService::configured(|config| config.query.heavy_bytes = 4_000).await;
    let entities: Vec<String> = (0..900).map(|n| format!("{{\"n\":{n},\"k\":{}}}", n % 2)).collect();
    service.import("Many", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let summary = |page: &Page| page.words("h2#result");
    let home = "/ui/1/many/active/";
    // The profile or the read itself knows these counts.
    assert_eq!(summary(&visitor.page(home).await), "1 to 50 of 900 entities");
    let page = visitor.page(&format!("{home}?filter=k:1&sort=n:desc&offset=50")).await;
    assert_eq!(summary(&page), "51 to 100 Count all matches");
    assert!(page.select("a[rel=next]").len() == 2 && !page.links().iter().any(|link| link.contains("offset=400")));
    let counting = page.one("a.counting");
    assert_eq!(counting.attr("href"), Some("/ui/1/many/active/?filter=k:1&sort=n:desc&offset=50&total=true"));
    let call = counting.attr("data-count").expect("a call");
    assert_eq!(call, "/ui/1/many/active/download?filter=k:1&count=true");
    // The last page knows the number of matches.
    let last = visitor.page(&format!("{home}?filter=k:0&offset=400&limit=100")).await;
    assert_eq!(summary(&last), "401 to 450 of 450 entities");
    // The page of the link counts, and the count is then cached.
    let total = visitor.page(&format!("{home}?filter=k:0&total=true")).await;
    assert_eq!(summary(&total), "1 to 50 of 450 entities");
    assert_eq!(summary(&visitor.page(&format!("{home}?filter=k:0&sort=n")).await), "1 to 50 of 450 entities");
    // The script's API call also caches the count.
    let counted: serde_json::Value = serde_json::from_str(service.get(call).await.text()).expect("JSON");
    assert_eq!(counted["count"], 450);
    assert_eq!(summary(&visitor.page(&format!("{home}?filter=k:1")).await), "1 to 50 of 450 entities");
}

/// Regression: a table that was sorted by a column far to the right seemed unordered.
#[tokio::test]
async fn sorted_and_matching_columns_are_visible() {
    let service = TestService::start().await;
    let wide = |n: usize| {
        let fields: Vec<String> = (0..70).map(|field| format!(r#""field{field}":"value {field} of {n}""#)).collect();
        let hit = if n == 2 { "needle" } else { "hay" };
        format!(r#"{{"id":{n},{},"last":{},"word":"{hit}"}}"#, fields.join(","), 9 - n)
    };
    let entities: Vec<String> = (0..4).map(wide).collect();
    service.import("Wide", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let columns = async |query: &str| {
        let page = visitor.page(&format!("/ui/1/wide/active/{query}")).await;
        let cells = page.all_words("tbody tr > td:nth-child(3)");
        (page.all_words("thead th")[..5].to_vec(), page.select("thead th").len(), cells)
    };
    assert!(visitor.page("/ui/1/wide/active/").await.select("table.even").is_empty());
    let (names, count, _) = columns("").await;
    assert_eq!((&names[..], count), (&["#", "id", "field0", "field1", "field2"].map(str::to_owned)[..], 61));
    // The column is visible already.
    assert_eq!(columns("?sort=field1:desc").await.0[..4], ["#", "id", "field0", "field1 ▼"]);
    // The column is outside the window, or beyond the maximum number of columns.
    assert_eq!(columns("?sort=field40").await.0[..4], ["#", "id", "field40 ▲", "field0"]);
    let (names, count, cells) = columns("?sort=last:asc").await;
    assert_eq!((&names[..4], count), (&["#", "id", "last ▲", "field0"].map(str::to_owned)[..], 61));
    assert_eq!(cells, ["6", "7", "8", "9"]);
    // The column with the first match follows the sorted column.
    let (names, _, cells) = columns("?keywords=of%202&sort=field40").await;
    assert_eq!(names[..4], ["#", "id", "field40 ▲", "field0"]);
    assert_eq!(cells, ["value 40 of 2"]);
    assert_eq!(columns("?keywords=39%20of%202").await.0[..4], ["#", "id", "field39", "field0"]);
    assert_eq!(
        columns("?keywords=39%20of%202&sort=field40").await.0[..5],
        ["#", "id", "field40 ▲", "field39", "field0"]
    );
    // Explicit columns keep their order.
    assert_eq!(columns("?columns=id,field0,field1,field2,field40&sort=field40").await.0[..3], ["#", "id", "field0"]);
}

/// A page waits for a medium count for an imperceptible time; if the count takes longer, the page links to it.
#[tokio::test]
async fn medium_count_is_shown_or_linked() {
    let service = TestService::configured(|config| config.query.medium_bytes = 4_000).await;
    let entities: Vec<String> = (0..900).map(|n| format!("{{\"n\":{n},\"k\":{}}}", n % 2)).collect();
    service.import("Many", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/many/active/?filter=k:1").await;
    match page.select("a.counting").is_empty() {
        true => assert_eq!(page.words("h2#result"), "1 to 50 of 450 entities"),
        false => {
            assert_eq!(page.words("h2#result"), "1 to 50 Count all matches");
            let call = page.one("a.counting").attr("data-count").expect("a call");
            let counted: serde_json::Value = serde_json::from_str(service.get(call).await.text()).expect("JSON");
            assert_eq!(counted["count"], 450);
        }
    }
    // With `total=true`, the page waits for the count, which is then cached.
    let page = visitor.page("/ui/1/many/active/?filter=k:1&total=true").await;
    assert_eq!(page.words("h2#result"), "1 to 50 of 450 entities");
    let page = visitor.page("/ui/1/many/active/?filter=k:1&offset=50").await;
    assert_eq!(page.words("h2#result"), "51 to 100 of 450 entities");
}

#[tokio::test]
async fn field_offers_conditions_of_its_type() {
    let service = TestService::start().await;
    let dates = r#"{"date":"2026-01-31","time":"2025-12-01T06:00:00Z","n":1.5,"word":"2026","in":{"y":null}}"#;
    let text = format!("[{dates},{}]", r#"{"date":"2026-02-01","time":"2026-12-01T06:00:00Z","n":2,"word":"x"}"#);
    service.import("Words", &text).await;
    let page = Browser::visitor(&service).page("/ui/1/words/active/").await;
    let fields = page.all_words(".fields > ul > li > details > .sorts");
    let sorts = "sort ascending sort descending";
    let ordered = format!("is… contains… at least… at most… {sorts}");
    let plain = format!("is… contains… {sorts}");
    assert_eq!(fields, [ordered.as_str(), &ordered, &ordered, &plain, ""], "dates and numbers have an order");
    assert_eq!(page.all_words(".fields li li .sorts"), ["is null"]);
}

#[tokio::test]
async fn nested_fields_are_flattened_but_not_sortable() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page(TEN).await;
    assert_eq!(page.one("input[name=flatten]").attr("checked"), None);
    let page = visitor.page(&format!("{TEN}?flatten=true")).await;
    assert!(page.one("input[name=flatten]").attr("checked").is_some());
    assert!(page.words("thead").contains("in.x"), "{}", page.words("thead"));
    assert!(page.select("input[type=hidden][name=flatten]").is_empty());
    assert_eq!(page.select("thead a").len(), 2, "only n and k can be sorted");
    let page = visitor.page(&format!("{TEN}?sort=in.x")).await;
    assert_eq!(page.words(".hints"), "sort requires a top-level field, but \"in.x\" is a nested path.");
}

/// Regression: downloads omitted a limit that snippets contained.
#[tokio::test]
async fn downloads_and_snippets_have_only_chosen_limit() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    for (query, has, entities, heading) in [
        ("filter_gt=n:3&offset=1", false, 6, "Download all matches"),
        ("limit=3&offset=1", true, 3, "Download matches up to the limit"),
    ] {
        let page = visitor.page(&format!("{TEN}?{query}")).await;
        let downloads: Vec<_> = page.select(".downloads a").iter().filter_map(|link| link.attr("href")).collect();
        assert_eq!(downloads.len(), 6);
        for href in downloads {
            assert_eq!((href.contains("limit=3"), href.contains("offset=1")), (has, has), "{href}");
        }
        let lines = service.get(&page.link("jsonl")).await;
        assert_eq!(lines.text().lines().count(), entities, "{query}");
        assert!(page.all_words(".panel h3").contains(&heading.to_owned()), "{query}");
        // With a limit, the page also links to downloads of all matches.
        let all: Vec<_> =
            page.select(".panel > p.quiet a[download]").iter().filter_map(|link| link.attr("href")).collect();
        assert_eq!(all.len(), if has { 6 } else { 0 }, "{query}");
        assert!(all.iter().all(|href| !href.contains("limit") && !href.contains("offset")), "{all:?}");
        for text in page.all_words(".snippet pre") {
            assert_eq!((text.contains("limit"), text.contains("offset")), (has, has), "{text}");
        }
        assert!(page.words(".call").contains("limit="), "the API call of this page");
    }
}

/// Regression: downloads silently contained fields that the table did not show.
#[tokio::test]
async fn downloads_with_columns_have_note() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let note = "Downloads contain all fields. To choose fields, use “Keep fields”.".to_owned();
    for (query, has_note) in [("columns=n", true), ("keep_field=n", false)] {
        let page = visitor.page(&format!("{TEN}?{query}")).await;
        assert_eq!(page.all_words(".panel > p.quiet").contains(&note), has_note, "{query}");
    }
}

/// Regression: all windows of a dataset had the same title.
#[tokio::test]
async fn page_titles_are_distinct() {
    let service = ten().await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    for (uri, status, title) in [
        ("/", 200, "Datasets"),
        ("/?q=a+b", 200, "Datasets: a b"),
        ("/ui/1/ten/active/", 200, "Ten v2"),
        ("/ui/1/ten/v1/?filter=k:1&sort=n:desc", 200, "Ten v1: k is 1, sorted by n descending"),
        ("/ui/1/ten/v1/?limit=x", 400, "Error: Ten v1"),
        ("/ui/1/ten/v1/entity/3", 200, "Entity at position 3, Ten v1"),
        ("/ui/1/ten/v1/profile", 200, "Profile, Ten v1"),
        ("/ui/1/ten/v1/profile?q=n", 200, "Profile: n, Ten v1"),
        ("/ui/1/ten/v1/profile?histogram=n", 200, "Histogram of n, Ten v1"),
        ("/ui/1/ten/v1/profile?histogram=x", 400, "Error: Profile, Ten v1"),
        ("/ui/1/ten/v9/", 404, "Error: Not found"),
    ] {
        let page = Page::parse(&visitor.get(uri).await, status);
        assert_eq!(page.words("title"), format!("{title} · strata"), "{uri}");
    }
}

/// Regression: a second value was added as a second filter, so that no entity could match.
#[tokio::test]
async fn value_link_replaces_filter_of_same_field() {
    let service = TestService::start().await;
    let text = r#"[{"c":"FR","tag":["a","b"]},{"c":"FR","tag":["a","b"]},{"c":"DE","tag":["a"]},{"c":"DE"}]"#;
    service.import("Sales", text).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/sales/active/?filter=c:FR&filter_gt=n:1&offset=1").await;
    assert_eq!(page.link("DE"), "/ui/1/sales/active/?filter_gt=n:1&filter=c:DE");
    assert_eq!(page.all_words(".fields [aria-current]"), ["FR"]);
    assert!(page.select(".fields .values a").iter().all(|link| words(*link) != "FR"));
    // In an array, an entity can contain both values.
    let page = visitor.page("/ui/1/sales/active/?filter=tag:a").await;
    assert_eq!(page.all_words(".fields [aria-current]"), ["a"]);
    let both = page.link("b");
    assert_eq!(both, "/ui/1/sales/active/?filter=tag:a&filter=tag:b");
    assert!(visitor.page(&both).await.words("#result").ends_with("2 entities"));
}

/// Regression: the link to the active version dropped the query, and there was no link to the alternate.
#[tokio::test]
async fn links_to_other_versions_keep_query() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1},{\"n\":2}]", "[{\"n\":7}]"]).await;
    assert_eq!(owned.save(id, 1, "[{\"n\":3}]").await.status, 200);
    let visitor = Browser::visitor(&owned.service);
    let base = format!("/ui/{id}/ten");
    let page = visitor.page(&format!("{base}/v1/?filter_gt=n:1&offset=1&view=json")).await;
    assert_eq!(page.link("v2"), format!("{base}/active/?filter_gt=n:1&view=json"));
    let alternate = page.link("View alternate");
    assert_eq!(alternate, format!("{base}/v1/alt/?filter_gt=n:1&view=json"));
    let page = visitor.page(&alternate).await;
    assert_eq!(page.words("title"), "Ten v1, alternate: n is greater than 1 · strata");
    assert_eq!(page.link("View original version"), format!("{base}/v1/?filter_gt=n:1&view=json"));
    let page = visitor.page(&format!("{base}/v1/?alt=true&filter=n:3")).await;
    assert_eq!(page.link("View original version"), format!("{base}/v1/?filter=n:3"));
    let profile = visitor.page(&format!("{base}/v1/profile")).await;
    assert_eq!(profile.link("View alternate"), format!("{base}/v1/alt/profile"));
    assert!(!visitor.page(&format!("{base}/v2/")).await.text.contains("View alternate"));
}

/// Regression: “Change to: nope contains 1” was suggested for a field that does not exist.
#[tokio::test]
async fn suggestions_search_existing_fields_only() {
    let service = ten().await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page(&format!("{TEN}?filter=nope:1")).await;
    assert_eq!(page.all_words(".steps a"), ["Remove: nope is 1", "Search all fields for 1", "Show all entities"]);
    let page = visitor.page(&format!("{TEN}?filter=n:%3E7")).await;
    let found = visitor.page(&page.link("Change to: n is greater than 7")).await;
    assert_eq!(first_column(&found), ["8", "9"]);
    service.import("Letters", r#"{"a":"y","n":1}"#).await;
    for (query, suggestions) in [
        (
            "view=json&filter=a:x&filter_gte=n:3",
            &[
                ("Remove: a is x", "view=json&filter_gte=n:3"),
                ("Change to: a contains x", "view=json&filter_gte=n:3&filter_contains=a:x"),
                ("Search all fields for x", "view=json&filter_gte=n:3&keywords=x"),
                ("Remove: n is at least 3", "view=json&filter=a:x"),
                ("Show all entities", "view=json"),
            ][..],
        ),
        (
            "keywords=a,b&keywords_mode=and&filter=a:null",
            &[
                ("Match any of the keywords", "keywords=a,b&filter=a:null"),
                ("Remove: a is null", "keywords=a,b&keywords_mode=and"),
                ("Remove the keywords", "filter=a:null"),
                ("Show all entities", ""),
            ],
        ),
        (
            "filter=nope:1&filter=n:%3E%3D%201.5",
            &[
                ("Remove: nope is 1", "filter=n:%3E%3D%201.5"),
                ("Search all fields for 1", "filter=n:%3E%3D%201.5&keywords=1"),
                ("Remove: n is >= 1.5", "filter=nope:1"),
                ("Change to: n is at least 1.5", "filter=nope:1&filter_gte=n:1.5"),
                ("Change to: n contains >= 1.5", "filter=nope:1&filter_contains=n:%3E%3D%201.5"),
                ("Search all fields for >= 1.5", "filter=nope:1&keywords=%3E%3D%201.5"),
                ("Show all entities", ""),
            ],
        ),
        (
            "filter=a:%20ok",
            &[
                ("Remove: a is U+0020 ok", ""),
                ("Change to: a is ok", "filter=a:ok"),
                ("Change to: a contains U+0020 ok", "filter_contains=a:%20ok"),
                ("Search all fields for U+0020 ok", "keywords=%20ok"),
                ("Show all entities", ""),
            ],
        ),
    ] {
        let page = visitor.page(&format!("/ui/2/letters/active/?{query}")).await;
        let expected: Vec<_> =
            suggestions.iter().map(|(words, rest)| ((*words).to_owned(), (*rest).to_owned())).collect();
        assert_eq!(queries(&page, ".steps a"), expected, "{query}");
    }
}

/// Regression: a long column name made the header higher than the window.
#[tokio::test]
async fn long_column_name_is_shortened() {
    let service = TestService::start().await;
    let long = format!("{}\u{202e}", "n".repeat(80));
    service.import("Long", &json!([{"a": 1, long: 2}]).to_string()).await;
    let page = Browser::visitor(&service).page("/ui/1/long/active/").await;
    assert_eq!(page.all_words("thead th")[2], format!("{}…", "n".repeat(40)));
    let titles: Vec<_> = page.select("thead th[title]").iter().filter_map(|head| head.attr("title")).collect();
    assert_eq!(titles, [format!("{}U+202E", "n".repeat(80))]);
    let style = page.one("link[rel=stylesheet]").attr("href").expect("a path").to_owned();
    let sheet = service.get(&style).await;
    assert!(sheet.text().contains(".entities thead th:not([aria-sort]) > a::after"), "sortable columns have a sign");
}

/// Regression: a repeated value in an array counted as two entities, but its filter matched one.
#[tokio::test]
async fn value_counts_explain_their_unit() {
    let service = TestService::start().await;
    service.import("Tags", r#"[{"tag":["a","a","b"],"one":"x"},{"tag":["a"],"one":"x"},{"one":"y"}]"#).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/tags/active/").await;
    let note = "The number next to a value shows how many entities in the whole version contain that value. If the \
                field is in an array, the number counts every occurrence.";
    assert!(page.words(".fields").contains(note));
    let values = page.all_words(".fields .values li");
    assert!(values.contains(&"a 3 times".to_owned()) && values.contains(&"x 2".to_owned()), "{values:?}");
    assert!(visitor.page(&page.link("a")).await.words("#result").ends_with("of 2 entities"));
    assert!(visitor.page(&page.link("x")).await.words("#result").ends_with("of 2 entities"));
    let profile = visitor.page("/ui/1/tags/active/profile").await;
    let captions: Vec<String> = profile.all_words(".path > table caption");
    assert_eq!(
        captions,
        [
            "Frequent values by number of occurrences in arrays (% of all strings, numbers, and booleans)",
            "Frequent values by number of entities (% of all entities)"
        ]
    );
}

/// Regression: column names were left-aligned above right-aligned numbers.
#[tokio::test]
async fn number_column_header_is_right_aligned() {
    let service = TestService::start().await;
    let text = r#"[{"n":1,"gaps":null,"mixed":1,"none":null,"text":"1"},{"n":2.5,"gaps":7,"mixed":"x"},{"n":3}]"#;
    service.import("Kinds", text).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/kinds/active/").await;
    assert_eq!(page.all_words("thead th[data-column].number"), ["n", "gaps"]);
    // The column of positions does not share the remaining width.
    page.one("table.entities.even");
    assert_eq!(page.all_words("tbody td.number"), ["1", "1", "2.5", "7", "3"]);
    let style = page.one("link[rel=stylesheet]").attr("href").expect("a path").to_owned();
    let sheet = service.get(&style).await;
    assert!(sheet.text().contains("td.number, th.number { text-align: end; }"));
}

/// Regression: hints showed `\u{202e}` and cells showed `U+202E`.
#[tokio::test]
async fn invisible_characters_have_one_notation() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Odd", json!({}), &[&json!([{"k\u{202e}": "v\u{202e}", "n": 1}]).to_string()]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let odd = "%E2%80%AE";
    for (uri, status) in [
        (format!("/ui/{id}/odd/active/?filter=x{odd}:1&filter{odd}=1&columns=x{odd}"), 200),
        (format!("/ui/{id}/odd/active/?filter_gt=k{odd}:{odd}1"), 200),
        (format!("/ui/{id}/odd/active/?limit={odd}"), 400),
        (format!("/ui/{id}/odd/active/?view={odd}"), 400),
        (format!("/ui/{id}/odd/v1/explain?filter=x{odd}:1"), 200),
        (format!("/ui/{id}/odd/v1/profile?from={odd}"), 400),
        (format!("/ui/{id}/odd/diff?v1={odd}&v2=1"), 400),
        (format!("/ui/{id}/odd/usage?{odd}=1"), 200),
        (format!("/ui/{id}/odd/v1/alternate/remove?positions={odd}"), 400),
    ] {
        let page = Page::parse(&owner.get(&uri).await, status);
        let message = page.words("main");
        assert!(message.contains("U+202E") && !message.contains("\\u{"), "{uri}: {message}");
    }
    let style = owner.page("/").await.one("link[rel=stylesheet]").attr("href").expect("a path").to_owned();
    let sheet = owned.service.get(&style).await;
    let rule = sheet.text().lines().find(|line| line.starts_with(".ctl {")).expect("a rule").to_owned();
    assert!(rule.contains("white-space: nowrap"), "a code point is not wrapped: {rule}");
}

/// Suggested paths escape the dots in field names, in every parameter that contains a path.
#[tokio::test]
async fn suggested_path_is_escaped() {
    let service = TestService::start().await;
    service.import("Dots", r#"[{"a.bk":1,"in":{"c:dx":2}},{"a.bk":3}]"#).await;
    let visitor = Browser::visitor(&service);
    let dots = "/ui/1/dots/active/";
    for (query, suggestion, corrected) in [
        ("filter=a.bk:1", r#"Did you mean "a\.bk"?"#, r"filter=a%5C.bk:1"),
        ("filter_gte=a.bk:2", r#"Did you mean "a\.bk"?"#, r"filter_gte=a%5C.bk:2"),
        ("filter=in.c%5C:dd:2", r#"Did you mean "in.c\:dx"?"#, r"filter=in.c%5C:dx:2"),
        ("dedup=true&dedup_key=a.bk", r#"Did you mean "a\.bk"?"#, r"dedup=true&dedup_key=a%5C.bk"),
        ("sort=a.bkk:desc", r#"Did you mean "a\.bk"?"#, "sort=a.bk:desc"),
    ] {
        let page = visitor.page(&format!("{dots}?{query}")).await;
        let href = page.link(suggestion);
        assert_eq!(href, format!("{dots}?{corrected}"));
        let page = visitor.page(&href).await;
        assert!(page.select(".hints").is_empty() && !page.select("tbody tr").is_empty(), "{query}");
    }
    // The form shows the escaped path and accepts it.
    let page = visitor.page(&format!("{dots}?filter=a%5C.bk:1")).await;
    assert_eq!(page.one("input[name=filter]").attr("value"), Some(r"a\.bk:1"));
    assert!(page.words(".parts").starts_with(r"Remove: a\.bk is 1"), "{}", page.words(".parts"));
    let paths = page.select("#paths option");
    assert_eq!(paths.iter().filter_map(|path| path.attr("value")).collect::<Vec<_>>(), [r"a\.bk", "in", r"in.c\:dx"]);
    let sent = visitor.get(&format!("{dots}?form=1&add_path=a%5C.bk&add_operator=filter&add_value=3")).await;
    assert_redirect(&sent, &format!("{dots}?filter=a%5C.bk:3"));
}
