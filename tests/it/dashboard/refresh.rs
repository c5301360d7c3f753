//! `…/refresh`: the ways to create versions, and the progress of a refresh.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use futures::channel::mpsc;
use serde_json::{Value, json};
use strata_config::AllowedNetworks;
use strata_testing::Answer;
use strata_testing::html::Page;
use strata_testing::loopback_server::{LoopbackServer, Reply, ok};
use strata_testing::owned::{Owned, add_user};
use strata_types::ids::{DatasetId, UserId};
use strata_types::user::UserPlan;

use super::{Browser, ORIGIN, assert_redirect, assert_requires_exact_form};

const REFRESH: &str = "/ui/1/ten/refresh";
const UPLOAD: &str = "/ui/1/ten/refresh/upload";
const EVENTS: &str = "/ui/1/ten/refresh/events";
const BOUNDARY: &str = "----strata";

async fn push_dataset() -> Owned {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    owned
}

async fn url_dataset(answer: impl Fn() -> Reply + Send + 'static) -> (Owned, LoopbackServer) {
    let server = LoopbackServer::start(move |_| answer());
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({"source": server.url("/data.json?key=secret")}), &[]).await;
    (owned, server)
}

/// Returns a text field of a multipart form.
fn field(name: &str, value: &str) -> String {
    format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

/// Returns the head of the file part of a multipart form.
fn file(name: &str) -> String {
    format!("--{BOUNDARY}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n\r\n")
}

fn end() -> String {
    format!("\r\n--{BOUNDARY}--\r\n")
}

async fn submit_upload(browser: &Browser<'_>, body: Body) -> Answer {
    submit_upload_as(browser, &format!("multipart/form-data; boundary={BOUNDARY}"), body).await
}

async fn submit_upload_as(browser: &Browser<'_>, content_type: &str, body: Body) -> Answer {
    let request = Request::post(UPLOAD).header("origin", ORIGIN).header("sec-fetch-site", "same-origin");
    browser.send(request.header("content-type", content_type), body).await
}

/// Sends the form with a file.
async fn upload(browser: &Browser<'_>, format: &str, name: &str, text: &str) -> Answer {
    let token = browser.token(REFRESH).await;
    submit_upload(
        browser,
        [field("token", &token), field("format", format), file(name), text.to_owned(), end()].concat().into(),
    )
    .await
}

/// A body that announces a terabyte and must not be read.
struct Endless;

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        panic!("read a body that is too long");
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(1 << 40)
    }
}

#[tokio::test]
async fn uploaded_file_becomes_next_version() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for (version, (format, name, text, lines)) in [
        ("", "a.json", "[{\"a\":1}]", "{\"a\":1}\n"),
        // The format follows from the file name, not from the contents.
        ("", "b.csv", "a\n1\n", "{\"a\":\"1\"}\n"),
        ("jsonl", "c", "{\"a\":1.0}\n{\"a\":2}\n", "{\"a\":1.0}\n{\"a\":2}\n"),
    ]
    .into_iter()
    .enumerate()
    {
        assert_redirect(&upload(&owner, format, name, text).await, "/ui/1/ten/refresh?done=made");
        assert_eq!(owned.lines(&format!("/api/1/ten/v{}/", version + 2)).await, lines, "{name}");
    }
    let page = owner.page(&format!("{REFRESH}?done=made")).await;
    assert_eq!(page.words("[role=status]"), "Version 4 was created with 2 entities.");
    assert_eq!(page.link("version 4"), "/ui/1/ten/v4/");
    // A file of many chunks with many partial boundaries.
    let text = format!("[{{\"a\":\"{}\"}}]", format!("\r\n--{BOUNDAR}", BOUNDAR = &BOUNDARY[1..]).repeat(100_000));
    let text = text.replace("\r\n", "\\r\\n");
    assert_redirect(&upload(&owner, "", "long.json", &text).await, "/ui/1/ten/refresh?done=made");
    assert_eq!(owned.lines("/api/1/ten/v5/").await, format!("{}\n", &text[1..text.len() - 1]));
}

#[tokio::test]
async fn upload_limit_excludes_form_overhead() {
    const MAX_BYTES: usize = 3_000;
    let owned = Owned::start(|config| config.sources.max_bytes = MAX_BYTES as u64).await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let csv = |bytes: usize| format!("a\n{}\n", "x".repeat(bytes - 3));
    assert_redirect(&upload(&owner, "", "a.csv", &csv(MAX_BYTES)).await, "/ui/1/ten/refresh?done=made");
    let longer = Page::parse(&upload(&owner, "", "a.csv", &csv(MAX_BYTES + 1)).await, 413);
    assert!(longer.words("#file-problem").contains("sources.max_bytes"), "{}", longer.words("#file-problem"));
    assert_eq!(owned.versions(1).await.len(), 2);
}

#[tokio::test]
async fn type_inference_applies_if_checked() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    assert_eq!(owner.page(REFRESH).await.one("input[name=infer_types]").attr("checked"), None);
    for (version, (name, text, lines)) in
        [("b.csv", "a,b\n1,x\n", "{\"a\":1,\"b\":\"x\"}\n"), ("c.json", "[{\"a\":\"1\"}]", "{\"a\":\"1\"}\n")]
            .into_iter()
            .enumerate()
    {
        let token = owner.token(REFRESH).await;
        let form =
            [field("token", &token), field("format", ""), field("infer_types", "true"), file(name), text.to_owned()];
        let answer = submit_upload(&owner, (form.concat() + &end()).into()).await;
        assert_eq!(answer.status, 303, "{name}: {}", answer.text());
        assert_eq!(owned.lines(&format!("/api/1/ten/v{}/", version + 2)).await, lines, "{name}");
    }
    let token = owner.token(REFRESH).await;
    let form = [field("token", &token), field("format", "<b>"), field("infer_types", "true"), file("a"), end()];
    let wrong = Page::parse(&submit_upload(&owner, form.concat().into()).await, 400);
    assert!(wrong.one("input[name=infer_types]").attr("checked").is_some(), "the choice is preserved");
}

/// Regression: fields after the file and repeated fields were silently ignored.
#[tokio::test]
async fn upload_with_extra_fields_is_rejected() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(REFRESH).await;
    let ours = field("token", &token);
    let json = "[{\"n\":2}]".to_owned();
    let one = || [ours.clone(), file("a.json"), json.clone()].concat();
    for (body, message) in [
        (
            [one(), "\r\n".to_owned(), file("b.json"), json.clone(), end()].concat(),
            "the field \"file\" appears more than once",
        ),
        ([one(), "\r\n".to_owned(), field("format", "json"), end()].concat(), "the field \"format\" follows the file"),
        (
            [one(), "\r\n".to_owned(), field("token", &token), end()].concat(),
            "the field \"token\" appears more than once",
        ),
        ([one(), "\r\n".to_owned(), field("<b>", "x"), end()].concat(), "unknown field \"<b>\"; valid: token, "),
        (
            [field("format", "json"), field("format", "csv"), one(), end()].concat(),
            "the field \"format\" appears more than once",
        ),
        ([ours.clone(), one(), end()].concat(), "the field \"token\" appears more than once"),
        ([field("notes", ""), one(), end()].concat(), "unknown field \"notes\"; valid: token, "),
    ] {
        let answer = submit_upload(&owner, body.into()).await;
        let page = Page::parse(&answer, 400);
        let problems = page.all_words("[role=alert]").concat();
        assert!(problems.contains(message) || page.text.contains(message), "{message}: {problems}");
        assert_eq!(owned.versions(1).await.len(), 1, "nothing is made: {message}");
    }
    // A header without an end is rejected before it fills the memory.
    let endless = format!("\r\n--{BOUNDARY}\r\nx: {}", "x".repeat(4 << 20));
    Page::parse(&submit_upload(&owner, [one(), endless].concat().into()).await, 400);
    assert_eq!(owned.versions(1).await.len(), 1);
    assert_redirect(&submit_upload(&owner, [one(), end()].concat().into()).await, "/ui/1/ten/refresh?done=made");
}

/// Regression: the page reported an incomplete body although the whole body had arrived.
#[tokio::test]
async fn invalid_upload_is_not_called_incomplete() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(REFRESH).await;
    let whole = [field("token", &token), file("a.json"), "[{\"n\":2}]".to_owned(), end()].concat();
    let long = "x".repeat(1 << 20);
    let header = format!("--{BOUNDARY}\r\nx: {long}\r\n\r\n\r\n");
    let too_many_bytes = "the fields other than the file exceed 65536 bytes";
    let ours: &str = &format!("multipart/form-data; boundary={BOUNDARY}");
    let long_boundary: &str = &format!("multipart/form-data; boundary={}", "b".repeat(71));
    let absent = "separated and terminated by the boundary";
    let unusable = "has no usable boundary";
    for (content_type, body, status, message) in [
        (ours, format!("{long}\r\n{whole}"), 413, too_many_bytes),
        (ours, header + &whole, 413, too_many_bytes),
        (ours, String::new(), 400, absent),
        ("multipart/form-data; boundary=another", whole.clone(), 400, absent),
        ("multipart/form-data", whole.clone(), 400, unusable),
        ("multipart/form-data; boundary=", whole.clone(), 400, unusable),
        (long_boundary, whole.clone(), 400, unusable),
    ] {
        let page = Page::parse(&submit_upload_as(&owner, content_type, body.into()).await, status);
        assert!(page.text.contains(message) && !page.text.contains("incomplete"), "{content_type}: {}", page.text);
        assert_eq!(owned.versions(1).await.len(), 1, "nothing is made: {message}");
    }
    // This body is incomplete.
    let cut = futures::stream::iter([Ok(field("token", &token)), Err(std::io::Error::other("reset"))]);
    let page = Page::parse(&submit_upload(&owner, Body::from_stream(cut)).await, 400);
    assert!(page.text.contains("The body is incomplete."), "{}", page.text);
    assert_redirect(&submit_upload_as(&owner, ours, whole.into()).await, "/ui/1/ten/refresh?done=made");
}

#[tokio::test]
async fn upload_warning_is_shown_and_recorded() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for (name, text, message) in [
        ("a.csv", "name;<b>age\nAda;36\n", "The table has only one column, and its name contains semicolons."),
        ("b.jsonl", "", "The source contains no entities, so the version is empty."),
    ] {
        let format = name.split('.').next_back().expect("a format");
        assert_redirect(&upload(&owner, format, name, text).await, "/ui/1/ten/refresh?done=made");
        let page = owner.page("/ui/1/ten/refresh?done=made").await;
        assert!(page.words("[role=alert]").starts_with(message), "{}", page.text);
        assert!(page.words("tbody tr:first-child .note").starts_with(message), "{}", page.text);
    }
    assert_redirect(&upload(&owner, "csv", "c.csv", "a;b,c\n1,2\n").await, "/ui/1/ten/refresh?done=made");
    let page = owner.page("/ui/1/ten/refresh?done=made").await;
    assert!(page.select("[role=alert]").is_empty() && page.select("tbody tr:first-child .note").is_empty());
}

#[tokio::test]
async fn upload_error_is_shown_and_recorded() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let wrong = Page::parse(&upload(&owner, "jsonl", "<b>.jsonl", "{\"a\":1}\n{<script>\n").await, 422);
    let message = wrong.words("#file-problem");
    assert!(message.starts_with("No version was created: ") && message.contains("line 2"), "{message}");
    assert_eq!(wrong.words("#format option[selected]"), "jsonl", "the choice is preserved");
    let history = owner.page(REFRESH).await;
    assert_eq!(history.words("tbody tr:first-child [data-label=By]"), "you");
    let outcome = history.words("tbody tr:first-child [data-label=Outcome]");
    assert!(outcome.contains("line 2"), "{outcome}");

    let token = owner.token(REFRESH).await;
    let missing_code = Page::parse(&upload(&owner, "", "", "").await, 400);
    assert_eq!(missing_code.words("#file-problem"), "Choose a file.");
    let unknown = Page::parse(&upload(&owner, "<b>", "a", "[]").await, 400);
    assert_eq!(unknown.words("#format-problem"), "Unknown format.");
    for (body, status) in [
        // A missing token, a token after the file, and a wrong token.
        ([file("a.json"), "[]".to_owned(), end()].concat(), 403),
        ([file("a.json"), "[]\r\n".to_owned(), field("token", &token), end()].concat(), 403),
        ([field("token", "00"), file("a.json"), "[]".to_owned(), end()].concat(), 403),
        ([field("token", &"x".repeat(5_000)), end()].concat(), 400),
        ([field("token", &token), field("other", "x"), end()].concat(), 400),
        (field("token", &token), 400),
        // Longer than any field of the form.
        ("x".repeat(1 << 20), 413),
    ] {
        Page::parse(&submit_upload(&owner, body.into()).await, status);
    }
    let announced = Request::post(UPLOAD).header("origin", ORIGIN).header("content-length", (1_u64 << 40).to_string());
    let announced = announced.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    let announced = Page::parse(&owner.send(announced, Body::new(Endless)).await, 413);
    let message = announced.words("#file-problem");
    assert!(
        message.starts_with("The file is too large: the limit is ") && announced.select("form[enctype]").len() == 1,
        "{message}"
    );
    let other_type = owner.post(UPLOAD, &[("token", &token)]).await;
    Page::parse(&other_type, 415);
    let foreign = Request::post(UPLOAD).header("origin", "http://evil.test");
    let foreign = foreign.header("content-type", format!("multipart/form-data; boundary={BOUNDARY}"));
    Page::parse(&owner.send(foreign, Body::from(field("token", &token))).await, 403);
    assert_eq!(owned.versions(1).await.len(), 1);
}

#[tokio::test]
async fn running_refresh_streams_its_progress() {
    let owned = Arc::new(push_dataset().await);
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    assert_eq!(owner.get(EVENTS).await.status, 204, "no refresh is running");
    let token = owner.token(REFRESH).await;
    let (chunks, body) = mpsc::channel(8);
    let send = |text: String| chunks.clone().try_send(Ok::<_, std::io::Error>(Bytes::from(text))).expect("sent");
    send([field("token", &token), file("a.json"), "[{\"a\":1},".to_owned()].concat());
    let refreshes = owned.service.services.refreshes.clone();
    let watched = async {
        while refreshes.progress(DatasetId::new(1)).is_none_or(|progress| progress.bytes == 0) {
            tokio::task::yield_now().await;
        }
        let page = owner.page(REFRESH).await;
        let running = page.one("section[data-events]");
        assert_eq!(running.attr("data-events"), Some(EVENTS));
        assert!(page.words("section[data-events]").contains("Receiving data. Received 9 bytes"));
        assert!(page.text.contains(
            "<noscript><meta http-equiv=\"refresh\" content=\"3; url=/ui/1/ten/refresh?ended=2\"></noscript>"
        ));
        assert!(page.words("main").contains("You can start another refresh when this one finishes."));
        assert!(!page.text.contains("type=\"file\""), "a second upload would be rejected");
        // A user can watch four streams.
        let mut watches_by_user: Vec<_> =
            (0..4).map(|_| refreshes.try_watch(owned.user.id).expect("a watch")).collect();
        owner.error(EVENTS, 429).await;
        watches_by_user.pop();
        let released = async {
            // The stream has taken the last permit.
            while refreshes.try_watch(owned.user.id).is_some() {
                tokio::task::yield_now().await;
            }
            send("{\"a\":2}]".to_owned() + &end());
            chunks.clone().close_channel();
        };
        let (events, ()) = tokio::join!(owner.get(EVENTS), released);
        assert_eq!((events.status, events.whole), (200, true));
        assert_eq!(events.header("content-type"), Some("text/event-stream"));
        let sent_events = events.text().lines().filter_map(|line| line.strip_prefix("data: "));
        let sent_events: Vec<Value> = sent_events.map(|text| serde_json::from_str(text).expect("JSON")).collect();
        assert_eq!(sent_events.last(), Some(&json!({"stage": "done", "version": 2})));
        for event in &sent_events[..sent_events.len() - 1] {
            let stages = ["waiting", "receiving", "decoding", "writing", "publishing", "running"];
            assert!(stages.contains(&event["stage"].as_str().expect("a stage")), "{event}");
            assert!(event["stage"] == "running" || event["bytes"].is_u64() && event["entities"].is_u64(), "{event}");
        }
    };
    let (answer, ()) = tokio::join!(submit_upload(&owner, Body::from_stream(body)), watched);
    assert_redirect(&answer, "/ui/1/ten/refresh?done=made");
    assert_eq!(owner.get(EVENTS).await.status, 204, "the refresh has ended");
    let page = owner.page(&format!("{REFRESH}?ended=2")).await;
    assert_eq!(page.words("[role=status]"), "Version 2 was created with 2 entities.");
    assert_eq!(page.link("Version 2"), "/ui/1/ten/v2/");
}

#[tokio::test]
async fn progress_streams_are_limited() {
    let owned = Owned::start(|config| config.limits.refresh_streams = 6).await;
    let refreshes = &owned.service.services.refreshes;
    let watch = |user| refreshes.try_watch(UserId::new(user));
    let own: Vec<_> = (0..4).map(|_| watch(1).expect("a watch")).collect();
    assert!(watch(1).is_none(), "the limit for one user is four");
    let others = [watch(2).expect("a watch"), watch(3).expect("a watch")];
    assert!(watch(4).is_none() && watch(2).is_none(), "the limit for all users is six");
    drop(own);
    assert!(watch(4).is_some());
    drop(others);
}

#[tokio::test]
async fn refresh_is_started_and_failure_is_shown() {
    let (owned, _server) = url_dataset(|| ok("content-type: application/json\r\n", b"[{\"n\":1}]")).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(REFRESH).await;
    assert!(!page.text.contains("secret"), "the query of a source can contain keys");
    assert_redirect(&owner.submit(&page, "/ui/1/ten/refresh/now").await, "/ui/1/ten/refresh?done=made");
    let page = owner.page(REFRESH).await;
    assert_eq!(page.words("tbody [data-label=By]"), "you");
    assert!(page.words("tbody").contains("version 1"));
    assert!(page.select("input[type=file]").is_empty(), "a dataset with a source URL accepts no uploads");
    Page::parse(&upload(&owner, "", "a.json", "[]").await, 409);

    let (owned, _server) = url_dataset(|| ok("content-type: application/json\r\n", b"[{\"n\":1},\n{\"n\":<b>}]")).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let failed = Page::parse(&owner.submit(&owner.page(REFRESH).await, "/ui/1/ten/refresh/now").await, 422);
    assert!(
        failed.words("section[aria-labelledby=now] .problem").contains("item 2 (line 2, column 6)"),
        "{}",
        failed.text
    );
    assert!(failed.words("td.failed").contains("item 2 (line 2, column 6)"));
    // The page shows the failure to a user who was watching the refresh.
    for query in ["ended=1", "done=begun"] {
        let page = owner.page(&format!("{REFRESH}?{query}")).await;
        assert!(page.words("section[aria-labelledby=now] .problem").starts_with("No version was created: "), "{query}");
        assert!(page.select("[role=status]").is_empty(), "{query}");
    }
    for query in ["ended=9", ""] {
        assert!(owner.page(&format!("{REFRESH}?{query}")).await.select(".problem").is_empty(), "{query}");
    }
}

#[tokio::test]
async fn schedule_preview_shows_next_runs() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({"schedule": null, "source": "https://a.test/data.json"}), &[]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let token = owner.token(REFRESH).await;
    let sent = async |schedule: &str, more: &[(&str, &str)]| {
        let fields = [&[("token", token.as_str()), ("schedule", schedule)][..], more].concat();
        owner.post("/ui/1/ten/refresh/schedule", &fields).await
    };
    let page = owner.page(REFRESH).await;
    assert!(
        page.select(".times li").is_empty()
            && page.words("section[aria-labelledby=by-schedule]").contains("no schedule")
    );
    let preview = Page::parse(&sent("*/5 * * * *", &[("preview", "1")]).await, 200);
    assert_eq!(preview.words("h3:has(+ .times)"), "Next five runs if you save this schedule");
    assert_eq!(preview.select(".times li").len(), 5);
    assert_eq!(owner.page(REFRESH).await.one("#schedule").attr("value"), Some(""), "the schedule is not saved");
    for (typed, problem) in [
        ("60 0 * * *", "Minute 60 is not between 0 and 59."),
        ("<script>\"", "It has 1 field, not five."),
        ("0 0 30 2 *", "It matches no date."),
    ] {
        let page = Page::parse(&sent(typed, &[]).await, 400);
        assert_eq!(page.words("#schedule-problem"), problem);
        assert_eq!(page.one("#schedule").attr("value"), Some(typed), "the typed text is preserved");
    }
    assert_redirect(&sent(" 30 6  * * MON-FRI ", &[]).await, "/ui/1/ten/refresh?done=schedule");
    let page = owner.page(REFRESH).await;
    assert_eq!(page.one("#schedule").attr("value"), Some("30 6 * * MON-FRI"));
    let times = page.all_words(".times li");
    assert_eq!(times.len(), 5);
    // All runs are on workdays, with the same delay after the half hour.
    let minutes: Vec<&str> = times.iter().map(|time| &time[15..]).collect();
    assert!(minutes.iter().all(|minute| *minute == minutes[0] && minute.starts_with("06:")), "{times:?}");
    assert!(times.iter().all(|time| !time.starts_with('S')), "{times:?}");
    assert_requires_exact_form(&owner, "/ui/1/ten/refresh/schedule", &[("schedule", "")], &token).await;
    for form in ["now", "show-ping", "rotate-ping"] {
        assert_requires_exact_form(&owner, &format!("/ui/1/ten/refresh/{form}"), &[], &token).await;
    }
    assert_eq!(owner.page(REFRESH).await.one("#schedule").attr("value"), Some("30 6 * * MON-FRI"));
    assert_redirect(&sent("", &[]).await, "/ui/1/ten/refresh?done=schedule");
    assert!(owner.page(REFRESH).await.select(".times li").is_empty());
}

#[tokio::test]
async fn ping_url_is_shown_on_request_and_replaced() {
    let (owned, _server) = url_dataset(|| ok("content-type: application/json\r\n", b"[]")).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(REFRESH).await;
    assert!(!page.text.contains("ping_"));
    let shown = owner.submit(&page, "/ui/1/ten/refresh/show-ping").await;
    assert_eq!(shown.header("cache-control"), Some("private, no-store"));
    let url = Page::parse(&shown, 200).one("#ping").attr("value").expect("a URL").to_owned();
    let path = url.strip_prefix("http://data.strata.test").expect("our address").to_owned();
    assert_eq!(owned.service.get(&path).await.status, 200);
    let rotated = Page::parse(&owner.submit(&page, "/ui/1/ten/refresh/rotate-ping").await, 200);
    assert_ne!(rotated.one("#ping").attr("value"), Some(url.as_str()));
    assert_eq!(owned.service.get(&path).await.status, 404);
}

#[tokio::test]
async fn only_owner_can_refresh() {
    let owned = Owned::sqlite().await;
    owned.dataset("Ten", json!({"private": true}), &["[{}]"]).await;
    add_user(&owned.service, "other@strata.test", UserPlan::Free).await;
    let other = Browser::user(&owned.service, "other@strata.test").await;
    let visitor = Browser::visitor(&owned.service);
    let token = other.token("/").await;
    for page in [REFRESH, EVENTS] {
        visitor.error(page, 401).await;
        other.error(page, 404).await;
    }
    for form in ["now", "schedule", "show-ping", "rotate-ping", "nothing"] {
        let uri = format!("{REFRESH}/{form}");
        assert!(!Page::parse(&other.post(&uri, &[("token", &token)]).await, 404).text.contains("ping_"), "{form}");
        Page::parse(&visitor.post(&uri, &[("token", &token)]).await, 401);
    }
    let form = || [field("token", &token), file("a.json"), "[]".to_owned(), end()].concat();
    Page::parse(&submit_upload(&other, form().into()).await, 404);
    Page::parse(&submit_upload(&visitor, form().into()).await, 401);
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    for form in ["now", "schedule", "show-ping", "rotate-ping"] {
        Page::parse(&owner.post(&format!("{REFRESH}/{form}"), &[("token", &token)]).await, 403);
    }
    let token = owner.token(REFRESH).await;
    Page::parse(&owner.post(&format!("{REFRESH}/nothing"), &[("token", &token)]).await, 404);
    assert_eq!(owned.versions(1).await.len(), 1);
}

#[tokio::test]
async fn refresh_history_is_paged() {
    let owned = push_dataset().await;
    for number in 0..44 {
        owned.push(1, &format!("[{{\"n\":{number}}}]")).await;
    }
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let mut page = owner.page(REFRESH).await;
    let mut versions = Vec::new();
    loop {
        versions.extend(page.all_words("tbody td:last-child"));
        let Some(older) =
            page.select("a[rel=next]").first().map(|link| link.attr("href").expect("a target").to_owned())
        else {
            break;
        };
        page = owner.page(&older).await;
    }
    assert_eq!(versions, (1..=45).rev().map(|number| format!("version {number}")).collect::<Vec<_>>());
    assert_eq!(page.link("Newest"), REFRESH);
}

#[tokio::test]
async fn push_dataset_has_no_schedule_or_ping_url() {
    let owned = push_dataset().await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let page = owner.page(REFRESH).await;
    assert!(page.select(".times").is_empty() && page.select("form[action$=ping]").is_empty());
    assert!(page.words("section[aria-labelledby=by-schedule]").contains("no effect until"));
    assert!(page.words("section[aria-labelledby=by-ping]").contains("this dataset has no source URL"));
}

/// Regression: the page showed no problem, and another user's version seemed to be the version of the file.
#[tokio::test]
async fn form_removed_by_other_tab_shows_problem() {
    let owned = Owned::start(|config| {
        config.net.allow = AllowedNetworks::try_from(vec!["127.0.0.0/8".to_owned()]).expect("networks");
    })
    .await;
    owned.dataset("Ten", json!({}), &["[{\"n\":1}]"]).await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let change = async |change: Value| {
        let answer = owned.call("POST", "/dataset/update", &change.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    change(json!({"dataset_id": 1, "source": "http://127.0.0.1:1/x.json"})).await;
    let page = Page::parse(&upload(&owner, "", "a.json", "[]").await, 409);
    let message = page.words("p.problem");
    assert!(message.starts_with("No version was created: the dataset has a source URL"), "{message}");
    assert!(page.words("title").starts_with("Error: Refresh, Ten"), "{}", page.words("title"));
    change(json!({"dataset_id": 1, "source": "push"})).await;
    let token = owner.token(REFRESH).await;
    let page = Page::parse(&owner.post("/ui/1/ten/refresh/now", &[("token", &token)]).await, 409);
    assert!(!page.words("p.problem").is_empty(), "{}", page.text);
    owned.call("POST", "/dataset/rollback", r#"{"dataset_id":1,"version_number":1,"freeze":true}"#).await;
    let page = Page::parse(&upload(&owner, "", "a.json", "[]").await, 409);
    assert!(page.words("p.problem").contains("frozen"), "{}", page.text);
}

#[tokio::test]
async fn failed_refresh_is_shown_to_owner_on_pages() {
    let owned = push_dataset().await;
    owned.push(1, "[{\"n\":1}]").await;
    let owner = Browser::user(&owned.service, "ada@strata.test").await;
    let visitor = Browser::visitor(&owned.service);
    let pages = ["/ui/1/ten/active/", "/ui/1/ten/versions"];
    for page in pages {
        assert!(!owner.page(page).await.text.contains("The latest refresh failed"), "{page}");
    }
    Page::parse(&upload(&owner, "json", "a.json", "[").await, 422);
    for page in pages {
        assert_eq!(owner.page(page).await.link("refresh history"), "/ui/1/ten/refresh#history");
        assert!(!visitor.page(page).await.text.contains("The latest refresh failed"), "{page}");
    }
    owned.push(1, "[{\"n\":2}]").await;
    assert!(!owner.page(pages[0]).await.text.contains("The latest refresh failed"));
}
