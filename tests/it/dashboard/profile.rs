//! `…/profile`: the profile of a version, and the links to its values.

use strata_testing::TestService;
use strata_testing::html::words;

use super::Browser;

#[tokio::test]
async fn profile_values_link_to_filters() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..100)
        .map(|n| match n % 4 {
            0 => format!("{{\"n\":{n},\"colour\":\"red\"}}"),
            1 | 2 => format!("{{\"n\":{n},\"colour\":\"green <&>\",\"in\":{{\"x\":[true]}}}}"),
            _ => format!("{{\"n\":{n},\"colour\":null}}"),
        })
        .collect();
    service.import("Colours", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/colours/active/profile").await;
    assert_eq!(page.all_words("section.path h3"), ["n", "colour", "in", "in.x"]);
    let cards: Vec<String> = page.select("section.path").into_iter().map(words).collect();
    assert!(cards[0].contains("Numbers 0 to 99") && cards[0].contains("Distinct values 100"), "{}", cards[0]);
    assert!(cards[1].contains("string, null") && cards[1].contains("Null 25 (the link"), "{}", cards[1]);
    assert!(cards[2].contains("in 50% of entities"), "{}", cards[2]);
    let bars = page.select("section[aria-labelledby=p1] > table rect.fill");
    let widths: Vec<_> = bars.iter().filter_map(|bar| bar.attr("width")).collect();
    assert_eq!(widths, ["500", "250"]);
    for (text, matching) in [("green <&>", "50 entities"), ("red", "25 entities"), ("25", "25 entities")] {
        let result = visitor.page(&page.link(text)).await;
        assert!(result.words("h2#result").ends_with(matching), "{text}: {}", result.words("h2#result"));
    }
    let searched = visitor.page("/ui/1/colours/active/profile?q=IN").await;
    assert_eq!(searched.all_words("section.path h3"), ["in", "in.x"]);
    let none = visitor.page("/ui/1/colours/active/profile?q=zzz").await;
    assert_eq!(none.words(".result h2"), "No paths contain this text.");
}

/// Regression: the caption said “by entities”, but the shares were relative to the existing values.
#[tokio::test]
async fn shares_match_their_caption() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..1_000)
        .map(|n| {
            let number = if n % 2 == 0 { (n / 2).to_string() } else { "\"x\"".to_owned() };
            let rest = match n {
                n if n % 4 == 0 => ",\"flag\":true,\"tag\":[\"a\",\"a\",\"b\",null]",
                n if n % 10 == 1 => ",\"flag\":false",
                _ => "",
            };
            format!("{{\"n\":{number}{rest}}}")
        })
        .collect();
    service.import("Shares", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/shares/active/profile").await;
    let by_entities = "Frequent values by number of entities (% of all entities)";
    let in_arrays = "Frequent values by number of occurrences in arrays (% of all strings, numbers, and booleans)";
    assert_eq!(page.all_words(".path > table caption"), [by_entities, by_entities, in_arrays]);
    let rows = page.all_words(".path > table tbody tr");
    assert_eq!(rows, ["x 500 50%", "true 250 25%", "false 100 10%", "a 500 67%", "b 250 33%"]);
    // The widths of the bars match the shares.
    let bars = page.select("section[aria-labelledby=p1] > table rect.fill");
    assert_eq!(bars.iter().filter_map(|bar| bar.attr("width")).collect::<Vec<_>>(), ["250", "100"]);
    let page = visitor.page("/ui/1/shares/active/profile?histogram=n").await;
    let captions = page.all_words(".path > table caption");
    assert!(captions.contains(&"Entities by range (% of all entities)".to_owned()), "{captions:?}");
    let rows = page.all_words(".path > table tbody tr");
    assert!(rows.contains(&"0 to 50 50 5%".to_owned()), "{rows:?}");
}

#[tokio::test]
async fn paths_are_paged() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let visitor = Browser::visitor(&service);
    let first = visitor.page("/ui/1/world-countries/v1/profile").await;
    let next = visitor.page(&first.link("Next")).await;
    assert_eq!((first.select("section.path").len(), next.select("section.path").len()), (60, 60));
    assert_eq!(next.link("Previous"), "/ui/1/world-countries/v1/profile");
    assert!(visitor.page("/ui/1/world-countries/v1/profile?from=99999999").await.select("section.path").is_empty());
}

#[tokio::test]
async fn histogram_counts_match_linked_pages() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..1_000)
        .map(|n| format!("{{\"n\":{},\"<b>.x\":{n},\"s\":\"{n}\",\"in\":[{n}],\"one\":1}}", n % 250))
        .collect();
    service.import("Numbers", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/numbers/active/profile").await;
    let cards: Vec<String> = page.select("section.path").into_iter().map(words).collect();
    let histogram = |card: &String| card.contains("Histogram");
    assert_eq!(cards.iter().map(histogram).collect::<Vec<_>>(), [true, true, false, false, false], "{cards:?}");
    let histogram = page.link("Histogram with round boundaries of n");
    assert_eq!(histogram, "/ui/1/numbers/active/profile?histogram=n#histogram");
    let page = visitor.page(&histogram).await;
    page.one("#histogram");
    let caption = "table:has(caption) tbody tr";
    let rows: Vec<String> = page.all_words(caption).into_iter().filter(|row| row.contains(" to ")).collect();
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert_eq!((rows[0].as_str(), rows[4].as_str()), ("0 to 50 200 20%", "200 to 250 200 20%"));
    assert!(!page.text.contains("outside of these"));
    let result = visitor.page(&page.link("50 to 100")).await;
    assert!(result.words("h2#result").ends_with("of 200 entities"), "{}", result.words("h2#result"));
    assert_eq!(page.link("All paths"), "/ui/1/numbers/active/profile");
    let other = visitor.page("/ui/1/numbers/active/profile?histogram=%3Cb%3E%5C.x").await;
    let rows: Vec<String> = other.all_words(caption).into_iter().filter(|row| row.contains(" to ")).collect();
    assert_eq!(rows.first().map(String::as_str), Some("0 to 100 100 10%"), "{}", other.text);
    for (none, why) in [
        ("one", "No histogram: The numbers are all equal"),
        ("in", "No histogram: The path is in an array"),
        ("s", "No histogram: The path has no numbers."),
    ] {
        let page = visitor.page(&format!("/ui/1/numbers/active/profile?histogram={none}")).await;
        assert!(!page.text.contains("Entities by range"), "{none}");
        assert!(page.words("section.path").contains(why), "{}", page.words("section.path"));
    }
    // Regression: a missing path returned a page without an explanation.
    for none in ["zzz", "<script>", ""] {
        let page = visitor.error(&format!("/ui/1/numbers/active/profile?histogram={}", escaped(none)), 400).await;
        let message = page.words("[role=alert]");
        assert!(
            message.contains(&format!("parameter histogram: \"{none}\" is not a path in this version")),
            "{message}"
        );
        assert_eq!(page.link("All paths"), "/ui/1/numbers/active/profile");
    }
}

/// Regression: the page showed “No paths contain this text” without a search.
#[tokio::test]
async fn version_without_paths_is_explained() {
    let service = TestService::start().await;
    service.import("None", "[]").await;
    service.import("Bare", "[{}]").await;
    let visitor = Browser::visitor(&service);
    for (id, slug, why) in [(1, "none", "it has no entities."), (2, "bare", "its entities have no fields.")] {
        for query in ["", "?q=a"] {
            let page = visitor.page(&format!("/ui/{id}/{slug}/active/profile{query}")).await;
            assert_eq!(page.words(".result h2"), format!("This version has no paths because {why}"));
        }
    }
}

/// The link to nulls also finds the string `null`, as every filter does.
#[tokio::test]
async fn null_link_mentions_string_null() {
    let service = TestService::start().await;
    service.import("Nulls", r#"[{"both":null,"n":null},{"both":"null","n":1}]"#).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/nulls/active/").await;
    let links = page.all_words(".fields .sorts a");
    let null: Vec<_> = links.iter().filter(|link| link.contains("null")).collect();
    assert_eq!(null, ["is null (or the string “null”)", "is null"]);
    let found = visitor.page(&page.link("is null (or the string “null”)")).await;
    assert!(found.words("#result").ends_with("2 entities"), "{}", found.words("#result"));
    let cards = visitor.page("/ui/1/nulls/active/profile").await.all_words("section.path");
    assert!(cards[0].contains("Null 1 (the link also finds the string “null”)"), "{}", cards[0]);
    assert!(cards[1].contains("Null 1") && !cards[1].contains("the link"), "{}", cards[1]);
}

#[tokio::test]
async fn histogram_counts_match_reads() {
    let service = TestService::start().await;
    let entity = |n: i64| {
        let mixed = match n % 7 {
            0 => "\"a text\"".to_owned(),
            1 => "null".to_owned(),
            2 => "[]".to_owned(),
            _ => format!("{}.{}", n - 500, n % 10),
        };
        // Neighbors that share a double, and numbers beyond 64 bits.
        let near = 9_007_199_254_740_993 + n * 1_001;
        let long = (1_i128 << 64) + i128::from(n) * 100_000_000_000_000_001;
        let half = if n % 2 == 0 { n * 1_000 } else { -n };
        format!("{{\"mixed\":{mixed},\"near\":{near},\"long\":{long},\"half\":{half}}}")
    };
    let entities: Vec<String> = (0..1_000).map(entity).collect();
    service.import("Numbers", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let mut ranges = 0;
    for path in ["mixed", "near", "long", "half"] {
        let page = visitor.page(&format!("/ui/1/numbers/active/profile?histogram={path}")).await;
        for row in page.select("table:has(caption) tbody tr:has(.picture a)") {
            let words = strata_testing::html::words(row);
            let cell = scraper::Selector::parse("th a").expect("a selector");
            let link = row.select(&cell).next().and_then(|link| link.attr("href")).expect("a link");
            let query = link.split_once('?').expect("a query").1;
            let answer = service.get(&format!("/api/1/numbers/active/?{query}&count=true")).await;
            let count: serde_json::Value = serde_json::from_str(answer.text()).expect("JSON");
            let counted = count["count"].as_u64().expect("a count").to_string();
            let text = words.replace(',', "");
            assert!(text.split(' ').any(|word| word == counted), "{path}: {text}: {counted}");
            ranges += 1;
        }
    }
    assert!(ranges >= 24, "{ranges}");
}

/// Regression: the ends of ranges had no commas, but counts had them.
#[tokio::test]
async fn long_numbers_have_commas() {
    let service = TestService::start().await;
    let entities: Vec<String> =
        (0..1_000).map(|n| format!("{{\"n\":{},\"year\":{}}}", n * 10_007, 1_900 + n % 120)).collect();
    service.import("Numbers", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/numbers/active/profile").await;
    let cards = page.all_words(".path");
    assert!(cards[0].contains("Numbers 0 to 9,996,993"), "{}", cards[0]);
    assert!(cards[1].contains("Numbers 1900 to 2019"), "{}", cards[1]);
    let rows = page.all_words("section[aria-labelledby=p0] .ranges tbody tr");
    assert!(rows.last().is_some_and(|row| row.starts_with("9,437,184 to ")), "{rows:?}");
    let page = visitor.page("/ui/1/numbers/active/profile?histogram=n").await;
    let link = page.link("9,000,000 to 10,000,000");
    assert_eq!(link, "/ui/1/numbers/active/?filter_gte=n:9000000&filter_lt=n:10000000");
}

#[tokio::test]
async fn numbers_are_shown_by_range() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..1_000)
        .map(|n| {
            let half = f64::from(n) / 2.0 - 100.0;
            let few = n % 7;
            let long = i64::from(n) * 100_000_000_000_000;
            format!("{{\"n\":{half},\"in\":[{n},{few}],\"a.b\":{few},\"one\":1,\"long\":{long}}}")
        })
        .chain(["{\"n\":\"0\"}".to_owned(), "{\"n\":1e400}".to_owned()])
        .collect();
    service.import("Numbers", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/numbers/active/profile").await;
    let rows = |id: usize| page.all_words(&format!("section[aria-labelledby=p{id}] .ranges tbody tr"));
    assert_eq!(rows(0).len(), 9, "{:?}", rows(0));
    assert_eq!((rows(0)[0].as_str(), rows(0)[8].as_str()), ("-128 to -64 72 7%", "384 to 448 32 3%"));
    // Ranges of integers have a width of at least one.
    assert_eq!(rows(2)[..2], ["0 to 1 143 14%", "1 to 2 143 14%"]);
    assert!(rows(3).is_empty(), "all numbers are equal");
    // Each count equals the number of entities on the linked page. There is no link if an entity can have several
    // numbers, or if doubles cannot distinguish the numbers.
    let cells = scraper::Selector::parse("th a, td.number").expect("a selector");
    let mut links = Vec::new();
    for row in page.select(".ranges tbody tr") {
        if let [link, count] = row.select(&cells).collect::<Vec<_>>().as_slice() {
            let count = words(*count).split(' ').next().unwrap_or_default().replace(',', "");
            links.push((link.attr("href").expect("a link").to_owned(), count));
        }
    }
    assert!(links.len() == 17 && links.iter().all(|(link, _)| !link.contains("=in:")), "{links:?}");
    for (link, count) in links {
        let query = link.split_once('?').expect("a query").1;
        let answer = service.get(&format!("/api/1/numbers/active/?{query}&count=true")).await;
        let found: serde_json::Value = serde_json::from_str(answer.text()).expect("JSON");
        assert_eq!(found["count"].to_string(), count, "{link}");
    }
}

#[tokio::test]
async fn string_lengths_are_shown() {
    let service = TestService::start().await;
    let entities: Vec<String> = (0..40)
        .map(|n| format!("{{\"s\":\"{}\",\"in\":[\"\",\"é\\n{n}\"],\"n\":{n}}}", "é".repeat([0, 1, 5, 700][n % 4])))
        .chain(["{\"s\":null}".to_owned(), "{\"s\":7}".to_owned()])
        .collect();
    service.import("Texts", &entities.join("\n")).await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/1/texts/active/profile").await;
    let rows = |id: usize| page.all_words(&format!("section[aria-labelledby=p{id}] .lengths tbody tr"));
    let none = "0 0%";
    let between = ["2 to 3", "8 to 15", "16 to 31", "32 to 63", "64 to 127", "128 to 255", "256 to 511"];
    let mut expected: Vec<String> = between.iter().map(|range| format!("{range} {none}")).collect();
    expected.splice(0..0, ["0 10 25%", "1 10 25%"].map(str::to_owned));
    expected.insert(3, "4 to 7 10 25%".to_owned());
    expected.push("512 to 1,023 10 25%".to_owned());
    assert_eq!(rows(0), expected);
    assert_eq!(rows(1), ["0 40 50%", "1 0 0%", "2 to 3 10 12%", "4 to 7 30 38%"]);
    assert!(rows(2).is_empty(), "numbers have no length");
    // Only a path with at most one value for each entity links to its empty strings.
    let links: Vec<_> = page.select(".path .lengths a").iter().map(|link| link.attr("href")).collect();
    assert_eq!(links, [Some("/ui/1/texts/active/?filter=s:")]);
    let result = visitor.page("/ui/1/texts/active/?filter=s:").await;
    assert!(result.words("h2#result").ends_with("10 entities"), "{}", result.words("h2#result"));
    // The API's profile has not changed.
    let answer = service.get("/dataset/profile?dataset_id=1").await;
    let is_new = answer.text().contains("lengths") || answer.text().contains("bins");
    assert!(answer.status == 200 && !is_new, "{}", answer.text());
}

fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
