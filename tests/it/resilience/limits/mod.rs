//! Every documented limit at its maximum, one past it, and many together, on the binary in a process with little
//! address space and a small stack: nothing dies, and what is refused is refused by its documented error.
//!
//! What is tried comes from the registries, so that a new limit cannot be forgotten:
//!
//! | Module | Registry |
//! |---|---|
//! | `reads` | the parameters of reads in `/openapi.json` |
//! | `fixed` | the fixed limits (`model::limits::ALL`) |
//! | `options` | the options of the configuration (`Config::options`) |
//! | `calls` | the operations of `/openapi.json` and the tools of `/mcp` |
//!
//! `STRATA_TEST_BINARY` names another binary to try, `STRATA_LIMIT_ROUNDS` how many rounds of random combinations (10
//! unless given).

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

/// Little for a server: what its program and its threads take, and some hundred MiB to work with.
const ADDRESS_SPACE_KIB: u64 = 3 << 20;

/// An eighth of what systems give.
const STACK_KIB: u64 = 1 << 10;

/// The most that any request may take here before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(120);

/// The datasets of a world: an ordinary one, entities of 128 levels, a table of as many columns as there may be.
const ORDINARY: &str = "1/world-countries";
const DEEP: &str = "2/deep";
const WIDE: &str = "3/wide";
const DATASETS: [&str; 3] = [ORDINARY, DEEP, WIDE];

/// A machine with a user and these datasets, and a server on it that has little of everything.
struct World {
    machine: Machine,
    server: Server,
    token: String,
    client: reqwest::Client,
}

/// An answer, read to its end.
#[derive(Debug)]
struct Answered {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Vec<u8>,
}

impl Answered {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.shown()))
    }

    fn shown(&self) -> String {
        format!("{} {}", self.status, self.text().chars().take(300).collect::<String>())
    }

    /// It has one of these statuses. What is refused is refused by a text that one can read.
    #[track_caller]
    fn is(&self, statuses: &[u16], about: &str) {
        let about: String = about.chars().take(200).collect();
        assert!(statuses.contains(&self.status), "{about}: {}", self.shown());
        if self.status >= 400 {
            let content_type = self.headers.get("content-type").and_then(|value| value.to_str().ok());
            assert!(
                matches!(content_type, Some("text/plain; charset=utf-8" | "application/json")),
                "{about}: {content_type:?}, {}",
                self.shown()
            );
            assert!(self.body.len() > 10, "{about}: {}", self.shown());
        }
    }
}

/// `levels` objects and arrays in each other, around a value.
fn nested(levels: usize, arrays: bool) -> String {
    let (open, close) = if arrays { ("[", "]") } else { ("{\"a\":", "}") };
    // The entity itself is an object.
    format!("{{\"a\":{}\"x\"{}}}", open.repeat(levels - 1), close.repeat(levels - 1))
}

/// Entities of as many columns as a table may have, and small ones.
fn wide() -> String {
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

impl World {
    async fn new() -> World {
        World::configured(&[]).await
    }

    /// With these options on top.
    async fn configured(environment: &[(&str, &str)]) -> World {
        let machine = Machine::new();
        let add = ["user", "add", "ada@example.test", "--plan", "scale", "--token", "ci"];
        let token = succeeded(&machine.run_with_input(&add, "correct horse\n"));
        let token = token.lines().last().expect("a token").to_owned();
        let import = |file: &str, name: &str| {
            one_json_line(&machine.run(&["import", file, "--name", name, "--owner", "ada@example.test"]));
        };
        import(&format!("{FIXTURES}/world-countries/countries.json"), "World Countries");
        let deep = format!("[{},{},{{\"a\":1}}]", nested(128, false), nested(128, true));
        machine.write("deep.json", &deep);
        import("deep.json", "Deep");
        machine.write("wide.json", &wide());
        import("wide.json", "Wide");
        let server = World::serve(&machine, environment);
        World { machine, server, token, client: http_client().build().expect("a client") }
    }

    /// A server with little of everything but requests.
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

    /// Sends a request and reads its answer; a server that has died or hangs fails the test.
    #[track_caller]
    fn send(&self, request: reqwest::RequestBuilder) -> impl Future<Output = Answered> + use<'_> {
        let location = std::panic::Location::caller();
        async move {
            let answer = async {
                let answer = request.send().await?;
                let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
                Ok::<_, reqwest::Error>(Answered { status, headers, body: answer.bytes().await?.to_vec() })
            };
            match tokio::time::timeout(PATIENCE, answer).await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => panic!("{location}: {error:?}\n{}", self.server.errors()),
                Err(_) => panic!("{location}: no answer\n{}", self.server.errors()),
            }
        }
    }

    async fn get(&self, path: &str) -> Answered {
        self.send(self.client.get(self.url(path))).await
    }

    /// A read of a dataset's active version.
    async fn read(&self, dataset: &str, query: &str) -> Answered {
        self.get(&format!("/api/{dataset}/active/?{query}")).await
    }

    /// A management call with a body.
    async fn call(&self, method: Method, path: &str, body: impl Into<reqwest::Body>) -> Answered {
        let request = self.client.request(method, self.url(path)).bearer_auth(&self.token);
        self.send(request.header("content-type", "application/json").body(body)).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answered {
        self.call(Method::POST, path, body.to_string()).await
    }

    /// A message to `/mcp`.
    async fn message(&self, body: impl Into<reqwest::Body>) -> Answered {
        let request = self.client.post(self.url("/mcp")).bearer_auth(&self.token);
        let request = request.header("accept", "application/json, text/event-stream");
        self.send(request.header("content-type", "application/json").body(body)).await
    }

    /// A call of a tool: whether it failed, and its texts.
    async fn tool(&self, name: &str, arguments: &Value) -> (bool, Vec<String>) {
        let answer = self.message(calling(name, &arguments.to_string())).await;
        assert_eq!(answer.status, 200, "{}", answer.shown());
        let result = &answer.json()["result"];
        let texts = result["content"].as_array().cloned().unwrap_or_default();
        let text = |content: &Value| content["text"].as_str().unwrap_or_default().to_owned();
        (result["isError"] == json!(true), texts.iter().map(text).collect())
    }

    /// A new dataset of the user's, to which entities are pushed.
    async fn dataset(&self, name: &str) -> u64 {
        let answer = self.post("/dataset/create", &json!({"name": name})).await;
        answer.is(&[200], name);
        answer.json()["dataset"]["dataset_id"].as_u64().expect("an id")
    }

    /// A version of these entities.
    async fn push(&self, id: u64, entities: &str) -> Answered {
        self.call(Method::POST, "/dataset/refresh", format!("{{\"dataset_id\":{id},\"entities\":{entities}}}")).await
    }

    /// The process lives, and answers an honest request to the byte.
    #[track_caller]
    fn is_well(&self) -> impl Future<Output = ()> + use<'_> {
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

    /// Ends the server, which must have nothing to complain of.
    fn end(self) {
        let (code, errors) = self.server.stop("-TERM");
        assert_eq!(code, Some(0), "{errors}");
        let bad = errors.lines().find(|line| line.contains("panicked") || line.contains("overflow"));
        assert_eq!(bad, None, "{errors}");
    }
}

/// The message that calls a tool.
fn calling(name: &str, arguments: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{name}","arguments":{arguments}}}}}"#)
}

/// A value for a query string.
fn encoded(value: &str) -> String {
    form_urlencoded::byte_serialize(value.as_bytes()).collect()
}
