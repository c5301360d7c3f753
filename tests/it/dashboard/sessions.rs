//! Signing in and out, and protection against forms from other sites.

use strata_testing::html::Page;
use strata_testing::{OWNER, PASSWORD, TestService};

use super::{Browser, ORIGIN, assert_redirect};

#[tokio::test]
async fn session_lasts_until_sign_out() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    let page = visitor.page("/ui/sign-in?next=%2Fui%2F1%2Ften%2Factive%2F%3Flimit%3D1").await;
    assert_eq!(page.one("input[name=next]").attr("value"), Some("/ui/1/ten/active/?limit=1"));
    let fields = [("email", OWNER), ("password", PASSWORD), ("next", "/ui/1/ten/active/?limit=1")];
    let answer = visitor.post("/ui/sign-in", &fields).await;
    assert_redirect(&answer, "/ui/1/ten/active/?limit=1");
    let cookie = answer.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.starts_with("strata_session=") && cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"));

    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    let owner = Browser { service: &service, cookie: Some(cookie.clone()) };
    let page = owner.page("/").await;
    assert_eq!(page.words("header .who"), OWNER);
    let me = service.get_with("/session/me", &[("cookie", &cookie)]).await;
    assert_eq!(me.status, 200, "the API accepts the session");

    let out = owner.submit(&page, "/ui/sign-out").await;
    assert_redirect(&out, "/");
    assert!(out.header("set-cookie").expect("a cookie").contains("Max-Age=0"));
    assert_eq!(service.get_with("/session/me", &[("cookie", &cookie)]).await.status, 401);
    assert_eq!(owner.page("/").await.link("Sign in"), "/ui/sign-in?next=/");
    // Signing out without a session is not an error.
    assert_redirect(&owner.post("/ui/sign-out", &[]).await, "/");
}

#[tokio::test]
async fn sign_in_redirects_only_to_own_pages() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    for (next, is_allowed) in [
        ("/", true),
        ("/?q=a", true),
        ("/ui/1/x/active/?filter=a:b", true),
        ("", false),
        ("//evil.test", false),
        ("/\\evil.test", false),
        ("https://evil.test", false),
        ("/api/1/x/v1", false),
        ("/ui/\r\nx: y", false),
        ("/ui/é", false),
        ("javascript:x", false),
        ("/ui/\\\\", false),
    ] {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("next", next).finish();
        let page = visitor.page(&format!("/ui/sign-in?{query}")).await;
        let expected = if is_allowed { next } else { "/" };
        assert_eq!(page.one("input[name=next]").attr("value"), Some(expected), "{next:?}");
    }
}

#[tokio::test]
async fn wrong_password_is_shown_in_form() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    let fields = [("email", "<b>@strata.test"), ("password", "wrong"), ("next", "https://evil.test/")];
    let answer = visitor.post("/ui/sign-in", &fields).await;
    let page = Page::parse(&answer, 401);
    assert_eq!(page.words("#problem"), "There is no user with this email and password.");
    assert_eq!(page.one("#email").attr("value"), Some("<b>@strata.test"));
    assert_eq!(page.one("#password").attr("value"), None);
    assert_eq!(page.one("input[name=next]").attr("value"), Some("/"));
    assert!(answer.header("set-cookie").is_none());
}

#[tokio::test]
async fn sign_in_attempts_are_limited() {
    let service = TestService::configured(|config| config.limits.logins_per_minute = 2).await;
    let visitor = Browser::visitor(&service);
    let wrong = [("email", OWNER), ("password", "wrong")];
    let mut last = visitor.post("/ui/sign-in", &wrong).await;
    for _ in 0..20 {
        if last.status == 429 {
            break;
        }
        last = visitor.post("/ui/sign-in", &wrong).await;
    }
    let page = Page::parse(&last, 429);
    assert!(page.words("#problem").starts_with("Too many login attempts."));
    assert!(last.header("retry-after").is_some());
}

#[tokio::test]
async fn form_from_other_site_is_rejected() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    let fields = [("email", OWNER), ("password", PASSWORD)];
    for headers in [
        &[("origin", "https://evil.test")][..],
        &[("origin", "null")],
        &[("origin", ORIGIN), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
    ] {
        let answer = visitor.post_with("/ui/sign-in", &fields, headers).await;
        Page::parse(&answer, 403);
        assert!(answer.header("set-cookie").is_none(), "{headers:?}");
    }
}

#[tokio::test]
async fn form_without_session_token_has_no_effect() {
    let service = TestService::start().await;
    service.import("Ten", "{\"n\":1}").await;
    service.import("Ten", "{\"n\":2}").await;
    let owner = Browser::user(&service, OWNER).await;
    let second = Browser::user(&service, OWNER).await;
    let own = owner.token("/").await;
    let others = second.token("/").await;
    assert_ne!(own, owner.token("/").await, "the token differs on each page");
    let pinned = async || owner.page("/ui/1/ten/versions").await.text.contains("is pinned");
    let longer = format!("{own}00");
    let mixed = format!("{}{}", &own[..32], &owner.token("/").await[32..]);
    let altered = ["", "00", "x", &own[..32], &own[..94], &longer, &mixed, &others];
    for token in [None].into_iter().chain(altered.map(Some)) {
        for uri in ["/ui/1/ten/manage/pin", "/ui/sign-out"] {
            let fields: Vec<_> = token.map(|token| ("token", token)).into_iter().chain([("version", "1")]).collect();
            let page = Page::parse(&owner.post(uri, &fields).await, 403);
            assert!(page.words("[role=alert]").starts_with("This form has expired or is not from"), "{uri} {token:?}");
        }
    }
    let fields = [("token", own.as_str()), ("version", "1")];
    for headers in [&[("origin", "https://evil.test")][..], &[("origin", ORIGIN), ("sec-fetch-site", "cross-site")]] {
        Page::parse(&owner.post_with("/ui/1/ten/manage/pin", &fields, headers).await, 403);
    }
    assert!(!pinned().await);
    // Following a link has no effect, even with a valid token.
    owner.page(&format!("/ui/1/ten/manage/pin?version=1&token={own}")).await;
    assert!(!pinned().await);
    assert_redirect(&owner.post("/ui/1/ten/manage/pin", &fields).await, "/ui/1/ten/versions?done=pin");
    assert!(pinned().await);
}

#[tokio::test]
async fn body_that_is_not_a_form_is_rejected() {
    let service = TestService::start().await;
    let visitor = Browser::visitor(&service);
    let request = axum::http::Request::post("/ui/sign-in").header("content-type", "application/json");
    Page::parse(&visitor.send(request, "{}".into()).await, 415);
    let long = "x".repeat(70_000);
    Page::parse(&visitor.post("/ui/sign-in", &[("email", &long)]).await, 413);
}
