//! Headers and errors of all pages, and independence of the API from the dashboard.

use axum::body::Body;
use axum::http::Request;
use strata_testing::catalog::execute;
use strata_testing::html::{Page, is_guarded};
use strata_testing::{OWNER, TestService};

use super::{Browser, HOST};

#[tokio::test]
async fn api_is_the_same_with_and_without_dashboard() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    let plain = service.open_instance(|config| config.server.dashboard = false).await;
    for (method, uri) in [
        ("POST", "/"),
        ("PUT", "/"),
        ("OPTIONS", "/"),
        ("GET", "/nothing"),
        ("GET", "/uix"),
        ("GET", "/favicon.ico"),
        ("POST", "/ui"),
        ("DELETE", "/ui/nothing"),
        ("PUT", "/ui/1/ten/v1/nothing"),
        ("GET", "/api/1/ten/v1/"),
        ("GET", "/api/1/ten"),
        ("GET", "/datasets"),
        ("GET", "/dataset/list"),
        ("GET", "/openapi.json"),
        ("POST", "/api/1/ten/v1/"),
    ] {
        let with = service.send(method, uri, None).await;
        let without = plain.send(method, uri, None).await;
        assert_eq!((with.status, &with.body), (without.status, &without.body), "{method} {uri}");
        let headers = |answer: &strata_testing::Answer| {
            let mut headers = answer.headers.clone();
            headers.remove("x-request-id");
            headers
        };
        assert_eq!(headers(&with), headers(&without), "{method} {uri}");
    }
    for uri in ["/", "/ui", "/ui/sign-in", "/ui/1/ten/active/"] {
        plain.get(uri).await.is_error(404);
    }
}

#[tokio::test]
async fn pages_are_never_cached_by_proxies() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    let owner = Browser::user(&service, OWNER).await;
    for uri in ["/", "/ui/1/ten/active/", "/ui/1/ten/v1/profile", "/ui/1/ten/versions", "/ui/1/ten/v1/entity/0"] {
        let answer = visitor.get(uri).await;
        Page::parse(&answer, 200);
        assert_eq!(answer.header("cache-control"), Some("private, no-cache"), "{uri}");
        assert_eq!(answer.header("vary"), Some("Accept-Encoding, Cookie"), "{uri}");
        let answer = owner.get(uri).await;
        Page::parse(&answer, 200);
        assert_eq!(answer.header("cache-control"), Some("private, no-store"), "{uri}");
    }
    for uri in ["/ui/sign-in", "/ui/nothing"] {
        assert_eq!(visitor.get(uri).await.header("cache-control"), Some("private, no-store"), "{uri}");
    }
}

#[tokio::test]
async fn head_returns_headers_of_get() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    for (uri, status) in [
        ("/", 200),
        ("/ui/sign-in", 200),
        ("/ui/1/ten/active/", 200),
        ("/ui/1/ten/versions", 200),
        ("/ui/1/ten", 303),
        ("/ui/nothing", 404),
    ] {
        let head = service.send("HEAD", uri, None).await;
        let get = service.get(uri).await;
        assert_eq!((head.status, head.body.len()), (status, 0), "{uri}");
        is_guarded(&head);
        // Otherwise, caches could apply different rules after a HEAD request.
        for name in ["cache-control", "vary", "content-type"] {
            assert_eq!(head.header(name), get.header(name), "{uri}: {name}");
        }
    }
}

#[tokio::test]
async fn style_sheet_is_cached_forever() {
    let service = TestService::start().await;
    let page = Browser::visitor(&service).page("/").await;
    let href = page.one("link[rel=stylesheet]").attr("href").expect("a path").to_owned();
    assert!(href.starts_with("/ui/assets/style-") && href.ends_with(".css") && href.len() > 30, "{href}");
    let plain = service.get(&href).await;
    assert_eq!(plain.status, 200);
    for (coding, name) in [("identity", None), ("gzip", Some("gzip")), ("br", Some("br")), ("zstd", Some("zstd"))] {
        let answer = service.get_with(&href, &[("accept-encoding", coding)]).await;
        assert_eq!(answer.header("content-type"), Some("text/css; charset=utf-8"));
        assert_eq!(answer.header("cache-control"), Some("public, max-age=31536000, immutable"));
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), (name, Some("Accept-Encoding")));
        is_guarded(&answer);
        match name {
            None => assert_eq!(answer.body, plain.body),
            Some(_) => assert!(answer.body.len() < plain.body.len() / 2, "{coding}: {}", answer.body.len()),
        }
    }
    // The style sheet loads nothing, and other hashes return 404.
    assert!(!plain.text().contains("url(") && !plain.text().contains("@import"));
    for other in ["/ui/assets/style-0000000000000000.css", "/ui/assets/x"] {
        Page::parse(&service.get(other).await, 404);
    }
}

#[tokio::test]
async fn script_is_small_and_cached_forever() {
    let service = TestService::start().await;
    let page = Browser::visitor(&service).page("/").await;
    let href = page.one("script").attr("src").expect("a path").to_owned();
    let plain = service.get(&href).await;
    assert!(plain.status == 200 && plain.body.len() < 60_000, "{}", plain.body.len());
    let coded = service.get_with(&href, &[("accept-encoding", "br")]).await;
    assert_eq!(coded.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(coded.header("cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(coded.header("content-encoding"), Some("br"));
    assert!(coded.body.len() < plain.body.len() / 2, "{}", coded.body.len());
    is_guarded(&coded);
    // The script does not evaluate text and contacts no other hosts.
    for part in ["eval(", "new Function", "http://", "https://"] {
        assert!(!plain.text().replace("http://www.w3.org/", "").contains(part), "{part}");
    }
}

#[tokio::test]
async fn page_is_compressed_as_requested() {
    let service = TestService::start().await;
    let plain = service.get("/ui/sign-in").await;
    for coding in ["gzip", "br", "zstd"] {
        let answer = service.get_with("/ui/sign-in", &[("accept-encoding", coding)]).await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, Some(coding)));
        assert!(answer.body.len() < plain.body.len(), "{coding}");
    }
}

#[tokio::test]
async fn page_errors_are_pages_with_reason() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    for (uri, status, words) in [
        ("/ui/nothing", 404, "This page does not exist."),
        ("/ui/1/ten/v1/nothing", 404, "This page does not exist."),
        ("/ui/x/ten/v1/", 400, "dataset_id is \"x\""),
        ("/ui/0/ten/", 400, "dataset_id is \"0\""),
        ("/ui/1/%zz/v1/", 400, "name_slug is \"%zz\""),
        ("/ui/1/ten/new/", 400, "version is \"new\""),
        ("/ui/1/other/v1/", 404, "There is no dataset with this dataset_id and name_slug."),
        ("/ui/9/ten/v1/", 404, "There is no dataset with this dataset_id and name_slug."),
        ("/ui/1/ten/v2/", 404, "its only version is 1"),
        ("/ui/1/ten/v1/alt/", 404, "Version 1 of this dataset has no alternate."),
        ("/ui/1/ten/v1/entity/1", 404, "There is no position 1: this version has 1 entity, at position 0."),
        ("/ui/1/ten/v1/entity/99999999999999999999999", 404, "There is no position 99999999999999999999999:"),
        ("/ui/1/ten/v1/entity/-1", 400, "but is \"-1\"."),
        ("/ui/1/ten/v1/entity/%3Cscript%3E", 400, "The position must be a whole number"),
        ("/ui/9/ten/versions", 404, "There is no dataset with this dataset_id and name_slug."),
        ("/ui/1/ten/manage/pin?version=1", 401, "To see this page, sign in as the dataset’s owner."),
        ("/ui/1/ten/settings", 401, "To see this page, sign in as the dataset’s owner."),
        ("/ui/1/ten/clone", 401, "To see this page, sign in."),
        ("/ui/account", 401, "To see this page, sign in."),
        ("/ui/new", 401, "To see this page, sign in."),
        ("/ui/1/ten/manage/nothing", 404, "This page does not exist."),
    ] {
        let page = visitor.error(uri, status).await;
        let text = page.words("main [role=alert]");
        assert!(text.contains(words), "{uri}: {text}");
        assert_eq!(page.words("main .status"), status.to_string());
        // The page links to the dataset if it exists.
        let leads_back = page.select("main a[href='/ui/1/ten/versions']").len() == 1;
        let is_there = ["its only version", "no alternate", "no position"].iter().any(|said| text.contains(said));
        assert_eq!(leads_back, is_there, "{uri}");
    }
    let long = format!("/ui/1/ten/v1/?x={}", "y".repeat(33_000));
    assert!(visitor.error(&long, 414).await.words("[role=alert]").contains("the query string is"));
    assert_eq!(visitor.error("/ui/nothing", 404).await.select("main a[href^='/ui/sign-in']").len(), 1);
    super::assert_redirect(&visitor.get("/ui").await, "/");
    super::assert_redirect(&visitor.get("/ui/").await, "/");
    super::assert_redirect(&visitor.get("/ui/1/ten").await, "/ui/1/ten/active/");
    super::assert_redirect(&visitor.get("/ui/1/ten/").await, "/ui/1/ten/active/");
}

#[tokio::test]
async fn page_reads_count_toward_read_limits() {
    let service = TestService::configured(|config| config.limits.public_per_minute = 3).await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    let first = visitor.get("/ui/1/ten/active/").await;
    assert_eq!(first.header("x-ratelimit-limit"), Some("3"));
    assert_eq!(first.header("x-ratelimit-remaining"), Some("2"));
    assert_eq!(service.get("/api/1/ten/active/").await.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(visitor.get("/ui/1/ten/v1/entity/0").await.header("x-ratelimit-remaining"), Some("0"));
    for uri in ["/ui/1/ten/active/", "/ui/1/ten/v1/profile", "/ui/1/ten/versions", "/", "/ui/1/ten/v1/download"] {
        let answer = visitor.get(uri).await;
        let page = Page::parse(&answer, 429);
        assert!(answer.header("retry-after").is_some(), "{uri}");
        assert!(page.words("[role=alert]").starts_with("Too many requests. Try again in "), "{uri}");
    }
    // Pages without a read are not counted.
    visitor.page("/ui/sign-in").await;
}

#[tokio::test]
async fn signed_in_page_reads_count_toward_limits() {
    let service = TestService::configured(|config| {
        (config.limits.public_per_minute, config.limits.private_per_minute) = (3, 3);
    })
    .await;
    service.import("Ten", "{\"n\":1}").await;
    service.try_import("Secret", true, b"{\"n\":1}").await.expect("imported");
    let owner = Browser::user(&service, OWNER).await;
    for dataset in ["1/ten", "2/secret"] {
        for (page, left) in [("active/", "2"), ("versions", "1"), ("v1/profile", "0")] {
            let answer = owner.get(&format!("/ui/{dataset}/{page}")).await;
            assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, Some(left)), "{dataset} {page}");
        }
        assert_eq!(owner.get(&format!("/ui/{dataset}/versions")).await.status, 429, "{dataset}");
    }
    // The rate limit does not reveal whether a dataset exists.
    assert_eq!(owner.get("/ui/9/missing/versions").await.status, 429);
}

#[tokio::test]
async fn private_versions_are_loaded_only_for_owner() {
    let service = TestService::start().await;
    service.try_import("Secret", true, b"{\"n\":1}").await.expect("imported");
    strata_testing::owned::add_user(&service, "other@strata.test", strata_types::user::UserPlan::Free).await;
    let visitor = Browser::visitor(&service);
    let owner = Browser::user(&service, OWNER).await;
    let other = Browser::user(&service, "other@strata.test").await;
    // Loading the versions now fails.
    execute(&service, "UPDATE versions SET created_at = created_at + 1").await;
    assert_eq!(owner.get("/ui/1/secret/versions").await.status, 500);
    for (browser, uri, status) in [
        (&visitor, "/ui/1/secret/versions", 404),
        (&other, "/ui/1/secret/versions", 404),
        (&owner, "/ui/1/other/versions", 404),
        (&other, "/ui/1/secret/settings", 404),
        (&other, "/ui/1/secret/manage/unpin", 404),
        (&other, "/dataset/view?dataset_id=1", 404),
    ] {
        assert_eq!(browser.get(uri).await.status, status, "{uri}");
    }
}

#[tokio::test]
async fn private_dataset_looks_missing_to_others() {
    let service = TestService::start().await;
    service.try_import("Secret", true, b"{\"n\":1}").await.expect("imported");
    strata_testing::owned::add_user(&service, "other@strata.test", strata_types::user::UserPlan::Free).await;
    let visitor = Browser::visitor(&service);
    let owner = Browser::user(&service, OWNER).await;
    let other = Browser::user(&service, "other@strata.test").await;
    for page in ["active/", "v1/", "v9/", "v1/alt/", "v1/profile", "v1/download", "v1/entity/0", "versions"] {
        for browser in [&visitor, &other] {
            let hidden = browser.get(&format!("/ui/1/secret/{page}")).await;
            let missing = browser.get(&format!("/ui/7/secret/{page}")).await;
            let hidden_page = Page::parse(&hidden, 404);
            let missing_page = Page::parse(&missing, 404);
            assert_eq!(hidden_page.words("main"), missing_page.words("main"), "{page}");
            assert_eq!(hidden.headers.len(), missing.headers.len(), "{page}");
        }
    }
    for page in ["active/", "v1/profile", "v1/entity/0", "versions"] {
        owner.page(&format!("/ui/1/secret/{page}")).await;
    }
    assert!(!visitor.page("/").await.text.contains("Secret"));
    assert!(!other.page("/?q=secret").await.text.contains("/secret/"));
    assert_eq!(owner.get("/ui/1/secret/v1/download?format=csv").await.text(), "n\n1\n");
    // The read endpoint does not accept the session.
    owner.get("/api/1/secret/v1/").await.is_error(401);
}

#[tokio::test]
async fn api_token_does_not_sign_in() {
    let owned = strata_testing::owned::Owned::sqlite().await;
    let request = Request::get("/").header("host", HOST).header("authorization", format!("Bearer {}", owned.token()));
    let answer = owned.service.call(request.body(Body::empty()).expect("a request")).await;
    let page = Page::parse(&answer, 200);
    assert_eq!(page.link("Sign in"), "/ui/sign-in?next=/");
}

/// Regression: a mistyped URL returned one line of plain text.
#[tokio::test]
async fn unknown_path_returns_page_or_text() {
    const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    let service = TestService::start().await;
    for path in ["/nothing", "/apis/1", "/datasets/", "/index.html"] {
        let answer = service.get_with(path, &[BROWSER]).await;
        is_guarded(&answer);
        assert!(answer.header("vary").is_some_and(|vary| vary.contains("Accept,")), "{path}");
        let page = Page::parse(&answer, 404);
        assert_eq!(page.words("h1"), "Not found", "{path}");
        assert!(page.links().contains(&"/ui/api".to_owned()) && page.links().contains(&"/".to_owned()), "{path}");
        for accept in ["*/*", "application/json", "text/html;q=0", "text/plain"] {
            let answer = service.get_with(path, &[("accept", accept)]).await;
            answer.is_error(404);
            assert!(answer.text().starts_with("This path does not exist."), "{path}: {}", answer.text());
        }
        service.get(path).await.is_error(404);
        let head = service.send_with("HEAD", path, &[BROWSER]).await;
        assert_eq!((head.status, head.text()), (404, ""), "{path}");
        let posted = service.send_with("POST", path, &[BROWSER]).await;
        assert!(posted.text().starts_with("This path does not exist."), "{path}");
    }
    let misspelt = Page::parse(&service.get_with("/dataset/lists", &[BROWSER]).await, 404);
    assert!(misspelt.words("[role=alert]").contains("Did you mean /dataset/list?"), "{}", misspelt.words("main"));
    // Operations without a page also return a page to browsers.
    let answer = service.get_with("/dataset/create", &[BROWSER]).await;
    is_guarded(&answer);
    assert_eq!(answer.header("allow"), Some("POST"));
    let page = Page::parse(&answer, 405);
    assert!(page.words("[role=alert]").contains("There is no page at this address"), "{}", page.words("main"));
    // The path of a form redirects to its page, because browsers stay on the path if the response was a page.
    let forms = ["/ui/1/ten/refresh/upload", "/ui/1/ten/refresh/show-ping", "/ui/1/ten/settings/save"];
    for path in forms.into_iter().chain(["/ui/account/create-token", "/ui/1/ten/webhook/save"]) {
        let answer = service.get_with(path, &[BROWSER]).await;
        is_guarded(&answer);
        assert_eq!((answer.status, answer.header("location")), (303, path.rsplit_once('/').map(|(page, _)| page)));
    }
    for path in forms.into_iter().chain(["/dataset/create"]) {
        for program in [service.get(path).await, service.send_with("PUT", path, &[BROWSER]).await] {
            program.is_error(405);
            assert!(!program.text().contains('<'), "{path}: {}", program.text());
        }
    }
    // Without the dashboard, there are no pages for errors.
    let without = TestService::configured(|config| config.server.dashboard = false).await;
    without.get_with("/nothing", &[BROWSER]).await.is_error(404);
}

/// Regression: the entities came after thirteen tab stops.
#[tokio::test]
async fn skip_link_leads_to_entities() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    let visitor = Browser::visitor(&service);
    for (query, target) in [("", "div.scroll"), ("?view=json", "ol.json")] {
        let page = visitor.page(&format!("/ui/1/ten/active/{query}")).await;
        assert_eq!(page.all_words("a.skip"), ["Skip to content", "Skip to entities"], "{query}");
        for link in page.select("a.skip") {
            page.one(link.attr("href").expect("a target"));
        }
        assert_eq!(
            page.one("#entities").attr("class").and_then(|class| class.split(' ').next()),
            target.split('.').nth(1)
        );
    }
    let page = visitor.page("/ui/1/ten/active/?filter=n:2").await;
    assert_eq!(page.all_words("a.skip"), ["Skip to content"], "there are none");
}
