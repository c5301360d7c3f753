//! `/ui/account`: tokens, sessions, and the password.

use std::net::SocketAddr;

use axum::extract::ConnectInfo;
use axum::http::Request;
use strata_testing::html::Page;
use strata_testing::{OWNER, PASSWORD, TestService};

use super::{Browser, assert_redirect, assert_requires_exact_form, with_defaults};

async fn submit_form(browser: &Browser<'_>, form: &str, fields: &[(&str, &str)]) -> strata_testing::Answer {
    let token = browser.token("/ui/account").await;
    let others = if form == "create-token" { &[("scope", "read"), ("days", "")][..] } else { &[] };
    let fields = &with_defaults(fields, others)[..];
    browser.post(&format!("/ui/account/{form}"), &[fields, &[("token", &token)]].concat()).await
}

#[tokio::test]
async fn token_is_shown_once_and_works_until_deleted() {
    let service = TestService::start().await;
    let owner = Browser::user(&service, OWNER).await;
    let created = submit_form(&owner, "create-token", &[("name", "ci <b>"), ("scope", "read")]).await;
    let page = Page::parse(&created, 200);
    assert_eq!(created.header("cache-control"), Some("private, no-store"));
    let token = page.one("#made").attr("value").expect("a token").to_owned();
    let bearer = format!("Bearer {token}");
    assert_eq!(service.send("GET", "/dataset/list", Some(&bearer)).await.status, 200);
    assert_eq!(service.send("POST", "/dataset/unpin", Some(&bearer)).await.status, 403, "the scope is read");
    let page = owner.page("/ui/account").await;
    assert!(!page.text.contains(&token), "the token is shown once");
    assert_eq!(page.words("section[aria-labelledby=tokens] tbody th"), "ci <b>");
    assert_eq!(page.words("form[action='/ui/account/create-token'] button"), "Create token");
    assert_eq!(page.words("label[for=old]"), "Current password");
    let again = Page::parse(&submit_form(&owner, "create-token", &[("name", "ci <b>")]).await, 409);
    assert_eq!(again.words("[role=alert]"), "You already have an API token with this name.");
    let confirmation = owner.page(&page.link("Delete token ci <b> …")).await;
    assert_eq!(confirmation.words("h2"), "Delete the token \"ci <b>\"?");
    assert_eq!(confirmation.one("form.line input[name=name]").attr("value"), Some("ci <b>"));
    assert_eq!(confirmation.link("Cancel"), "/ui/account");
    owner.error("/ui/account/delete-token?name=other", 404).await;
    assert_redirect(&submit_form(&owner, "delete-token", &[("name", "ci <b>")]).await, "/ui/account?done=delete-token");
    assert_eq!(service.send("GET", "/dataset/list", Some(&bearer)).await.status, 401);
    Page::parse(&submit_form(&owner, "delete-token", &[("name", "ci <b>")]).await, 404);
    Page::parse(&submit_form(&owner, "nothing", &[]).await, 404);
    let visitor = Browser::visitor(&service);
    assert_eq!(visitor.error("/ui/account", 401).await.words("[role=alert]"), "To see this page, sign in.");
    Page::parse(&visitor.post("/ui/account/create-token", &[("name", "x")]).await, 401);
}

#[tokio::test]
async fn token_expires_after_chosen_lifetime() {
    let service = TestService::start().await;
    let owner = Browser::user(&service, OWNER).await;
    let page = owner.page("/ui/account").await;
    assert_eq!(page.all_words("#days option"), ["in 7 days", "in 30 days", "in 90 days", "in a year", "never"]);
    assert_eq!(page.one("#days option[selected]").attr("value"), Some(""), "the default of the API");
    for (name, days, seconds) in [("week", "7", Some(7 * 86_400)), ("always", "", None)] {
        let created = Page::parse(&submit_form(&owner, "create-token", &[("name", name), ("days", days)]).await, 200);
        let bearer = format!("Bearer {}", created.one("#made").attr("value").expect("a token"));
        let tokens = service.send("GET", "/token/list", Some(&bearer)).await;
        let tokens: serde_json::Value = serde_json::from_str(tokens.text()).expect("JSON");
        let tokens = tokens["tokens"].as_array().expect("tokens").clone();
        let token = tokens.iter().find(|token| token["name"] == name).expect("the token");
        let time = |field: &str| token[field].as_str().and_then(|time| chrono::DateTime::parse_from_rfc3339(time).ok());
        // The lifetime begins at the request, shortly before the token is recorded.
        let lives = time("expires_at").map(|expires| (expires - time("created_at").expect("a time")).num_seconds());
        assert_eq!(lives.map(|lives| (lives + 30) / 60 * 60), seconds, "{token}");
    }
    // Without the field, the token would never expire.
    let token = owner.token("/ui/account").await;
    let fields = [("name", "ci"), ("scope", "read"), ("days", "7")];
    assert_requires_exact_form(&owner, "/ui/account/create-token", &fields, &token).await;
    for days in ["0", "-1", "x", "36501", "18446744073709551615"] {
        let fields = [("name", "ci"), ("scope", "write"), ("days", days)];
        let page = Page::parse(&submit_form(&owner, "create-token", &fields).await, 400);
        assert!(!page.words("#days-problem").is_empty(), "{days}");
        assert_eq!(page.one("#token-name").attr("value"), Some("ci"));
        assert_eq!(page.one("#scope option[selected]").attr("value"), Some("write"));
    }
}

#[tokio::test]
async fn password_change_ends_all_other_sessions() {
    let service = TestService::configured(|config| config.limits.logins_per_minute = 0).await;
    let owner = Browser::user(&service, OWNER).await;
    let other = Browser::user(&service, OWNER).await;
    let page = owner.page("/ui/account").await;
    let id = page.one("form[action='/ui/account/end-session'] input[name=id]").attr("value").expect("an id").to_owned();
    assert_redirect(&submit_form(&owner, "end-session", &[("id", &id)]).await, "/ui/account?done=end-session");
    other.error("/ui/account", 401).await;
    assert!(owner.page("/ui/account").await.select("form[action='/ui/account/end-session']").is_empty());

    let third = Browser::user(&service, OWNER).await;
    let wrong = Page::parse(
        &submit_form(&owner, "password", &[("old", "wrong"), ("new", "another"), ("again", "another")]).await,
        403,
    );
    assert_eq!(wrong.words("#old-problem"), "This is not your current password. Your password was not changed.");
    assert_eq!(wrong.select("[role=alert]").len(), 1);
    let empty =
        Page::parse(&submit_form(&owner, "password", &[("old", PASSWORD), ("new", ""), ("again", "")]).await, 400);
    assert_eq!(empty.words("#new-problem"), "The password must be 1 to 1024 bytes long.");
    let differs = [("old", PASSWORD), ("new", "another"), ("again", "anther")];
    let differs = Page::parse(&submit_form(&owner, "password", &differs).await, 400);
    assert!(differs.words("#again-problem").contains("passwords do not match"), "{}", differs.words("#again-problem"));
    let changed = [("old", PASSWORD), ("new", "another"), ("again", "another")];
    assert_redirect(&submit_form(&owner, "password", &changed).await, "/ui/account?done=password");
    assert!(
        owner.page("/ui/account?done=password").await.words("[role=status]").starts_with("Your password was changed")
    );
    third.error("/ui/account", 401).await;
    Browser::sign_in(&service, OWNER, "another").await;
}

#[tokio::test]
async fn session_list_shows_origin() {
    let service = TestService::configured(|config| {
        config.server.trusted_proxies = vec!["192.0.2.0/24".to_owned()].try_into().expect("a network");
    })
    .await;
    let owner = Browser::user(&service, OWNER).await;
    let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:133.0) Gecko/20100101 Firefox/133.0";
    for (peer, program, forwarded) in [
        ([192, 0, 2, 1], firefox, Some("203.0.113.9, 198.51.100.7")),
        ([198, 51, 100, 8], "<b>curl</b>/8", Some("203.0.113.9")),
    ] {
        let mut request = Request::post("/session/login")
            .header("content-type", "application/json")
            .header("user-agent", program)
            .extension(ConnectInfo(SocketAddr::from((peer, 4711))));
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        let body = format!("{{\"email\":\"{OWNER}\",\"password\":\"{PASSWORD}\"}}");
        let answer = service.call(request.body(body.into()).expect("a request")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let page = owner.page("/ui/account").await;
    let mut from = page.all_words("section[aria-labelledby=sessions] td[data-label=From]");
    from.sort_unstable();
    assert_eq!(from, ["<b>curl</b>/8, 198.51.100.8", "Firefox on Linux, 198.51.100.7", "unknown"]);
}

#[tokio::test]
async fn account_shows_plan_and_usage() {
    let service = TestService::configured(|config| config.plans.scale_active_datasets = 7).await;
    service.import("One <b>", "[{}]").await;
    service.import("Two", "[{}]").await;
    for _ in 0..3 {
        service.get("/api/1/one-b/active/").await;
    }
    let page = Browser::user(&service, OWNER).await.page("/ui/account").await;
    let plan = page.words("section[aria-labelledby=plan] dl");
    assert!(plan.starts_with("Active datasets 2 of 7 "), "{plan}");
    let rows = page.all_words("section[aria-labelledby=plan] tbody tr");
    assert!(rows[0].starts_with("One <b> 3 0 0 ") && rows[1] == "Two 0 0 0 0 bytes", "{rows:?}");
    assert_eq!(page.link("Two"), "/ui/2/two/usage");
    // Datasets with more requests come first.
    for _ in 0..5 {
        service.get("/api/2/two/active/").await;
    }
    let page = Browser::user(&service, OWNER).await.page("/ui/account").await;
    let rows = page.all_words("section[aria-labelledby=plan] tbody tr");
    assert!(rows[0].starts_with("Two 5 0 0 ") && rows[1].starts_with("One <b> 3 0 0 "), "{rows:?}");
}
