//! `/openapi.json`: the document is valid, matches the registry, and describes the service correctly.

use std::collections::BTreeMap;
use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use strata_testing::machine::{Machine, Server, one_json_line, succeeded};
use strata_testing::openapi::{Document, MANAGED};
use strata_testing::pages::between;
use strata_testing::scripts::{node_tool, tool, tools_file};
use strata_testing::{FIXTURES, TestService};
use strata_types::read_request::ResponseFormat;

const READ: &str = "/api/{dataset_id}/{name_slug}/{version}";
const READ_ALT: &str = "/api/{dataset_id}/{name_slug}/{version}/alt";

#[tokio::test]
async fn document_and_examples_are_valid() {
    let service = TestService::start().await;
    let path = service.directory().join("openapi.json");
    std::fs::write(&path, service.get("/openapi.json").await.body).expect("failed to write");
    let output = tool("python").arg(tools_file("openapi.py")).arg(path).output().expect("failed to run program");
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    let operations = printed.split(' ').next().and_then(|number| number.parse::<u64>().ok());
    assert!(operations.is_some_and(|operations| operations >= 44), "{printed}");
}

#[tokio::test]
async fn linters_report_nothing() {
    let service = TestService::start().await;
    let path = service.directory().join("openapi.json");
    std::fs::write(&path, service.get("/openapi.json").await.body).expect("failed to write");
    let spectral = node_tool("spectral")
        .args(["lint", "--fail-severity", "hint", "--ruleset"])
        .arg(tools_file("spectral.yaml"))
        .arg(&path)
        .output()
        .expect("failed to run spectral");
    assert!(spectral.status.success(), "{}", String::from_utf8_lossy(&spectral.stdout));
    let redocly = node_tool("redocly")
        .args(["lint", "--extends", "recommended", "--format", "json"])
        .arg(&path)
        .env("REDOCLY_TELEMETRY", "off")
        .env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")
        .output()
        .expect("failed to run redocly");
    let report: Value = serde_json::from_slice(&redocly.stdout).expect("missing report");
    assert_eq!(report["problems"], serde_json::json!([]));
}

#[tokio::test]
async fn document_has_etag_and_allows_any_origin() {
    let service = TestService::start().await;
    let first = service.get("/openapi.json").await;
    assert_eq!(first.header("content-type"), Some("application/json"));
    assert_eq!(first.header("access-control-allow-origin"), Some("*"));
    let etag = first.header("etag").expect("missing etag");
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 10, "{etag}");

    let request_with_etag = async |tag: &str| {
        let request = Request::get("/openapi.json").header("if-none-match", tag);
        service.call(request.body(Body::empty()).expect("invalid request")).await
    };
    let again = request_with_etag(etag).await;
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(again.header("etag"), Some(etag));
    let other = request_with_etag("\"other\"").await;
    assert_eq!((other.status, &other.body), (200, &first.body));
    let document = Document::fetch(&service).await;
    for answer in [&first, &again, &other] {
        document.describes("/openapi.json", answer);
    }
}

/// Client generators that support only one content type use the first one.
#[tokio::test]
async fn json_is_first_response_format() {
    let service = TestService::start().await;
    let document = Document::fetch(&service).await;
    let contents = document.0["components"]["responses"]["Entities"]["content"].as_object().expect("missing contents");
    let (first, content) = contents.iter().next().expect("missing content type");
    assert_eq!(first, "application/json");
    assert_eq!(content["schema"]["oneOf"][0]["type"], "array");
    for format in ResponseFormat::ALL {
        assert!(contents.contains_key(format.content_type()), "{format:?}");
    }
}

#[tokio::test]
async fn name_and_schedule_schemas_match_checks() {
    let service = TestService::start().await;
    let document = Document::fetch(&service).await;
    for path in ["/dataset/create", "/dataset/update", "/dataset/clone"] {
        let body = &document.0["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
        assert_eq!(body["additionalProperties"], false, "{path}");
        let name = &body["properties"]["name"];
        assert_eq!((&name["minLength"], &name["maxLength"]), (&1.into(), &200.into()), "{path}");
        assert!(name["pattern"].is_string(), "{path}");
        if path != "/dataset/clone" {
            assert!(body["properties"]["schedule"]["pattern"].is_string(), "{path}");
            assert_eq!(body["properties"]["records_path"]["minLength"], 1, "{path}");
        }
    }
}

#[tokio::test]
async fn paths_accept_documented_methods() {
    let service = TestService::start().await;
    service.load_fixtures().await;
    let document = Document::fetch(&service).await;
    let paths = document.0["paths"].as_object().expect("missing paths");
    assert!(paths.len() >= 28, "{paths:?}");
    for (path, item) in paths {
        let uri = path.replace("{dataset_id}/{name_slug}/{version}", "1/world-countries/v1").replace("{token}", "x");
        if item["get"].is_object() {
            document.describes(path, &service.get(&uri).await);
        }
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let answer = service.send(method, &uri, None).await;
            let status = answer.status;
            let described = item[method.to_ascii_lowercase()].is_object();
            if described {
                document.describes_call(method, path, &answer);
            }
            assert_eq!(status != 405, described, "{method} {uri} is {status}");
            if !described {
                let allowed = answer.header("allow").expect("missing methods").replace([',', ' '], " ");
                let listed = answer.text().rsplit_once(" Allowed: ").expect("missing methods").1.to_owned();
                let listed = listed.replace(" and ", " ").replace([',', '.'], " ");
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                assert_eq!(words(&listed), words(&allowed), "{method} {uri}: {}", answer.text());
            }
        }
    }
    for path in [READ, READ_ALT] {
        let methods = document.0["paths"][path].as_object().expect(path).keys();
        assert_eq!(methods.collect::<Vec<_>>(), ["get"], "{path}");
        let uri = path.replace("{dataset_id}/{name_slug}/{version}", "1/world-countries/v1");
        for method in ["HEAD", "OPTIONS", "POST", "TRACE"] {
            let answer = service.send(method, &uri, None).await;
            assert_eq!((answer.status, answer.header("allow")), (405, Some("GET")), "{method} {uri}");
            document.describes(path, &answer);
        }
    }
}

#[tokio::test]
async fn read_responses_match_document() {
    let service = TestService::start().await;
    service.import("World Countries", "[{\"name\":\"Aruba\"}]").await;
    service.try_import("Hidden", true, b"[{\"a\":1}]").await.expect("failed to import");
    let document = Document::fetch(&service).await;
    let formats =
        ResponseFormat::ALL.map(|format| (format!("1/world-countries/v1/?format={}&lmit=1", format.name()), 200));
    let others = [
        ("1/world-countries/v1/?count=true", 200),
        ("1/world-countries/v1/?sample=1", 200),
        ("1/world-countries/v1/?limit=x", 400),
        ("1/world-countries/x/", 400),
        ("2/hidden/v1/", 401),
        ("1/world/v1/", 404),
        ("1/world-countries/v2/", 404),
        ("1/world-countries/v1/?alt=true", 404),
    ];
    for (request, status) in formats.into_iter().chain(others.map(|(request, status)| (request.to_owned(), status))) {
        let answer = service.get(&format!("/api/{request}")).await;
        assert_eq!(answer.status, status, "{request}: {}", String::from_utf8_lossy(&answer.body));
        document.describes(READ, &answer);
    }
    let answer = service.send("GET", "/api/2/hidden/v1/", Some("Bearer wrong")).await;
    assert_eq!(answer.status, 403);
    document.describes(READ, &answer);
    let answer = service.get(&format!("/api/1/world-countries/v1/?{}", "x".repeat(40_000))).await;
    assert_eq!(answer.status, 414);
    document.describes(READ, &answer);
}

#[tokio::test]
async fn documentation_lists_response_headers() {
    let service = TestService::start().await;
    let document = Document::fetch(&service).await;
    let listed = between("docs/reference/api/index.md", "## Response headers", "\n## ");
    let missing: Vec<String> = document
        .headers(READ, 200)
        .into_iter()
        .filter(|name| name.starts_with("X-") || name == "ETag" || name == "Link")
        .filter(|name| !listed.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, [""; 0]);
}

/// The result of a schemathesis run.
struct Run {
    succeeded: bool,
    printed: String,
    /// The number of responses by status: of the read endpoint, and of the management operations.
    statuses: [BTreeMap<u64, u64>; 2],
}

/// The indexes in [`Run::statuses`].
const READS: usize = 0;
const MANAGEMENT: usize = 1;

/// Runs schemathesis with all checks against a server with small datasets: a public one, a private one, and one of
/// another user, who manages it. `config` is a file in `tests/tools`.
fn schemathesis(config: &str, arguments: &[&str]) -> Run {
    const EMAIL: &str = "grace@example.test";
    // The password differs from the document's examples, because some of them would change it.
    const PASSWORD: &str = "the password of Grace";
    let machine = Machine::with_user();
    succeeded(&machine.run_with_input(&["user", "add", EMAIL, "--plan", "scale"], PASSWORD));
    import_first(&machine, "world-countries/countries.json", "World Countries", &[]);
    let private = import_first(&machine, "penguins/penguins.json", "Penguins", &["--private"]);
    for _ in 0..2 {
        import_first(&machine, "world-countries/countries.json", "Managed", &["--owner", EMAIL]);
    }
    let environment = [
        ("STRATA_LOG__FORMAT", "json"),
        ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0"),
        ("STRATA_LIMITS__PRIVATE_PER_MINUTE", "0"),
        ("STRATA_LIMITS__LOGINS_PER_MINUTE", "0"),
    ];
    let server = Server::start(&machine, &[], &environment);

    let mut command = tool("schemathesis");
    command.args(["--no-color", "--config-file"]).arg(tools_file(config));
    command.args(["run", "--checks", "all", "--warnings", "off"]).args(arguments);
    command.arg(format!("{}/openapi.json", server.base_url));
    command.env("SCHEMATHESIS_HOOKS", tools_file("schemathesis_hooks.py"));
    command.env("PRIVATE_KEY", private["private_key"].as_str().expect("missing key"));
    command.env("EMAIL", EMAIL).env("PASSWORD", PASSWORD).current_dir(machine.path(""));
    let output = command.output().expect("failed to run");

    let mut statuses = [BTreeMap::new(), BTreeMap::new()];
    for line in server.errors().lines() {
        let line: Value = serde_json::from_str(line).expect("invalid JSON");
        let fields = if line["path"].is_string() { &line } else { &line["fields"] };
        let (Some(path), Some(status)) = (fields["path"].as_str(), fields["status"].as_u64()) else { continue };
        let path = path.trim_start_matches('"');
        let managed = ["/session/", "/token/", "/dataset/", "/webhook/", "/ping/", "/agent/"];
        if path.starts_with("/api/") {
            *statuses[READS].entry(status).or_default() += 1;
        } else if managed.iter().any(|prefix| path.starts_with(prefix)) {
            *statuses[MANAGEMENT].entry(status).or_default() += 1;
        }
    }
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Run { succeeded: output.status.success(), printed, statuses }
}

/// Imports the first 20 entities of a fixture.
fn import_first(machine: &Machine, fixture: &str, name: &str, more: &[&str]) -> Value {
    let text = std::fs::read_to_string(Path::new(FIXTURES).join(fixture)).expect(fixture);
    let entities: Vec<Value> = serde_json::from_str(&text).expect("invalid JSON");
    machine.write("first.json", &Value::from(&entities[..20]).to_string());
    let owner: &[&str] = if more.contains(&"--owner") { &[] } else { &["--owner", "ada@example.test"] };
    one_json_line(&machine.run(&[&["import", "first.json", "--name", name], owner, more].concat()))
}

impl Run {
    /// Checks that nothing was found, and that each status occurred often enough.
    #[track_caller]
    fn found_nothing(&self, place: usize, expected: &[(u64, u64)]) {
        assert!(self.succeeded, "{}", self.printed);
        let statuses = &self.statuses[place];
        for (status, at_least) in expected {
            let count = statuses.get(status).copied().unwrap_or_default();
            assert!(count >= *at_least, "{status} only {count} times: {statuses:?}\n{}", self.printed);
        }
    }
}

#[test]
fn schemathesis_finds_nothing_with_session() {
    let run = schemathesis("schemathesis.toml", &["--phases", "examples,coverage,stateful"]);
    run.found_nothing(READS, &[(200, 150), (400, 150), (404, 100), (405, 10)]);
    run.found_nothing(MANAGEMENT, &[(200, 300), (400, 300), (401, 100), (404, 100), (405, 100), (409, 50), (422, 3)]);
}

#[test]
#[ignore = "campaign: sends random requests"]
fn schemathesis_finds_nothing_with_random_requests() {
    let run = schemathesis("schemathesis.toml", &["--phases", "fuzzing"]);
    run.found_nothing(READS, &[(200, 20), (404, 20)]);
    run.found_nothing(MANAGEMENT, &[(200, 20), (400, 20)]);
}

#[test]
fn schemathesis_finds_nothing_in_private_dataset() {
    // Management operations do not accept a dataset's key.
    let excluded = MANAGED.iter().flat_map(|tag| ["--exclude-tag", tag]);
    let arguments: Vec<&str> = ["--phases", "fuzzing"].into_iter().chain(excluded).collect();
    let run = schemathesis("schemathesis-private.toml", &arguments);
    run.found_nothing(READS, &[(200, 20), (404, 10)]);
}

#[tokio::test]
async fn misspelled_path_suggests_nearest() {
    let service = TestService::start().await;
    let document = service.get("/openapi.json").await;
    let document: Value = serde_json::from_str(document.text()).expect("invalid JSON");
    let paths = document["paths"].as_object().expect("missing paths").keys().map(String::as_str);
    let mut tried = 0;
    for path in paths.filter(|path| !path.contains('{')).chain(["/mcp"]) {
        // One letter is missing.
        let slip = format!("{}{}", &path[..path.len() - 2], &path[path.len() - 1..]);
        for unknown in [slip, format!("{path}/"), path.to_uppercase()] {
            let answer = service.get(&unknown).await;
            answer.is_error(404);
            let expected = format!("This path does not exist. Did you mean {path}?");
            assert!(answer.text().starts_with(&expected), "{unknown}: {}", answer.text());
            tried += 1;
        }
    }
    assert!(tried > 100, "{tried}");
    for unknown in ["/nothing/like/it", "/dataset/view/7/versions/and/more", &format!("/{}", "x".repeat(8_000))] {
        let answer = service.get(unknown).await;
        answer.is_error(404);
        assert!(!answer.text().contains("Did you mean"), "{unknown}: {}", answer.text());
    }
}
