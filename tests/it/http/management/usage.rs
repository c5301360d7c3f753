//! `GET /dataset/usage`: daily requests and bytes, counted exactly for all responses.

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use strata_testing::databases::{execute, on_both_databases};
use strata_testing::{Answer, OWNER};

use super::{Owners, ok, refused};

on_both_databases! {
    Owners:
    requests_and_bytes_are_counted
    rate_limited_requests_count_for_dataset
    interrupted_download_counts_sent_bytes
    usage_survives_restart_and_adds_up
    usage_is_added_after_catalog_lock_ends
    usage_requires_owner_and_respects_days
}

/// Requests, 304s, 429s, and bytes of all days together, because a test can run at midnight.
type Sums = [u64; 4];

fn sums(usage: &Value) -> Sums {
    let days = usage["usage"].as_array().expect("expected days");
    ["requests", "not_modified", "rate_limited", "bytes"]
        .map(|name| days.iter().map(|day| day[name].as_u64().expect("invalid number")).sum())
}

/// The usage that a test has observed.
#[derive(Default)]
struct ObservedUsage(Sums);

impl ObservedUsage {
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

/// Many entities, so that responses consist of several chunks.
fn entities(count: usize) -> String {
    let entities: Vec<String> =
        (0..count).map(|number| format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(number % 100))).collect();
    format!("[{}]", entities.join(","))
}

async fn requests_and_bytes_are_counted(owners: Owners) {
    let service = &owners.service;
    let id = service
        .try_import("Read", false, entities(20_000).as_bytes())
        .await
        .expect("failed to import")
        .dataset_id
        .get();
    let hidden = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("failed to import");
    let other = service.import("Other", "[{\"a\":1}]").await.dataset_id.get();
    assert_eq!(owners.usage(id).await, [0; 4]);
    let mut seen = ObservedUsage::default();
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
    let tag = etag.header("etag").expect("missing etag").to_owned();
    for _ in 0..3 {
        let answer = service.get_with(&read, &[("if-none-match", &tag)]).await;
        assert_eq!(answer.status, 304);
        seen.count(&answer);
    }
    seen.count(&service.get(&format!("/api/{id}/read/v9/")).await);
    seen.count(&service.send("GET", &format!("/api/{id}/read/latest"), Some("Bearer ignored")).await);
    assert_eq!(owners.usage(id).await, seen.0);
    // Requests that do not count, or that belong to another dataset or to none.
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

    // A private dataset also counts rejected requests, and a frozen one counts 410s.
    let id = hidden.dataset_id.get();
    let key = hidden.private_key.as_ref().expect("missing key").expose().to_owned();
    let mut seen = ObservedUsage::default();
    let read = format!("/api/{id}/hidden/v1/");
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

async fn rate_limited_requests_count_for_dataset(owners: Owners) {
    let owners = owners.with(|config| {
        (config.limits.public_per_minute, config.limits.private_per_minute) = (3, 2);
    });
    let owners = owners.await;
    let service = &owners.service;
    let id = service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let hidden = service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("failed to import");
    let mut seen = ObservedUsage::default();
    for number in 0..6 {
        let answer = service.get(&format!("/api/{id}/read/v1/")).await;
        assert_eq!(answer.status, if number < 3 { 200 } else { 429 });
        seen.count(&answer);
    }
    assert_eq!(seen.0[2], 3);
    // The responses do not reveal whether a dataset exists, and these requests count for no dataset.
    for uri in
        [format!("/api/{id}/reed/v1/"), "/api/999/read/v1/".to_owned(), format!("/api/{id}/{}/v1/", "x".repeat(9_000))]
    {
        assert_eq!(service.get(&uri).await.status, 429);
    }
    assert_eq!(owners.usage(id).await, seen.0);
    service.services.usage.flush().await.expect("failed to add");
    assert_eq!(owners.usage(id).await, seen.0);

    let key = format!("Bearer {}", hidden.private_key.as_ref().expect("missing key").expose());
    let id = hidden.dataset_id.get();
    let mut seen = ObservedUsage::default();
    for number in 0..5 {
        let answer = service.send("GET", &format!("/api/{id}/hidden/v1/"), Some(&key)).await;
        assert_eq!(answer.status, if number < 2 { 200 } else { 429 });
        seen.count(&answer);
    }
    assert_eq!(owners.usage(id).await, seen.0);
}

async fn interrupted_download_counts_sent_bytes(owners: Owners) {
    let service = &owners.service;
    let text = entities(60_000);
    let id = service.try_import("Read", false, text.as_bytes()).await.expect("failed to import").dataset_id.get();
    let request =
        Request::get(format!("/api/{id}/read/v1/?format=jsonl")).body(Body::empty()).expect("invalid request");
    let mut body = service.respond(request).await.into_body();
    let mut sent = 0;
    for _ in 0..2 {
        let frame = body.frame().await.expect("missing frame").expect("invalid bytes");
        sent += frame.data_ref().map_or(0, |data| data.len() as u64);
        // The usage is also visible during the download.
        assert_eq!(owners.usage(id).await, [1, 0, 0, sent]);
    }
    assert!(sent > 0 && sent < text.len() as u64, "{sent} of {}", text.len());
    drop(body);
    assert_eq!(owners.usage(id).await, [1, 0, 0, sent]);
}

async fn usage_survives_restart_and_adds_up(owners: Owners) {
    let id = owners.service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let mut seen = ObservedUsage::default();
    let read = format!("/api/{id}/read/v1/");
    let other = owners.service.open_instance(|_| {}).await;
    for service in [&owners.service, &other, &other, &owners.service, &other] {
        seen.count(&service.get(&read).await);
    }
    // Each process knows its own usage at once, and the other's usage after it is written.
    assert_eq!(owners.usage(id).await[0], 2);
    other.services.usage.flush().await.expect("failed to add");
    assert_eq!(owners.usage(id).await, seen.0);
    owners.service.services.usage.flush().await.expect("failed to add");
    owners.service.services.usage.flush().await.expect("added once");
    assert_eq!(owners.usage(id).await, seen.0);
    // Pending usage is written at shutdown.
    seen.count(&other.get(&read).await);
    other.services.close().await;
    assert_eq!(owners.usage(id).await, seen.0);
    let again = owners.service.reopened().await;
    seen.count(&again.get(&read).await);
    let user = again.services.accounts.users(None, 100).await.expect("expected users").into_iter();
    let user = user.into_iter().find(|user| user.email == OWNER).expect("missing owner");
    let days = again
        .services
        .usage
        .daily_usage(&user, strata_types::ids::DatasetId::new(id), 30)
        .await
        .expect("failed to read usage");
    assert_eq!(days.iter().map(|day| day.counts.requests).sum::<u64>(), seen.0[0]);
    assert_eq!(days.iter().map(|day| day.counts.sent_bytes).sum::<u64>(), seen.0[3]);
}

async fn usage_is_added_after_catalog_lock_ends(owners: Owners) {
    let owners = owners.with(|config| (config.catalog.wait_s, config.catalog.statement_timeout_s) = (1, 1)).await;
    let service = &owners.service;
    let id = service.import("Read", "[{\"a\":1}]").await.dataset_id.get();
    let mut seen = ObservedUsage::default();
    let read = format!("/api/{id}/read/v1/");
    seen.count(&service.get(&read).await);
    let url = service.services.config.catalog_url();
    let lock = Lock::acquire(&url).await;
    for _ in 0..2 {
        let failed = service.services.usage.flush().await;
        assert!(failed.is_err(), "{failed:?}");
        seen.count(&service.get(&read).await);
    }
    drop(lock);
    // The lock ends with its connection.
    let mut retries = 0;
    while let Err(error) = service.services.usage.flush().await {
        retries += 1;
        assert!(retries < 50, "{error}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let catalog = service.catalog().await;
    let written = catalog.daily_usage(strata_types::ids::DatasetId::new(id), 0).await.expect("failed to read usage");
    let requests: u64 = written.iter().map(|day| day.counts.requests).sum();
    assert_eq!(requests, seen.0[0]);
    assert_eq!(owners.usage(id).await, seen.0);
}

/// Prevents all other connections from writing usage.
enum Lock {
    Sqlite { _connection: sqlx::SqliteConnection },
    Postgres { _connection: sqlx::PgConnection },
}

impl Lock {
    async fn acquire(url: &str) -> Lock {
        use sqlx::Connection;
        if url.starts_with("postgres") {
            let mut connection = sqlx::PgConnection::connect(url).await.expect("failed to connect");
            let sql = "BEGIN; LOCK TABLE dataset_usage IN EXCLUSIVE MODE";
            sqlx::raw_sql(sql).execute(&mut connection).await.expect("failed to lock");
            return Lock::Postgres { _connection: connection };
        }
        let mut connection = sqlx::SqliteConnection::connect(url).await.expect("failed to connect");
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.expect("failed to lock");
        Lock::Sqlite { _connection: connection }
    }
}

async fn usage_requires_owner_and_respects_days(owners: Owners) {
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
        usage["usage"].as_array().expect("expected days").clone()
    };
    let listed = days("").await;
    assert_eq!(listed.len(), 3, "{listed:?}");
    let names: Vec<&str> = listed[0].as_object().expect("expected an object").keys().map(String::as_str).collect();
    assert_eq!(names, ["day", "requests", "not_modified", "rate_limited", "bytes"]);
    let dates: Vec<&str> = listed.iter().map(|day| day["day"].as_str().expect("invalid date")).collect();
    assert!(dates.is_sorted_by(|one, next| one > next) && dates[0].len() == "2026-11-22".len(), "{dates:?}");
    assert_eq!(dates[1], (today - chrono::TimeDelta::days(1)).to_string());
    assert_eq!(days("&days=1").await, listed[..1]);
    assert_eq!(days("&days=2").await, listed[..2]);
    assert_eq!(days("&days=31").await.len(), 4);
    assert_eq!(days("&days=400").await.len(), 5);
    // Older days are not stored.
    assert_eq!(days("&days=99999999999999999999").await.len(), 5);
}
