//! Pages: the number of matches (`total`), links to adjacent pages (`Link`), and reproducible samples (`seed`).

use std::collections::BTreeMap;

use serde_json::json;
use strata_reference::sample::sip_hash;
use strata_testing::owned::Owned;
use strata_testing::{Answer, TestService};
use strata_types::limits::MAX_LINK_HEADER_BYTES;

/// Ten entities, two of each `k`.
async fn service() -> TestService {
    let service = TestService::start().await;
    let lines: String = (0..10).map(|n| format!("{{\"n\":{n},\"k\":{}}}\n", n / 2)).collect();
    service.import("Ten", &lines).await;
    service
}

const TEN: &str = "/api/1/ten/v1/";

/// The `n` of the entities, in order.
fn numbers(answer: &Answer) -> Vec<u64> {
    assert_eq!((answer.status, answer.whole), (200, true), "{}", answer.text());
    let entities: Vec<serde_json::Value> = serde_json::from_slice(&answer.body).expect("expected entities");
    entities.iter().map(|entity| entity["n"].as_u64().expect("invalid number")).collect()
}

/// Returns the links by relation, without the base URL.
fn links(answer: &Answer) -> BTreeMap<String, String> {
    let Some(header) = answer.header("link") else { return BTreeMap::new() };
    assert_eq!(answer.headers.get_all("link").iter().count(), 1);
    let link = |link: &str| {
        let (url, relation) = link.strip_prefix('<').and_then(|link| link.split_once(">; rel=\"")).expect(header);
        let start = url.find("/api/").expect("missing path");
        assert!(url.starts_with("http://"), "{header}");
        (relation.trim_end_matches('"').to_owned(), url[start..].to_owned())
    };
    header
        .split(", <")
        .enumerate()
        .map(|(at, text)| link(&format!("{}{text}", if at > 0 { "<" } else { "" })))
        .collect()
}

#[track_caller]
fn check_links(answer: &Answer, expected: &[(&str, &str)]) {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let expected: BTreeMap<String, String> =
        expected.iter().map(|(relation, url)| ((*relation).to_owned(), (*url).to_owned())).collect();
    assert_eq!(links(answer), expected);
}

// ---- total ----

#[tokio::test]
async fn total_counts_matches_before_sample() {
    let service = service().await;
    for (query, matches) in [
        ("", 10),
        ("limit=3", 10),
        ("limit=0", 10),
        ("offset=3&limit=3", 10),
        ("offset=50", 10),
        ("filter=k:3", 2),
        ("filter=k:3&limit=1", 2),
        ("filter=k:3&offset=2", 2),
        ("filter=k:3&offset=1", 2),
        ("filter=k:77&limit=1", 0),
        ("filter_gte=n:7&limit=1", 3),
        ("filter_gt=n:2&filter_lt=k:4&offset=1&limit=2", 5),
        ("filter_lte=k:1&dedup=true&dedup_key=k&limit=1", 2),
        ("filter_gt=n:%222%22&limit=1", 0),
        ("dedup=true&dedup_key=k", 5),
        ("dedup=true&dedup_key=k&limit=2", 5),
        ("dedup=true&dedup_key=k&sort=n:desc&limit=2&offset=1", 5),
        ("keep_field=k&dedup=1&limit=5", 5),
        ("keywords=7&limit=1", 1),
        ("sample=3", 10),
        ("sample=3&filter_contains=n:1", 1),
        ("sample=1&filter=k:1", 2),
        ("sample=3&seed=5&limit=1", 10),
        ("sample=0", 10),
        ("sort=n:desc&limit=4", 10),
    ] {
        for format in ["json", "jsonl", "csv", "tsv", "xml", "parquet"] {
            for count in ["", "&count=true"] {
                let plain = service.get(&format!("{TEN}?format={format}{count}&{query}")).await;
                assert_eq!(plain.header("x-total-matches"), None);
                // The first request computes the number, and the others use the cache.
                for _ in 0..3 {
                    let answer = service.get(&format!("{TEN}?total=true&format={format}{count}&{query}")).await;
                    let found = (answer.status, answer.header("x-total-matches").map(str::to_owned));
                    assert_eq!(found, (200, Some(matches.to_string())), "{format}{count} {query}");
                    assert_eq!(answer.header("x-total-count"), plain.header("x-total-count"), "{query}");
                    let is_drawn = query.contains("sample") && !query.contains("seed") && count.is_empty();
                    assert!(is_drawn || answer.body == plain.body, "{format}{count} {query}");
                }
            }
        }
    }
}

#[tokio::test]
async fn total_has_own_etag_and_supports_ranges() {
    let service = service().await;
    let without = service.get(&format!("{TEN}?limit=2")).await;
    let with = service.get(&format!("{TEN}?limit=2&total=1")).await;
    let etag = with.header("etag").expect("missing etag");
    let other = without.header("etag").expect("missing etag");
    assert_ne!(etag, other);
    assert_eq!(service.get(&format!("{TEN}?limit=2&total=0")).await.header("etag"), Some(other));
    // The etag of the page without the total does not match.
    let again = service.get_with(&format!("{TEN}?limit=2&total=1"), &[("if-none-match", other)]).await;
    assert_eq!((again.status, again.header("x-total-matches")), (200, Some("10")));
    let revalidated = service.get_with(&format!("{TEN}?limit=2&total=1"), &[("if-none-match", etag)]).await;
    assert_eq!(
        (revalidated.status, revalidated.header("link"), revalidated.header("x-total-matches")),
        (304, None, None)
    );
    // A range of an export, before and after the export is created.
    for _ in 0..2 {
        let uri = format!("{TEN}?format=parquet&limit=2&total=true");
        let part = service.get_with(&uri, &[("range", "bytes=0-3")]).await;
        assert_eq!((part.status, part.text()), (206, "PAR1"));
        assert_eq!((part.header("x-total-count"), part.header("x-total-matches")), (Some("2"), Some("10")));
        check_part(&part);
    }
    let exposed = with.header("access-control-expose-headers").expect("missing exposed header");
    for name in ["X-Total-Matches", "Link"] {
        assert!(exposed.split(", ").any(|header| header == name), "{exposed}");
    }
}

/// A range of a page has the same links as the page.
fn check_part(part: &Answer) {
    let expected = format!("{TEN}?format=parquet&limit=2&total=true&offset=2");
    assert_eq!(links(part), BTreeMap::from([("next".to_owned(), expected)]));
}

#[tokio::test]
async fn count_is_cached_across_pages() {
    let service = service().await;
    let uri = format!("{TEN}?filter_contains=n:1&total=true&limit=0");
    assert_eq!(service.get(&uri).await.header("x-total-matches"), Some("1"));
    service
        .get(&format!("{TEN}?filter_contains=n:1&count=1&pretty=0"))
        .await
        .is("{\"count\":1,\"dataset_id\":1,\"version\":1,\"alt\":false}");
    // The cached count remains available after the file is deleted.
    for file in service.version_files() {
        std::fs::remove_file(file).expect("failed to remove");
    }
    let count = service.get(&format!("{TEN}?filter_contains=n:1&count=1")).await;
    assert_eq!((count.status, count.header("x-total-count")), (200, Some("1")));
}

// ---- Link ----

#[tokio::test]
async fn pages_link_to_next_and_previous() {
    let service = service().await;
    let url = |query: &str| format!("{TEN}?{query}");
    for (query, next, previous) in [
        ("", None, None),
        ("limit=3", Some("limit=3&offset=3"), None),
        ("limit=10", Some("limit=10&offset=10"), None),
        ("limit=11", None, None),
        ("limit=0", None, None),
        ("limit=3&offset=3", Some("limit=3&offset=6"), Some("limit=3&offset=0")),
        ("offset=2&limit=3", Some("offset=5&limit=3"), Some("offset=0&limit=3")),
        ("offset=9&limit=3", None, Some("offset=6&limit=3")),
        ("offset=99&limit=3", None, Some("offset=96&limit=3")),
        ("offset=18446744073709551615&limit=3", None, Some("offset=18446744073709551612&limit=3")),
        ("offset=4", None, Some("offset=0")),
        ("offset=4&limit=0", None, Some("offset=4&limit=0")),
        ("offset=4&limit=18446744073709551615", None, Some("offset=0&limit=18446744073709551615")),
        ("limit=3&filter=k:1", None, None),
        ("limit=2&filter=k:1", Some("limit=2&filter=k:1&offset=2"), None),
        ("limit=1&count=true", None, None),
        ("offset=1&count=true", None, None),
        ("limit=1&sample=5", None, None),
        ("limit=2&sample=5&seed=7", Some("limit=2&sample=5&seed=7&offset=2"), None),
        ("limit=2&format=csv", Some("limit=2&format=csv&offset=2"), None),
        ("limit=2&format=parquet&typed=1", Some("limit=2&format=parquet&typed=1&offset=2"), None),
    ] {
        let answer = service.get(&url(query)).await;
        let next = next.map(|query| ("next".to_owned(), url(query)));
        let previous = previous.map(|query| ("prev".to_owned(), url(query)));
        assert_eq!(answer.status, 200, "{query}");
        assert_eq!(links(&answer), next.into_iter().chain(previous).collect(), "{query}");
    }
}

#[tokio::test]
async fn links_preserve_query_and_pin_version() {
    let service = service().await;
    let sent = "filter=k%3A1&&keep_field=n,k&x=%F0%9F%A6%80+%3b;&f;=%3C%22%3E&%6Fffset=1&limit=1&strict=0";
    for path in ["/api/1/ten/active/", "/api/1/ten/latest", "/api/1/ten/v1/", "/api/1/t%65n/active"] {
        let answer = service.get(&format!("{path}?{sent}")).await;
        let served = path.replace("active", "v1").replace("latest", "v1");
        let link_to = |offset: u64| {
            let query = format!(
                "filter=k%3A1&keep_field=n,k&x=%F0%9F%A6%80+%3b%3B&f%3B=%3C%22%3E&offset={offset}&limit=1&strict=0"
            );
            format!("{served}?{query}")
        };
        check_links(&answer, &[("next", &link_to(2)), ("prev", &link_to(0))]);
        let following = service.get(&link_to(0)).await;
        assert_eq!(numbers(&following), [2]);
    }
    // Links use the host of the request and pin the version, even if newer versions are published.
    let answer = service.get_with("/api/1/ten/active?limit=1", &[("host", "data.test:81")]).await;
    assert_eq!(answer.header("link"), Some("<http://data.test:81/api/1/ten/v1?limit=1&offset=1>; rel=\"next\""));
    let later = service.import("Ten", "{\"n\":77}").await;
    assert_eq!(later.version.get(), 2);
    check_links(&service.get("/api/1/ten/active?limit=1").await, &[("next", "/api/1/ten/v2?limit=1&offset=1")]);
    check_links(&service.get("/api/1/ten/v1?limit=1").await, &[("next", "/api/1/ten/v1?limit=1&offset=1")]);
    // Errors have no links.
    assert_eq!(service.get("/api/1/ten/v9?offset=1").await.header("link"), None);
}

#[tokio::test]
async fn alternate_links_to_alternate() {
    let owned = Owned::sqlite().await;
    let id = owned.dataset("Ten", json!({}), &["[{\"n\":1},{\"n\":2}]"]).await;
    assert_eq!(owned.save(id, 1, "[{\"n\":3},{\"n\":4},{\"n\":5}]").await.status, 200);
    for (uri, next) in [
        ("active/alt/?limit=1", "v1/alt/?limit=1&offset=1"),
        ("latest/alt?alt=false&limit=1", "v1/alt?alt=false&limit=1&offset=1"),
        ("v1/?alt=true&limit=1", "v1/?alt=true&limit=1&offset=1"),
    ] {
        let answer = owned.service.get(&format!("/api/{id}/ten/{uri}")).await;
        let next = format!("/api/{id}/ten/{next}");
        check_links(&answer, &[("next", &next)]);
        assert_eq!(numbers(&owned.service.get(&next).await), [4]);
    }
    let total = owned.service.get(&format!("/api/{id}/ten/v1/alt/?limit=1&total=1")).await;
    assert_eq!(total.header("x-total-matches"), Some("3"));
    let total = owned.service.get(&format!("/api/{id}/ten/v1/?limit=1&total=1")).await;
    assert_eq!(total.header("x-total-matches"), Some("2"));
}

#[tokio::test]
async fn long_link_is_omitted() {
    let service = service().await;
    let overhead = |offset: &str, filler: &str| {
        let url = format!("http://127.0.0.1:8080{TEN}?limit=1&offset={offset}&x={filler}");
        format!("<{url}>; rel=\"next\"").len()
    };
    let longest = MAX_LINK_HEADER_BYTES - overhead("2", "");
    for (filler, expected) in [(longest / 4, 2), (longest, 1), (longest + 1, 0), (16_000, 0)] {
        let answer = service.get(&format!("{TEN}?limit=1&offset=1&x={}", "y".repeat(filler))).await;
        let found = links(&answer);
        assert_eq!(found.len(), expected, "{filler}");
        assert_eq!(found.contains_key("next"), expected > 0);
        assert!(answer.header("link").unwrap_or_default().len() <= MAX_LINK_HEADER_BYTES);
    }
}

#[tokio::test]
async fn following_links_returns_each_entity_once() {
    let service = service().await;
    for query in ["limit=3", "limit=5", "limit=4&sort=n:desc", "limit=3&sample=8&seed=1", "limit=1&filter=k:2"] {
        let whole = query.split('&').filter(|part| !part.starts_with("limit")).collect::<Vec<_>>().join("&");
        let expected = numbers(&service.get(&format!("{TEN}?{whole}")).await);
        let mut found = Vec::new();
        let mut uri = Some(format!("/api/1/ten/active/?{query}"));
        let mut last = String::new();
        while let Some(next) = uri {
            let answer = service.get(&next).await;
            found.extend(numbers(&answer));
            uri = links(&answer).remove("next");
            last = next;
        }
        assert_eq!(found, expected, "{query}");
        // And back to the first page.
        let mut steps = 0;
        while let Some(previous) = links(&service.get(&last).await).remove("prev") {
            last = previous;
            steps += 1;
        }
        assert!(last.contains("offset=0") || steps == 0, "{last}");
    }
}

// ---- seed ----

#[tokio::test]
async fn seeded_sample_is_the_same_on_every_page() {
    let service = service().await;
    let mut ranked: Vec<u64> = (0..10).collect();
    ranked.sort_by_key(|position| sip_hash([7, 0], *position));
    let all = numbers(&service.get(&format!("{TEN}?sample=10&seed=7")).await);
    assert_eq!(all, ranked);
    for number in [0, 1, 4, 10, 99] {
        let drawn = numbers(&service.get(&format!("/api/1/ten/active?seed=7&sample={number}")).await);
        assert_eq!(drawn, ranked[..number.min(10)], "{number}");
    }
    assert_eq!(numbers(&service.get(&format!("{TEN}?sample=6&seed=7&offset=2&limit=3")).await), ranked[2..5]);
    // The order before the sample does not matter, but the selection does.
    assert_eq!(numbers(&service.get(&format!("{TEN}?sample=4&seed=7&sort=n:desc")).await), ranked[..4]);
    let filtered: Vec<u64> = ranked.iter().copied().filter(|number| number / 2 == 3).collect();
    assert_eq!(numbers(&service.get(&format!("{TEN}?sample=4&seed=7&filter=k:3")).await), filtered);
    let csv = service.get(&format!("{TEN}?sample=3&seed=7&format=csv&keep_field=n")).await;
    csv.is(&format!("n\n{}\n{}\n{}\n", ranked[0], ranked[1], ranked[2]));
    // Other seeds draw other lists. All 64 bits count.
    for seed in [0, 1, 2, (1 << 32) | 7, 7 << 32, u64::MAX] {
        let mut expected: Vec<u64> = (0..10).collect();
        expected.sort_by_key(|position| sip_hash([seed, 0], *position));
        let drawn = numbers(&service.get(&format!("{TEN}?sample=10&seed={seed}")).await);
        assert_eq!(drawn, expected, "{seed}");
        assert_ne!(drawn, all, "{seed}");
    }
    // Another node draws the same sample.
    let other_node = service.open_instance(|config| config.query.threads = 1).await;
    assert_eq!(numbers(&other_node.get(&format!("{TEN}?sample=10&seed=7")).await), ranked);
}

#[tokio::test]
async fn only_seeded_sample_has_etag() {
    let service = service().await;
    for (query, is_tagged) in [
        ("sample=3&seed=1", true),
        ("sample=3&seed=1&count=1", true),
        ("sample=3&seed=1&format=parquet", true),
        ("sample=3", false),
        ("sample=3&count=1", false),
    ] {
        let answer = service.get(&format!("{TEN}?{query}")).await;
        assert_eq!(answer.header("etag").is_some(), is_tagged, "{query}");
        let control = if is_tagged { "public, no-cache" } else { "no-store" };
        assert_eq!(answer.header("cache-control"), Some(control), "{query}");
        if let Some(etag) = answer.header("etag") {
            let revalidated = service.get_with(&format!("{TEN}?{query}"), &[("if-none-match", etag)]).await;
            assert_eq!((revalidated.status, revalidated.header("link")), (304, None), "{query}");
            assert_ne!(service.get(&format!("{TEN}?{query}2")).await.header("etag"), Some(etag), "{query}");
        }
    }
}

#[tokio::test]
async fn seed_without_sample_returns_400() {
    let service = service().await;
    for query in ["seed=1", "seed=1&limit=3", "count=1&seed=1"] {
        let answer = service.get(&format!("{TEN}?{query}")).await;
        answer.is_error(400);
        assert_eq!(
            answer.text(),
            "Invalid query: parameter seed: \"1\" requires sample; valid: seed together with sample."
        );
    }
    for query in ["seed=x&sample=1", "seed=-1&sample=1", "seed=18446744073709551616&sample=1", "seed=1&seed=1&sample=1"]
    {
        let answer = service.get(&format!("{TEN}?{query}")).await;
        answer.is_error(400);
        assert!(answer.text().starts_with("Invalid query: parameter seed: "), "{}", answer.text());
    }
    let unlimited = service.get(&format!("{TEN}?seed=18446744073709551615&sample=1")).await;
    assert_eq!(unlimited.status, 200);
}
