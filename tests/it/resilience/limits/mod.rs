//! Tests of every documented limit: at its maximum, one past it, and many limits together. The tests run the binary in
//! a process with a small address space and a small stack. The process must survive, and requests over a limit must
//! fail with the documented error.
//!
//! The test cases come from registries, so that every new limit needs a test:
//!
//! | Module | Registry |
//! | --- | --- |
//! | `reads` | the parameters of reads in `/openapi.json` |
//! | `fixed` | the fixed limits (`limits::FIXED_LIMITS`) |
//! | `options` | the options of the configuration (`Config::options`) |
//! | `calls` | the operations of `/openapi.json` and the tools of `/mcp` |
//!
//! `STRATA_TEST_BINARY` sets the binary to test. `STRATA_LIMIT_ROUNDS` sets the number of rounds of random combinations
//! (default 10).

mod calls;
mod fixed;
mod growth;
mod options;
mod reads;

use std::fmt::Write;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use strata_testing::FIXTURES;
use strata_testing::http_client;
use strata_testing::machine::{Confinement, Machine, Server, one_json_line, succeeded};

/// The address space of the server: enough for the program, its threads, and a few hundred MiB of data.
const ADDRESS_SPACE_KIB: u64 = 3 << 20;

/// The stack of the main thread: an eighth of the usual default.
const STACK_KIB: u64 = 1 << 10;

/// The time after which a request counts as hanging.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The datasets of a [`LimitFixture`]: an ordinary one, one with entities of depth 128, and one with the maximum number
/// of columns.
const ORDINARY: &str = "1/world-countries";
const DEEP: &str = "2/deep";
const WIDE: &str = "3/wide";
const DATASETS: [&str; 3] = [ORDINARY, DEEP, WIDE];

/// A machine with a user and the three datasets, and a server with a small address space and stack.
struct LimitFixture {
    machine: Machine,
    server: Server,
    token: String,
    client: reqwest::Client,
}

/// A response with its complete body.
#[derive(Debug)]
struct FullResponse {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Vec<u8>,
}

impl FullResponse {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.summary()))
    }

    fn summary(&self) -> String {
        format!("{} {}", self.status, self.text().chars().take(300).collect::<String>())
    }

    /// Asserts that the response has one of the statuses, and that an error has a readable text.
    #[track_caller]
    fn assert_status(&self, statuses: &[u16], about: &str) {
        let about: String = about.chars().take(200).collect();
        assert!(statuses.contains(&self.status), "{about}: {}", self.summary());
        if self.status >= 400 {
            let content_type = self.headers.get("content-type").and_then(|value| value.to_str().ok());
            assert!(
                matches!(content_type, Some("text/plain; charset=utf-8" | "application/json")),
                "{about}: {content_type:?}, {}",
                self.summary()
            );
            assert!(self.body.len() > 10, "{about}: {}", self.summary());
        }
    }
}

/// Returns an entity with `levels` nested objects or arrays around a value.
fn nested_entity(levels: usize, arrays: bool) -> String {
    let (open, close) = if arrays { ("[", "]") } else { ("{\"a\":", "}") };
    // The entity itself is the outermost object.
    format!("{{\"a\":{}\"x\"{}}}", open.repeat(levels - 1), close.repeat(levels - 1))
}

/// Returns one entity with 10,000 columns, the maximum of a table, and 300 entities with one column each.
fn wide_entities() -> String {
    let mut text = String::from("[{");
    for column in 0..10_000 {
        let _ = write!(text, "{}\"c{column}\":{column}", if column > 0 { "," } else { "" });
    }
    text.push('}');
    for number in 0..300 {
        let _ = write!(text, ",{{\"c{number}\":\"{number}\"}}");
    }
    text.push(']');
    text
}

impl LimitFixture {
    async fn new() -> LimitFixture {
        LimitFixture::with_environment(&[]).await
    }

    /// Starts a server with additional environment variables.
    async fn with_environment(environment: &[(&str, &str)]) -> LimitFixture {
        let machine = Machine::new();
        let add = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci"];
        let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
        let token = token.lines().last().expect("failed to find the token").to_owned();
        let import = |file: &str, name: &str| {
            one_json_line(&machine.run(&["import", file, "--name", name, "--owner", "ada@example.test"]));
        };
        import(&format!("{FIXTURES}/world-countries/countries.json"), "World Countries");
        let deep = format!("[{},{},{{\"a\":1}}]", nested_entity(128, false), nested_entity(128, true));
        machine.write("deep.json", &deep);
        import("deep.json", "Deep");
        machine.write("wide.json", &wide_entities());
        import("wide.json", "Wide");
        let server = LimitFixture::serve(&machine, environment);
        LimitFixture { machine, server, token, client: http_client().build().expect("failed to build the client") }
    }

    /// Starts a server with little memory but without rate limits.
    fn serve(machine: &Machine, environment: &[(&str, &str)]) -> Server {
        let confinement = Confinement { address_space_kib: ADDRESS_SPACE_KIB, stack_kib: STACK_KIB };
        let mut all = vec![
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
            ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0"),
            ("STRATA_LIMITS__LOGINS_PER_MINUTE", "0"),
            ("STRATA_PLANS__SCALE_ACTIVE_DATASETS", "100000"),
            ("STRATA_NET__ALLOW", "127.0.0.0/8"),
            ("STRATA_CACHE__MEMORY_BYTES", "67108864"),
            ("STRATA_QUERY__MEMORY_BYTES", "536870912"),
        ];
        all.extend_from_slice(environment);
        Server::confined(machine, &all, confinement)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.base_url)
    }

    /// Sends a request and reads the response. Panics if the server has died or does not respond in time.
    #[track_caller]
    fn send(&self, request: reqwest::RequestBuilder) -> impl Future<Output = FullResponse> + use<'_> {
        let location = std::panic::Location::caller();
        async move {
            let answer = async {
                let answer = request.send().await?;
                let status = answer.status().as_u16();
                let headers = answer.headers().clone();
                Ok::<_, reqwest::Error>(FullResponse { status, headers, body: answer.bytes().await?.to_vec() })
            };
            match tokio::time::timeout(REQUEST_TIMEOUT, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => panic!("{location}: {error:?}\n{}", self.server.errors()),
                Err(_) => panic!("{location}: no response\n{}", self.server.errors()),
            }
        }
    }

    async fn get(&self, path: &str) -> FullResponse {
        self.send(self.client.get(self.url(path))).await
    }

    /// Reads the active version of a dataset.
    async fn read(&self, dataset: &str, query: &str) -> FullResponse {
        self.get(&format!("/api/{dataset}/active/?{query}")).await
    }

    /// Makes a management call with a JSON body.
    async fn call(&self, method: Method, path: &str, body: impl Into<reqwest::Body>) -> FullResponse {
        let request = self.client.request(method, self.url(path)).bearer_auth(&self.token);
        self.send(request.header("content-type", "application/json").body(body)).await
    }

    async fn post(&self, path: &str, body: &Value) -> FullResponse {
        self.call(Method::POST, path, body.to_string()).await
    }

    /// Posts a message to `/mcp`.
    async fn message(&self, body: impl Into<reqwest::Body>) -> FullResponse {
        let request = self.client.post(self.url("/mcp")).bearer_auth(&self.token);
        let request = request.header("accept", "application/json, text/event-stream");
        self.send(request.header("content-type", "application/json").body(body)).await
    }

    /// Calls a tool. Returns whether it failed and the texts of its result.
    async fn call_tool(&self, name: &str, arguments: &Value) -> (bool, Vec<String>) {
        let answer = self.message(tool_call_message(name, &arguments.to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.summary());
        let result = &answer.json()["result"];
        let texts = result["content"].as_array().cloned().unwrap_or_default();
        let text = |content: &Value| content["text"].as_str().unwrap_or_default().to_owned();
        (result["isError"] == json!(true), texts.iter().map(text).collect())
    }

    /// Creates a dataset without a source, to which tests push entities, and returns its ID.
    async fn create_dataset(&self, name: &str) -> u64 {
        let answer = self.post("/dataset/create", &json!({"name": name})).await;
        answer.assert_status(&[200], name);
        answer.json()["dataset"]["dataset_id"].as_u64().expect("failed to find the ID")
    }

    /// Pushes the entities as a new version.
    async fn push(&self, id: u64, entities: &str) -> FullResponse {
        self.call(Method::POST, "/dataset/refresh", format!("{{\"dataset_id\":{id},\"entities\":{entities}}}")).await
    }

    /// Asserts that the server runs and answers an ordinary request correctly.
    #[track_caller]
    fn assert_healthy(&self) -> impl Future<Output = ()> + use<'_> {
        let location = std::panic::Location::caller();
        async move {
            let answer = self.read(ORDINARY, "filter=cca3:FRA&keep_field=cca3,region&pretty=true").await;
            assert_eq!(
                answer.text(),
                "[\n  {\n    \"cca3\": \"FRA\",\n    \"region\": \"Europe\"\n  }\n]",
                "{location}"
            );
        }
    }

    /// Stops the server and asserts that it has logged no panic or overflow.
    fn stop(self) {
        let (code, errors) = self.server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        let bad = errors.lines().find(|line| line.contains("panicked") || line.contains("overflow"));
        assert_eq!(bad, None, "{errors}");
    }
}

/// Returns the JSON-RPC message that calls a tool.
fn tool_call_message(name: &str, arguments: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#)
}

/// Returns the value, percent-encoded for a query string.
fn percent_encoded(value: &str) -> String {
    form_urlencoded::byte_serialize(value.as_bytes()).collect()
}
