//! `GET /dataset/usage`: requests and bytes by day, to the byte, whatever the answers are.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use strata_testing::databases::{execute, on_both_databases};
use strata_testing::{Answer, OWNER};

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    requests_and_bytes_are_counted_whatever_the_answer
    what_is_beyond_the_rate_is_counted_for_the_dataset_it_names
    a_download_that_is_broken_off_counts_what_was_sent
    usage_outlives_a_restart_and_processes_add_up
    what_is_counted_while_the_catalog_is_locked_is_added_later
    usage_is_the_owners_and_of_the_days_that_are_asked_for
}

/// Requests, 304, 429 and bytes of all days together: a test may run at midnight.
type Sums = [u64; 4];

fn sums(usage: &Value) -> Sums {
    let days = usage["usage"].as_array().expect("days");
    ["requests", "not_modified", "rate_limited", "bytes"]
        .map(|name| days.iter().map(|day| day[name].as_u64().expect("a number")).sum())
}

/// What a test has seen.
#[derive(Default)]
struct Seen(Sums);

impl Seen {
    fn count(&mut self, answer: &Answer) {
        let [requests, not_modified, rate_limited, bytes] = &mut self.0;
        *requests += 1;
        *not_modified += u64::from(answer.status == 304);
        *rate_limited += u64::from(answer.status == 429);
        *bytes += answer.body.len() as u64;
    }
}

impl Owners {
    async fn usage(&self, id: u64) -> Sums {
        sums(&ok(&self.get(&format!("/dataset/usage?dataset_id={id}")).await))
    }
}

/// Many entities, so that answers come in several pieces.
fn entities(count: usize) -> String {
    let entities: Vec<String> =
        (0..count).map(|number| format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(number % 100))).collect();
    format!("[{}]", entities.join(","))
}

async fn requests_and_bytes_are_counted_whatever_the_answer(owners: Owners) {
    let service = &owners.service;
    let id = service.try_import("Read", false, entities(20_000).as_bytes()).await.expect("imported").dataset_id.get();
    let hidden = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("imported");
    let other = service.import("Other", "[{\"a\":1}]").await.dataset_id.get();
    assert_eq!(owners.usage(id).await, [0; 4]);
    let mut seen = Seen::default();
    let read = format!("/api/{id}/read/v1/");
    for (query, headers) in [
        ("", &[][..]),
        ("?format=csv&limit=100", &[]),
        ("?format=xml&limit=7", &[]),
        ("?count=true", &[]),
        ("?sample=5", &[]),
        ("", &[("accept-encoding", "gzip")]),
        ("?limit=50", &[("accept-encoding", "zstd")]),
        ("?format=jsonl", &[("accept-encoding", "br")]),
        ("?format=parquet", &[]),
        ("?format=parquet", &[("range", "bytes=4-103")]),
        ("?format=parquet", &[("range", "bytes=99999999999-")]),
        ("?alt=true", &[]),
        ("?strict=true&filter=none:1", &[]),
    ] {
        let answer = service.get_with(&format!("{read}{query}"), headers).await;
        assert!(answer.whole, "{query}");
        seen.count(&answer);
        assert_eq!(owners.usage(id).await, seen.0, "{query} {headers:?}: {}", answer.status);
    }
    let etag = service.get(&read).await;
    seen.count(&etag);
    let tag = etag.header("etag").expect("a tag").to_owned();
    for _ in 0..3 {
        let answer = service.get_with(&read, &[("if-none-match", &tag)]).await;
        assert_eq!(answer.status, 304);
        seen.count(&answer);
    }
    seen.count(&service.get(&format!("/api/{id}/read/v9/")).await);
    seen.count(&service.send("GET", &format!("/api/{id}/read/latest"), Some("Bearer ignored")).await);
    assert_eq!(owners.usage(id).await, seen.0);
    // What does not count against the rate, or names another dataset, or none.
    for uri in [
        format!("{read}?limit=x"),
        format!("/api/{id}/read/x/"),
        format!("/api/{id}/reed/v1/"),
        "/api/999/read/v1/".to_owned(),
        format!("/api/{other}/other/v1/"),
        format!("/dataset/profile?dataset_id={id}"),
    ] {
        service.get(&uri).await;
    }
    assert_eq!(service.send("HEAD", &read, None).await.status, 405);
    assert_eq!(owners.usage(id).await, seen.0);

    // Of a private one, also those that are not let in; of a frozen one, those that are told so.
    let (id, key) = (hidden.dataset_id.get(), hidden.private_key.as_ref().expect("a key").expose().to_owned());
    let (mut seen, read) = (Seen::default(), format!("/api/{id}/hidden/v1/"));
    for (authorization, status) in [(None, 401), (Some("Bearer wrong"), 403), (Some(&*format!("Bearer {key}")), 200)] {
        let answer = service.send("GET", &read, authorization).await;
        assert_eq!(answer.status, status);
        seen.count(&answer);
    }
    ok(&owners.post("/dataset/rollback", json!({"dataset_id": id, "version_number": 1, "freeze": true})).await);
    let frozen = service.send("GET", &read, Some(&format!("Bearer {key}"))).await;
    assert_eq!(frozen.status, 410);
    seen.count(&frozen);
    assert_eq!(owners.usage(id).await, seen.0);
}

async fn what_is_beyond_the_rate_is_counted_for_the_dataset_it_names(owners: Owners) {
    let owners = owners.with(|config| {
        (config.limits.public_per_minute, config.limits.private_per_minute) = (3, 2);
    });
    let owners = owners.await;
    let service = &owners.service;
    let id = service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let hidden = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("imported");
    let mut seen = Seen::default();
    for number in 0..6 {
        let answer = service.get(&format!("/api/{id}/read/v1/")).await;
        assert_eq!(answer.status, if number < 3 { 200 } else { 429 });
        seen.count(&answer);
    }
    assert_eq!(seen.0[2], 3);
    // Nobody learns from it whether there is a dataset; and none of these is it.
    for uri in
        [format!("/api/{id}/reed/v1/"), "/api/999/read/v1/".to_owned(), format!("/api/{id}/{}/v1/", "x".repeat(9_000))]
    {
        assert_eq!(service.get(&uri).await.status, 429);
    }
    assert_eq!(owners.usage(id).await, seen.0);
    service.services.usage.flush().await.expect("added");
    assert_eq!(owners.usage(id).await, seen.0);

    let key = format!("Bearer {}", hidden.private_key.as_ref().expect("a key").expose());
    let (id, mut seen) = (hidden.dataset_id.get(), Seen::default());
    for number in 0..5 {
        let answer = service.send("GET", &format!("/api/{id}/hidden/v1/"), Some(&key)).await;
        assert_eq!(answer.status, if number < 2 { 200 } else { 429 });
        seen.count(&answer);
    }
    assert_eq!(owners.usage(id).await, seen.0);
}

async fn a_download_that_is_broken_off_counts_what_was_sent(owners: Owners) {
    let service = &owners.service;
    let text = entities(60_000);
    let id = service.try_import("Read", false, text.as_bytes()).await.expect("imported").dataset_id.get();
    let request = Request::get(format!("/api/{id}/read/v1/?format=jsonl")).body(Body::empty()).expect("a request");
    let mut body = service.respond(request).await.into_body();
    let mut sent = 0;
    for _ in 0..2 {
        let frame = body.frame().await.expect("a frame").expect("bytes");
        sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        // While it goes on, too.
        assert_eq!(owners.usage(id).await, [1, 0, 0, sent]);
    }
    assert!(sent > 0 && sent < text.len() as u64, "{sent} of {}", text.len());
    drop(body);
    assert_eq!(owners.usage(id).await, [1, 0, 0, sent]);
}

async fn usage_outlives_a_restart_and_processes_add_up(owners: Owners) {
    let id = owners.service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let (mut seen, read) = (Seen::default(), format!("/api/{id}/read/v1/"));
    let beside = owners.service.beside(|_| {}).await;
    for service in [&owners.service, &beside, &beside, &owners.service, &beside] {
        seen.count(&service.get(&read).await);
    }
    // Each knows its own at once, and the other's once they are added.
    assert_eq!(owners.usage(id).await[0], 2);
    beside.services.usage.flush().await.expect("added");
    assert_eq!(owners.usage(id).await, seen.0);
    owners.service.services.usage.flush().await.expect("added");
    owners.service.services.usage.flush().await.expect("added once");
    assert_eq!(owners.usage(id).await, seen.0);
    // What was not added yet is, at the end.
    seen.count(&beside.get(&read).await);
    beside.services.close().await;
    assert_eq!(owners.usage(id).await, seen.0);
    let again = owners.service.reopened().await;
    seen.count(&again.get(&read).await);
    let user = again.services.accounts.users(None, 100).await.expect("users").into_iter();
    let user = user.into_iter().find(|user| user.email == OWNER).expect("the owner");
    let days = again.services.usage.days(&user, strata_types::ids::DatasetId::new(id), 30).await.expect("usage");
    assert_eq!(days.iter().map(|day| day.counts.requests).sum::<u64>(), seen.0[0]);
    assert_eq!(days.iter().map(|day| day.counts.bytes).sum::<u64>(), seen.0[3]);
}

async fn what_is_counted_while_the_catalog_is_locked_is_added_later(owners: Owners) {
    let owners = owners.with(|config| (config.catalog.wait_s, config.catalog.statement_timeout_s) = (1, 1)).await;
    let service = &owners.service;
    let id = service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let (mut seen, read) = (Seen::default(), format!("/api/{id}/read/v1/"));
    seen.count(&service.get(&read).await);
    let url = service.services.config.catalog_url();
    let lock = Lock::of(&url).await;
    for _ in 0..2 {
        let failed = service.services.usage.flush().await;
        assert!(failed.is_err(), "{failed:?}");
        seen.count(&service.get(&read).await);
    }
    drop(lock);
    // The lock goes when its connection does.
    let mut tries = 0;
    while let Err(error) = service.services.usage.flush().await {
        tries += 1;
        assert!(tries < 50, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let written = service.catalog().await.usage(strata_types::ids::DatasetId::new(id), 0).await.expect("usage");
    let requests: u64 = written.iter().map(|day| day.counts.requests).sum();
    assert_eq!(requests, seen.0[0]);
    assert_eq!(owners.usage(id).await, seen.0);
}

/// Keeps everybody else from adding usage.
enum Lock {
    Sqlite { _connection: sqlx::SqliteConnection },
    Postgres { _connection: sqlx::PgConnection },
}

impl Lock {
    async fn of(url: &str) -> Lock {
        use sqlx::Connection;
        if url.starts_with("postgres") {
            let mut connection = sqlx::PgConnection::connect(url).await.expect("a connection");
            let sql = "BEGIN; LOCK TABLE dataset_usage IN EXCLUSIVE MODE";
            sqlx::raw_sql(sql).execute(&mut connection).await.expect("locked");
            return Lock::Postgres { _connection: connection };
        }
        let mut connection = sqlx::SqliteConnection::connect(url).await.expect("a connection");
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("locked");
        Lock::Sqlite { _connection: connection }
    }
}

async fn usage_is_the_owners_and_of_the_days_that_are_asked_for(owners: Owners) {
    let id = owners.service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let other = [("authorization", owners.other.as_str())];
    let uri = format!("/dataset/usage?dataset_id={id}");
    refused(&owners.raw("GET", &uri, &other, Vec::new()).await, 404, "dataset");
    for (more, field) in [("&days=0", "days"), ("&days=x", "days"), ("&days=-1", "days"), ("&day=1", "day")] {
        refused(&owners.get(&format!("{uri}{more}")).await, 400, field);
    }
    assert_eq!(ok(&owners.get(&uri).await), json!({"ok": true, "usage": []}));
    owners.service.get(&format!("/api/{id}/read/v1/")).await;
    let today = chrono::Utc::now().date_naive();
    let day_of_today = (today - chrono::NaiveDate::default()).num_days();
    let rows = [410, 399, 30, 29, 1].map(|days_ago| format!("({id}, {}, 1, 0, 0, 5)", day_of_today - days_ago));
    let columns = "dataset_id, day, requests, not_modified, rate_limited, bytes";
    let sql = format!("INSERT INTO dataset_usage ({columns}) VALUES {}", rows.join(", "));
    execute(&owners.service.services.config.catalog_url(), &sql).await;
    let days = async |more: &str| {
        let usage = ok(&owners.get(&format!("{uri}{more}")).await);
        usage["usage"].as_array().expect("days").clone()
    };
    let listed = days("").await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    let names: Vec<&str> = listed[0].as_object().expect("a record").keys().map(String::as_str).collect();
    assert_eq!(names, ["day", "requests", "not_modified", "rate_limited", "bytes"]);
    let dates: Vec<&str> = listed.iter().map(|day| day["day"].as_str().expect("a date")).collect();
    assert!(dates.is_sorted_by(|one, next| one > next) && dates[0].len() == "2026-11-22".len(), "{dates:?}");
    assert_eq!(dates[1], (today - chrono::TimeDelta::days(1)).to_string());
    assert_eq!(days("&days=1").await, listed[..1]);
    assert_eq!(days("&days=2").await, listed[..2]);
    assert_eq!(days("&days=31").await.len(), 4);
    assert_eq!(days("&days=400").await.len(), 5);
    // More are not kept.
    assert_eq!(days("&days=99999999999999999999").await.len(), 5);
}
