//! The API reference: its examples equal the actual responses.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use strata_testing::api_reference::{EXAMPLE_ADDRESS, api_examples};
use strata_testing::loopback_server::{LoopbackServer, Received, Reply, ok, with_status};
use strata_testing::machine::{get, request};
use strata_testing::pages::page;
use strata_types::read_request::ResponseFormat;

use super::console::Demo;

/// Operations whose examples show only a part of the response.
const EXCERPTS: [&str; 2] = ["getMetrics", "getOpenApi"];

/// Placeholders in the examples: the URL of the source and of the webhook receiver, and the password of the demo's
/// owner.
const OUTSIDE: &str = "https://example.org";
const PASSWORD: &str = "moss-lantern-42";

/// Starts the source of the dataset, whose contents change after the first fetch, and the receiver of its webhook.
fn outside() -> LoopbackServer {
    let is_fetched = AtomicBool::new(false);
    LoopbackServer::start(move |received: &Received| {
        if received.method == "POST" {
            return Reply::Bytes(with_status("204 No Content", "", b""));
        }
        let planets = match is_fetched.swap(true, Ordering::Relaxed) {
            false => {
                r#"[{"name":"Venus","radius_km":6051.8,"moons":0},{"name":"Earth","radius_km":6371,"moons":1},
                    {"name":"Mars","radius_km":3389.5,"moons":2}]"#
            }
            true => {
                r#"[{"name":"Venus","radius_km":6052,"moons":0},{"name":"Earth","radius_km":6371,"moons":1},
                    {"name":"Mars","radius_km":3389.5,"moons":2},{"name":"Jupiter","radius_km":69911,"moons":95}]"#
            }
        };
        ok("Content-Type: application/json\r\n", planets.as_bytes())
    })
}

/// Pairs of a placeholder in the examples and its actual value in this run.
#[derive(Default)]
struct Values(Vec<(String, String)>);

impl Values {
    fn to_actual(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (documented, actual)| text.replace(documented, actual))
    }

    fn to_documented(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (documented, actual)| text.replace(actual, documented))
    }

    /// Returns the actual response with random values, times, and measured numbers replaced by those of the example.
    fn normalize(&mut self, name: &str, documented: &Value, actual: &Value) -> Value {
        match (documented, actual) {
            (Value::Object(documented), Value::Object(actual)) => {
                let member = |(name, actual): (&String, &Value)| {
                    let documented = documented.get(name).unwrap_or(&Value::Null);
                    (name.clone(), self.normalize(name, documented, actual))
                };
                actual.iter().map(member).collect()
            }
            (Value::Array(documented), Value::Array(actual)) => {
                let mut documented = documented.iter();
                let item = |actual| self.normalize(name, documented.next().unwrap_or(&Value::Null), actual);
                actual.iter().map(item).collect()
            }
            (Value::String(before), Value::String(now)) if before != now => match (random(before), random(now)) {
                _ if is_time(before) && is_time(now) => documented.clone(),
                _ if before.lines().count() > 1 && without_numbers(before) == without_numbers(now) => {
                    documented.clone()
                }
                (Some(old), Some(new)) if before.replace(old, "") == now.replace(new, "") => {
                    self.0.push((old.to_owned(), new.to_owned()));
                    documented.clone()
                }
                _ => actual.clone(),
            },
            (Value::Number(_), Value::Number(_)) if is_measured(name) => documented.clone(),
            _ => actual.clone(),
        }
    }
}

/// Returns the random part of a text: the longest run of at least 16 letters and digits.
fn random(text: &str) -> Option<&str> {
    let runs = text.split(|character: char| !character.is_ascii_alphanumeric());
    runs.filter(|run| run.len() >= 16).max_by_key(|run| run.len())
}

fn is_time(text: &str) -> bool {
    chrono::DateTime::parse_from_rfc3339(text).is_ok() || chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

/// Returns the words of a text without numbers and units.
fn without_numbers(text: &str) -> Vec<&str> {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let is_unit = |word: &&str| ["B", "KiB", "MiB", "ms", "s"].iter().any(|unit| word.trim_end_matches(',') == *unit);
    text.split_whitespace().filter(|word| !is_number(word) && !is_unit(word)).collect()
}

fn is_measured(name: &str) -> bool {
    ["bytes", "ms", "us", "time", "load"].iter().any(|unit| name.ends_with(unit))
}

/// Returns whether the example is a part of the response.
fn is_excerpt(documented: &Value, actual: &Value) -> bool {
    match (documented, actual) {
        (Value::Object(documented), actual) => {
            documented.iter().all(|(name, documented)| is_excerpt(documented, &actual[name]))
        }
        (Value::String(documented), Value::String(actual)) => documented.lines().all(|line| actual.contains(line)),
        (documented, actual) => documented == actual,
    }
}

/// Returns the output of a command, parsed if it is a JSON object or array.
fn output(command: &str, environment: &[(&str, String)]) -> Value {
    let mut shell = Command::new("bash");
    shell.args(["-c", command]).envs(environment.iter().map(|(name, value)| (name, value)));
    let output = shell.output().expect("bash runs");
    let printed = String::from_utf8(output.stdout).expect("UTF-8");
    match serde_json::from_str(&printed) {
        Ok(json @ (Value::Object(_) | Value::Array(_))) => json,
        _ => Value::from(printed),
    }
}

#[test]
fn api_examples_equal_actual_responses() {
    let outside = outside();
    let demo = Demo::start(&[("STRATA_NET__ALLOW", "127.0.0.1"), ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0")]);
    let base = &demo.server.base_url;
    let password = demo.printed("(password: ").to_owned();
    let login = format!(r#"{{"email":"demo@strata.test","password":"{password}"}}"#);
    let (head, _) = request("POST", &format!("{base}/session/login"), "Content-Type: application/json\r\n", &login);
    let (_, session) = head.split_once("strata_session=").expect("a cookie");
    let session = session.split(';').next().expect("a value").to_owned();
    let environment = [("TOKEN", demo.printed("TOKEN=").to_owned()), ("SESSION", session)];
    let mut values = Values(vec![
        (EXAMPLE_ADDRESS.to_owned(), base.clone()),
        (OUTSIDE.to_owned(), outside.url("")),
        (PASSWORD.to_owned(), password),
    ]);

    let text = page("src/http/openapi/examples.json");
    let mut documented: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let mut wrong = Vec::new();
    for (example, documented) in api_examples().iter().zip(&mut documented) {
        let id = example.operation;
        let is_webhook = id == "newVersion";
        let part = if is_webhook { "body" } else { "response" };
        let expected = documented[part].take();
        let mut normalized = Value::Null;
        // Webhooks and usage counts can lag behind the response.
        for _ in 0..200 {
            let actual = if is_webhook {
                let received = outside.received().into_iter().find(|received| received.method == "POST");
                received.map_or(Value::Null, |received| serde_json::from_slice(&received.body).expect("JSON"))
            } else {
                output(&values.to_actual(example.command.as_ref().expect("an operation")), &environment)
            };
            let actual = serde_json::from_str(&values.to_documented(&actual.to_string())).expect("JSON");
            normalized = match EXCERPTS.contains(&id) && is_excerpt(&expected, &actual) {
                true => expected.clone(),
                false => values.normalize("", &expected, &actual),
            };
            let may_change = ["newVersion", "viewWebhook", "listDeliveries", "getUsage"].contains(&id);
            if normalized == expected || !may_change {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        if normalized != expected {
            wrong.push(format!("{id}:\n{normalized:#}\ninstead of\n{expected:#}"));
        }
        documented[part] = normalized;
    }
    if !wrong.is_empty() {
        let path = format!("{}/examples.json", env!("CARGO_TARGET_TMPDIR"));
        std::fs::write(&path, format!("{:#}\n", Value::from(documented))).expect("written");
        panic!("wrong examples; {path} contains the correct ones. {}", wrong.join("\n\n"));
    }
}

#[test]
fn format_examples_equal_actual_responses() {
    let demo = Demo::start(&[]);
    let (_, document) = get(&format!("{}/openapi.json", demo.server.base_url), None);
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let examples = api_examples();
    let example = examples.iter().find(|example| example.operation == "readDataset").expect("an example");
    for format in ResponseFormat::ALL.into_iter().filter(|format| *format != ResponseFormat::Parquet) {
        let command = example.command.as_ref().expect("an operation").replace(EXAMPLE_ADDRESS, &demo.server.base_url);
        let command = command.replace('?', &format!("?pretty=false&format={}&", format.name()));
        let content = &document["components"]["responses"]["Entities"]["content"][format.content_type()];
        assert_eq!(output(&command, &[]), content["example"], "{format:?}");
    }
}
