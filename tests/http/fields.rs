//! Unknown fields in reads: `X-Unknown-Fields` and `strict` (docs/reference/query-semantics.md, Unknown fields).

use strata_http::params;
use strata_reference::unknown;
use strata_reference::value::Value;
use strata_testing::TestService;
use strata_types::read_request::ReadRequest;

const ENTITIES: [&str; 4] = [
    r#"{"_source":"s1","name":"A","stock":{"berlin":3,"köln":null},"note":"","sizes":[{"cm":5},{"cm":7}]}"#,
    r#"{"_source":"s2","name":"B","stock":{"berlin":0},"note":null,"sizes":[],"tags":["",null],"deep":[[{"x":1}]]}"#,
    r#"{"_source":"s3","name":"C","stock":7,"empty":{},"a.b":1,"lists":[[]],"gone":[null]}"#,
    r#"{"_source":"s4","name":"D","stock":8,"a, b":2,"mixed":["",{"y":null}],"gone":""}"#,
];

async fn service() -> TestService {
    let service = TestService::configured(|config| config.limits.public_per_minute = 0).await;
    service.import("Some", &format!("[{}]", ENTITIES.join(","))).await;
    service
}

/// Returns the unknown paths of a request, by the naive reference.
fn unknown(request: &ReadRequest) -> Vec<String> {
    unknown::paths(&ENTITIES.map(|entity| Value::parse_entity(entity).expect("missing entity")), request)
}

#[tokio::test]
async fn unknown_fields_are_listed_once_in_url_order() {
    let service = service().await;
    for (query, unknown_fields) in [
        ("limit=1", None),
        ("filter=name:A&sort=stock&keep_field=name,stock", None),
        ("filter=nmae:A", Some("nmae")),
        ("sort=nmae&filter=nmae:A&filter_contains=stock.bärlin:1", Some("nmae,stock.b%C3%A4rlin")),
        ("filter_lt=nmae:A&filter_gt=stock.berlin:1&sort=x&filter_gte=y:1", Some("nmae,x,y")),
        ("keep_field=name&filter_lte=stock.berlin:3", Some("stock.berlin")),
        ("dedup_key=y&sort=x&keep_field=name", Some("y,x")),
        // The first use of the field precedes its removal.
        ("drop_field=stock&filter_gt=zz:1&filter_lt=stock:1", Some("zz,stock")),
        ("drop_field=stock&sort=stock&filter_gt=zz:1&filter_lt=stock:1", Some("stock,zz")),
        ("sort=zz&drop_field=stock&keep_field=name&filter_lt=stock:1", Some("zz,stock")),
        // Escaped dots belong to the name of a field, and unescaped dots separate names.
        (r"drop_field=a\.b,a.b,a\,%20b", Some("a.b")),
        ("sort=a.b", None),
        ("sort=a.c", Some("a%5C.c")),
        // Unknown paths are escaped as in a request, and then percent-encoded.
        (r"drop_field=x\,y,x\:y,p%25q,b\\s,\.,ö.ü", Some("x%5C%2Cy,x%5C%3Ay,p%25q,b%5C%5Cs,%5C.,%C3%B6.%C3%BC")),
        (r"sort=x,y:z:asc&filter=x\,y\:z:1", Some("x%5C%2Cy%5C%3Az")),
        // Fields that an earlier step has removed.
        ("keep_field=name&filter=stock.berlin:3", Some("stock.berlin")),
        ("drop_field=stock&sort=stock", Some("stock")),
        ("include_source=false&dedup_key=_source", Some("_source")),
        ("denull=true&sort=note", Some("note")),
        ("keep_field=stock.berlin&dedup_key=stock,stock.köln", Some("stock.k%C3%B6ln")),
        // Objects and lists are values, and so is null.
        ("keep_field=empty,lists,note,stock.köln,tags,sizes.cm,deep.x", None),
        ("count=true&filter=nope:1", Some("nope")),
        ("format=csv&keep_field=name,nope", Some("nope")),
        ("format=parquet&keep_field=name,nope", Some("nope")),
    ] {
        let answer = service.get(&format!("/api/1/some/v1?{query}")).await;
        assert_eq!(
            (answer.status, answer.header("x-unknown-fields")),
            (200, unknown_fields),
            "{query}: {}",
            answer.text()
        );
        let exposed = answer.header("access-control-expose-headers").expect("missing exposed headers");
        assert!(exposed.contains("X-Unknown-Fields"), "{exposed}");
    }
    // Paths are escaped and then encoded, so that the decoded header is a valid list of paths.
    for listed in ["x%5C%2Cy,x%5C%3Ay,p%25q,b%5C%5Cs,%5C.,%C3%B6.%C3%BC", "a%5C.c,a.c"] {
        for parameter in ["keep_field", "drop_field", "dedup_key"] {
            let again = service.get(&format!("/api/1/some/v1?{parameter}={listed}")).await;
            assert_eq!(again.header("x-unknown-fields"), Some(listed), "{parameter}");
        }
        // A single path also works in a filter.
        let first = listed.split(',').next().expect("missing item");
        let again = service.get(&format!("/api/1/some/v1?filter={first}:1")).await;
        assert_eq!(again.header("x-unknown-fields"), Some(first));
    }
    let long: Vec<String> = (0..200).map(|number| format!("unknown_{number}")).collect();
    let answer = service.get(&format!("/api/1/some/v1?drop_field={}", long.join(","))).await;
    let listed = answer.header("x-unknown-fields").expect("invalid header");
    assert!(listed.len() <= 1_024 && long.join(",").starts_with(&format!("{listed},")), "{listed}");
}

#[tokio::test]
async fn strict_read_rejects_unknown_names() {
    let service = service().await;
    let plain = service.get("/api/1/some/v1?filter=name:A").await;
    let strict = service.get("/api/1/some/v1?filter=name:A&strict=true").await;
    assert_eq!((strict.status, strict.text()), (200, plain.text()));
    assert_eq!(strict.header("etag"), plain.header("etag"), "it is the same answer");

    for (query, parts) in [
        ("filter=nmae:A", &["filter", "\"nmae\"", "Did you mean \"name\"?"][..]),
        ("filter_gt=nmae:A", &["filter_gt", "\"nmae\"", "Did you mean \"name\"?"]),
        (
            "drop_field=stock&filter_lte=stock.berlin:3",
            &["filter_lte", "\"stock.berlin\"", "drop_field removed this field"],
        ),
        ("sort=zzzzzzzz", &["sort", "\"zzzzzzzz\"", "/dataset/profile"]),
        ("keep_field=name&sort=stock", &["sort", "\"stock\"", "keep_field removed this field"]),
        ("drop_field=stock&filter=stock.berlin:3", &["filter", "\"stock.berlin\"", "drop_field removed this field"]),
        (
            "include_source=false&drop_field=_source",
            &["drop_field", "\"_source\"", "include_source removed this field"],
        ),
        ("denull=true&keep_field=note", &["keep_field", "\"note\"", "denull removed this field"]),
        ("denull=true&keep_field=gone", &["keep_field", "\"gone\"", "denull removed this field"]),
        ("dedup_key=nope&count=true", &["dedup_key", "\"nope\""]),
        // Suggestions are paths.
        ("dedup=true&dedup_key=stock.berln", &["Did you mean \"stock.berlin\"?"]),
        ("sort=stock.berlin", &["`sort` requires a top-level field, but \"stock.berlin\" is a nested path."]),
        ("drop_field=a1,b1,c1,d1,e1", &["\"a1\"", "\"c1\"", "And 2 more."]),
        ("lmit=1", &["\"lmit\"", "did you mean limit?"]),
    ] {
        let answer = service.get(&format!("/api/1/some/v1?{query}&strict=1")).await;
        answer.is_error(400);
        for part in parts {
            assert!(answer.text().contains(part), "{query}: {}", answer.text());
        }
        assert_eq!(answer.header("x-unknown-fields"), None);
    }
    // A matching etag does not skip the check.
    let tag = plain.header("etag").expect("missing etag").to_owned();
    let uri = "/api/1/some/v1?filter=name:A&strict=true";
    assert_eq!(service.get_with(uri, &[("if-none-match", &tag)]).await.status, 304);
    let uri = "/api/1/some/v1?filter=nmae:A&strict=true";
    service.get_with(uri, &[("if-none-match", "*")]).await.is_error(400);
    // Earlier checks come first.
    service.get("/api/1/some/v9?filter=nmae:A&strict=true").await.is_error(404);
    service.get("/api/1/some/v1/alt/?filter=nmae:A&strict=true").await.is_error(404);
}

#[tokio::test]
async fn strict_field_error_counts_toward_rate_limit() {
    let service = TestService::configured(|config| config.limits.public_per_minute = 100).await;
    service.import("Some", "[{\"a\":1}]").await;
    let left = |answer: strata_testing::Answer| answer.header("x-ratelimit-remaining").map(str::to_owned);
    assert_eq!(left(service.get("/api/1/some/v1?strict=true&lmit=1").await), None);
    assert_eq!(left(service.get("/api/1/some/v1?strict=true&sort=b").await).as_deref(), Some("99"));
    assert_eq!(left(service.get("/api/1/some/v1?strict=true&sort=a").await).as_deref(), Some("98"));
}

#[tokio::test]
async fn empty_version_accepts_every_path() {
    let service = TestService::start().await;
    service.import("None", "[]").await;
    let answer = service.get("/api/1/none/v1?strict=true&keep_field=a&filter=b:1").await;
    assert_eq!((answer.status, answer.header("x-unknown-fields")), (200, None));
    let answer = service.get("/api/1/none/v1?keep_field=a&filter=b:1").await;
    assert_eq!((answer.status, answer.header("x-unknown-fields")), (200, None));
}

#[tokio::test]
async fn unprofiled_paths_are_found_in_documents() {
    let service = TestService::configured(|config| config.limits.public_per_minute = 0).await;
    let members: Vec<String> = (0..10_050).map(|number| format!("\"k{number}\":{number}")).collect();
    service.import("Wide", &format!("[{{\"a\":1}},{{{}}}]", members.join(","))).await;
    for (query, status) in [
        ("keep_field=k10049", 200),
        ("keep_field=k1,k10049&sort=k10049", 200),
        ("keep_field=k10050", 400),
        ("drop_field=k10049&sort=k10049", 400),
    ] {
        let answer = service.get(&format!("/api/1/wide/v1?{query}&strict=true&count=true")).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
    }
    let answer = service.get("/api/1/wide/v1?keep_field=k10050&count=true").await;
    assert_eq!((answer.status, answer.header("x-unknown-fields")), (200, None), "only the documents would tell");
}

/// Compares strict reads with a naive check of every entity after every step, for all combinations of some lists.
#[tokio::test]
async fn strict_reads_match_naive_reference() {
    let service = service().await;
    let lists =
        ["", "name,stock", "stock.berlin,gone", "sizes.cm,tags,lists.x,mixed.y,_source", "nope.x,stock.nope,deep"];
    let paths = r"dedup_key=_source,name,stock,stock.berlin,stock.köln,note,sizes,sizes.cm,tags,deep,deep.x,empty,a\.b";
    let mut both = [0, 0];
    for keep in lists {
        for drop in lists {
            for rest in ["", "&denull=1", "&include_source=0", "&denull=1&include_source=0"] {
                let mut queries = vec![format!("keep_field={keep}&drop_field={drop}{rest}")];
                for path in
                    paths.trim_start_matches("dedup_key=").split(',').chain(["lists", "gone", "mixed", "mixed.y"])
                {
                    queries.push(format!("keep_field={keep}&drop_field={drop}{rest}&dedup_key={path}"));
                }
                for query in queries {
                    let (request, _) = params::parse_query(Some(&query)).expect("invalid request");
                    let expected = unknown(&request);
                    let answer = service.get(&format!("/api/1/some/v1?{query}&strict=1&count=1")).await;
                    both[usize::from(expected.is_empty())] += 1;
                    assert_eq!(answer.status == 200, expected.is_empty(), "{query}: {expected:?} {}", answer.text());
                    let answer = service.get(&format!("/api/1/some/v1?{query}&count=1")).await;
                    let header = answer.header("x-unknown-fields").unwrap_or_default().to_owned();
                    let listed: Vec<String> = header
                        .split(',')
                        .filter(|path| !path.is_empty())
                        .map(|path| percent_encoding::percent_decode_str(path).decode_utf8_lossy().into_owned())
                        .collect();
                    if request.denull {
                        assert!(listed.iter().all(|path| expected.contains(path)), "{query}: {listed:?} {expected:?}");
                    } else {
                        assert_eq!(sorted(listed), sorted(expected), "{query}");
                    }
                }
            }
        }
    }
    assert!(both.iter().all(|number| *number > 50), "{both:?}");
}

fn sorted(mut paths: Vec<String>) -> Vec<String> {
    paths.sort_unstable();
    paths
}
