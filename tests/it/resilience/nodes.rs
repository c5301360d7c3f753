//! Several servers on one catalog: which there are, what each does, and what one leaves behind when it is killed.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use strata_config::{CatalogUrl, Config};
use strata_testing::databases::{Database, Raw};
use strata_testing::machine::{Machine, Server, failed, get, request, succeeded};
use strata_testing::owned::{Owned, parsed};
use strata_testing::postgres::Postgres;
use strata_testing::{comes_about, eventually};
use strata_types::node::Roles;

/// A service on PostgreSQL and a directory for its versions, without a server.
struct Service {
    database: Database,
    store: tempfile::TempDir,
    token: String,
}

impl Service {
    async fn new() -> Service {
        let database = Database::postgres().await;
        let store = tempfile::tempdir().expect("a directory");
        let mut service = Service { database, store, token: String::new() };
        let machine = Machine::new();
        let mut add = machine.command(&["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"]);
        add.envs(service.environment(&[])).stdin(std::process::Stdio::piped());
        add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = add.spawn().expect("the binary runs");
        let mut input = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"correct horse\n").expect("written");
        drop(input);
        let printed = succeeded(&child.wait_with_output().expect("it ends"));
        service.token = printed.lines().last().expect("a token").to_owned();
        service
    }

    fn environment(&self, more: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        let mut environment = vec![
            ("STRATA_CATALOG__URL", self.database.url.clone()),
            ("STRATA_STORE__URL", self.store.path().display().to_string()),
            ("STRATA_LIMITS__PUBLIC_PER_MINUTE", "0".to_owned()),
        ];
        environment.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        environment
    }

    /// A server with the data directory of a machine.
    fn serve(&self, machine: &Machine, more: &[(&'static str, &str)]) -> Server {
        let environment = self.environment(more);
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Server::start(machine, &[], &environment)
    }

    /// What `strata nodes` tells.
    fn nodes(&self, machine: &Machine) -> Vec<Value> {
        let mut command = machine.command(&["nodes", "--json"]);
        command.envs(self.environment(&[("STRATA_CLUSTER__LOST_AFTER_S", "5")]));
        let printed = succeeded(&command.output().expect("the binary runs"));
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// A call; its status and its body, or that the server has ended before.
    async fn post(&self, server: &Server, path: &str, body: Value) -> Option<(u16, String)> {
        let client = strata_testing::http_client().build().expect("a client");
        let request = client.post(format!("{}{path}", server.base_url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    }

    async fn push(&self, server: &Server) -> Option<u16> {
        let body = json!({"dataset_id": 1, "entities": [{"a": 1}]});
        self.post(server, "/dataset/refresh", body).await.map(|(status, _)| status)
    }

    /// A dataset to which a server pushes, and is killed when it holds it; for ever, as far as its lease says.
    async fn held_by_killed(&self, machine: &Machine, more: &[(&'static str, &str)]) {
        let mut server = self.serve(machine, &[more, &[("CRASH_AT", "refresh.leased")]].concat());
        let created = self.post(&server, "/dataset/create", json!({"name": "Things"})).await.expect("an answer");
        assert_eq!(created.0, 200, "{}", created.1);
        assert_eq!(self.push(&server).await, None);
        assert_eq!(server.ended_by(), Some(9));
        self.database.execute("UPDATE refresh_leases SET expires_at = 4102444800000000").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_again_has_what_it_held_before() {
    let service = Service::new().await;
    let (machine, other) = (Machine::new(), Machine::new());
    service.held_by_killed(&machine, &[]).await;
    let other = service.serve(&other, &[]);
    assert_eq!(service.push(&other).await, Some(409), "whether the first one lives is not known to others");
    // With the same data directory it has the same name.
    let again = service.serve(&machine, &[]);
    assert_eq!(service.push(&again).await, Some(200));
    assert_eq!(service.push(&other).await, Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_same_name_frees_what_its_predecessor_held() {
    let service = Service::new().await;
    let name = [("STRATA_CLUSTER__NODE", "strata-1")];
    service.held_by_killed(&Machine::new(), &name).await;
    // In a container whose data directory is new, say. Nobody asks for the dataset but by its start.
    let machine = Machine::new();
    let _again = service.serve(&machine, &name);
    eventually("the dataset is free", async || {
        service.database.number("SELECT COUNT(*) FROM refresh_leases").await == 0
    })
    .await;
    let failed = "SELECT COUNT(*) FROM refresh_attempts WHERE NOT ok AND error LIKE 'strata stopped%'";
    assert_eq!(service.database.number(failed).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_gives_no_sign_of_life_loses_what_it_held() {
    let service = Service::new().await;
    let soon = [("STRATA_CLUSTER__LOST_AFTER_S", "5")];
    service.held_by_killed(&Machine::new(), &soon).await;
    let machine = Machine::new();
    let other = service.serve(&machine, &soon);
    eventually("the dataset is free", async || service.push(&other).await == Some(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_are_listed_with_what_they_do() {
    let service = Service::new().await;
    let machines = [Machine::new(), Machine::new()];
    let soon = ("STRATA_CLUSTER__LOST_AFTER_S", "5");
    let address = ("STRATA_CLUSTER__INTERNAL_ADDRESS", "10.0.0.7:8081");
    let secret = ("STRATA_CLUSTER__SECRET", "a secret of the nodes");
    let listen = ("STRATA_CLUSTER__LISTEN", "127.0.0.1:0");
    let mut first = service.serve(&machines[0], &[soon, ("STRATA_CLUSTER__NODE", "b"), address, secret, listen]);
    let second = [soon, ("STRATA_CLUSTER__NODE", "a"), ("STRATA_SERVER__ROLES", "refresh,query")];
    let second = service.serve(&machines[1], &second);
    assert_eq!(second.greeting, "roles: refresh, query\n");
    let listed = || {
        let of = |node: &Value| [&node["node"], &node["state"], &node["roles"]].map(|value| value.to_string()).concat();
        service.nodes(&machines[0]).iter().map(of).collect::<Vec<_>>()
    };
    let a = r#""a""alive"["refresh","query"]"#;
    eventually("both are listed", async || listed() == [a, r#""b""alive"["http","refresh","query"]"#]).await;
    let b = &service.nodes(&machines[0])[1];
    assert_eq!((&b["internal_address"], &b["version"]), (&json!("10.0.0.7:8081"), &json!(env!("CARGO_PKG_VERSION"))));

    let metrics = || get(&format!("{}/metrics", second.base_url), None).1;
    let told = |text: &str, line: &str| text.lines().any(|found| found == line);
    let of_both = [
        "strata_nodes{state=\"alive\"} 2",
        "strata_nodes{state=\"lost\"} 0",
        "strata_node_roles{role=\"http\"} 1",
        "strata_node_roles{role=\"refresh\"} 2",
    ];
    eventually("the metrics tell", async || of_both.iter().all(|line| told(&metrics(), line))).await;

    first.kill();
    eventually("one is lost", async || listed() == [a, r#""b""lost"["http","refresh","query"]"#]).await;
    eventually("the metrics tell", async || told(&metrics(), "strata_nodes{state=\"lost\"} 1")).await;
    let table = machines[0].command(&["nodes"]).envs(service.environment(&[])).output().expect("the binary runs");
    let table = succeeded(&table);
    assert!(table.starts_with("NODE  STATE  ") && table.lines().count() == 3, "{table}");

    let (code, errors) = second.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(listed().len(), 1, "one that ends removes its name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_two_servers_have_is_told() {
    let service = Service::new().await;
    let machines = [Machine::new(), Machine::new()];
    let one = [("STRATA_CLUSTER__NODE", "one"), ("STRATA_CLUSTER__LOST_AFTER_S", "5")];
    let first = service.serve(&machines[0], &one);
    eventually("it has registered", async || service.nodes(&machines[0]).len() == 1).await;
    let second = service.serve(&machines[1], &one);
    let told = "another process has registered under this node's name";
    eventually("the first one says so", async || first.errors().contains(told)).await;
    assert!(!second.errors().contains(told), "{}", second.errors());
    assert_eq!(service.nodes(&machines[0]).len(), 1);
    // It takes the name back when the other one has ended.
    let process = "SELECT process FROM nodes";
    let of_second = service.database.texts(process).await;
    second.stop("-TERM");
    eventually("it is the first one's again", async || {
        let now = service.database.texts(process).await;
        now.len() == 1 && now != of_second
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_data_directory_has_no_nodes() {
    let machine = Machine::with_user();
    let server = Server::start(&machine, &[], &[]);
    let none = "no nodes: a server registers as a node only if it uses PostgreSQL or has a [cluster] section\n";
    assert_eq!(succeeded(&machine.run(&["nodes"])), none);
    assert_eq!(succeeded(&machine.run(&["nodes", "--json"])), "");
    // Registering would take a moment.
    assert!(!comes_about(async || succeeded(&machine.run(&["nodes"])) != none).await);
    assert!(!machine.path("strata-data/node.id").exists());
    drop(server);
    // With a section [cluster] it has.
    let server = Server::start(&machine, &[], &[("STRATA_CLUSTER__NODE", "laptop")]);
    eventually("it registers", async || succeeded(&machine.run(&["nodes"])).contains("laptop")).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_command_held_is_free_at_once_beside_a_server() {
    let machine = Machine::with_user();
    machine.write("small.json", "[{\"a\":1}]");
    succeeded(&machine.import("small.json", &[]));
    let _server = Server::start(&machine, &[], &[]);
    let arguments = ["import", "small.json", "--name", "Small Things", "--owner", "ada@example.test"];
    let killed = machine.command(&arguments).env("CRASH_AT", "refresh.leased").output().expect("the binary runs");
    assert!(!killed.status.success());
    assert!(succeeded(&machine.import("small.json", &[])).contains("\"version\":2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_role_for_requests_tells_only_how_it_is() {
    let machine = Machine::with_user();
    let server = Server::start(&machine, &[], &[("STRATA_SERVER__ROLES", "refresh")]);
    for path in ["healthz", "readyz", "metrics"] {
        let (head, body) = get(&format!("{}/{path}", server.base_url), None);
        assert!(head.starts_with("http/1.1 200"), "{path}: {head} {body}");
    }
    for (method, path) in [
        ("GET", ""),
        ("GET", "ui/sign-in"),
        ("GET", "api/1/things/latest/"),
        ("POST", "dataset/refresh"),
        ("GET", "ping/token"),
        ("POST", "mcp"),
        ("GET", "openapi.json"),
    ] {
        let (head, body) = request(method, &format!("{}/{path}", server.base_url), "", "");
        assert!(head.starts_with("http/1.1 503"), "{path}: {head} {body}");
        assert!(body.starts_with("This node does not serve requests (server.roles "), "{path}: {body}");
    }
}

fn roles(names: &[&str]) -> Roles {
    Roles::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("roles")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_the_role_for_versions_makes_none_and_says_so() {
    let server = Postgres::shared();
    let url = CatalogUrl::try_from(server.create_database().await).expect("a URL");
    let configured = |config: &mut Config| {
        config.catalog.url = Some(url);
        config.net.allow = vec!["127.0.0.0/8".to_owned()].try_into().expect("networks");
        config.sources.schedule_spread_s = 0;
    };
    let owned = Owned::configured(configured, Some(Arc::clone(&server))).await;
    let id = owned.dataset("Pushed", json!({}), &["[{\"a\":1}]"]).await;
    let fetched =
        owned.dataset("Fetched", json!({"source": "http://127.0.0.1:1/", "schedule": "* * * * *"}), &[]).await;
    let view = owned.call("GET", &format!("/dataset/view?dataset_id={fetched}"), "").await;
    let ping = parsed(&view)["dataset"]["ping_url"].as_str().expect("a URL").to_owned();

    let readers = owned.service.beside(|config| config.server.roles = roles(&["http", "query"])).await;
    let background = readers.services.start_background();
    let call = async |path: &str, body: Value| {
        strata_testing::owned::call(&readers, owned.token(), "POST", path, &body.to_string()).await
    };
    let ping = &ping[ping.find("/ping/").expect("a path")..];
    for answer in [
        call("/dataset/refresh", json!({"dataset_id": id, "entities": [{"a": 2}]})).await,
        call("/dataset/refresh", json!({"dataset_id": fetched})).await,
        readers.get(ping).await,
    ] {
        answer.is_error(503);
        assert!(answer.text().contains("server.roles does not include refresh"), "{}", answer.text());
        assert!(answer.header("retry-after").is_some());
    }
    // All else it does, for owners, too.
    assert_eq!(readers.get(&format!("/api/{id}/pushed/latest/?format=jsonl")).await.text(), "{\"a\":1}\n");
    parsed(&call("/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    // A schedule that is due stays so, until somebody has the role.
    let database =
        sqlx::PgPool::connect(owned.service.services.config.catalog_url().as_str()).await.expect("connected");
    let due = "UPDATE datasets SET next_run_at = 1 WHERE next_run_at IS NOT NULL";
    sqlx::query(due).execute(&database).await.expect("SQL");
    let still = async || {
        let sql = "SELECT COUNT(*) FROM datasets WHERE next_run_at = 1";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&database).await.expect("SQL") == 1
    };
    assert!(!comes_about(async || !still().await).await, "it was run");
    let worker = owned.service.beside(|config| config.server.roles = roles(&["refresh"])).await;
    let working = worker.services.start_background();
    eventually("it is run", async || !still().await).await;
    working.finish(std::time::Duration::from_secs(5)).await;
    background.finish(std::time::Duration::from_secs(5)).await;
}

#[test]
fn roles_that_are_none_are_refused_at_the_start() {
    for (given, told) in
        [("http,worker", "\"worker\" is not a role; valid: http, refresh"), ("http,http", "http is listed twice")]
    {
        let machine = Machine::new();
        let refused = machine.command(&["serve"]).env("STRATA_SERVER__ROLES", given).output().expect("the binary runs");
        let line = failed(&refused);
        assert!(line.contains("server.roles") && line.contains(told), "{line}");
        assert!(!machine.path("strata-data").exists());
    }
    let machine = Machine::new();
    machine.write("strata.toml", "[server]\nroles = []\n");
    assert!(failed(&machine.run(&["serve"])).contains("it is empty; valid: one or more of the roles"));
    for (variable, value) in [
        ("STRATA_CLUSTER__NODE", "a b"),
        ("STRATA_CLUSTER__INTERNAL_ADDRESS", "here"),
        ("STRATA_CLUSTER__LOST_AFTER_S", "4"),
    ] {
        let refused = machine.command(&["serve", "--config", "/dev/null"]).env(variable, value).output();
        assert!(failed(&refused.expect("the binary runs")).contains("cluster."), "{variable}");
    }
}

#[tokio::test]
async fn an_unreadable_name_is_told() {
    let machine = Machine::new();
    let data = machine.path("strata-data");
    std::fs::create_dir(&data).expect("made");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).expect("made private");
    machine.write("strata-data/node.id", "two words\n");
    let database = Database::postgres().await;
    assert!(matches!(database.raw, Raw::Postgres { .. }));
    let mut command = machine.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("STRATA_CATALOG__URL", &database.url).env("STRATA_STORE__URL", machine.path("store"));
    let line = failed(&command.output().expect("the binary runs"));
    assert!(line.contains("node.id") && line.contains("cluster.node") && line.contains("name is invalid"), "{line}");
}
