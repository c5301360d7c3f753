//! Tests of several servers on one metadata database: the node list, the roles, and the leases of servers that were
//! killed.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use strata_config::{CatalogUrl, Config};
use strata_testing::databases::{Database, Raw};
use strata_testing::machine::{Machine, Server, failed, get, request, succeeded};
use strata_testing::owned::{Owned, parsed};
use strata_testing::postgres::Postgres;
use strata_testing::{comes_about, eventually};
use strata_types::node::NodeRoles;

/// A PostgreSQL database and a store directory, for servers that the test starts.
struct Service {
    database: Database,
    store: tempfile::TempDir,
    token: String,
}

impl Service {
    async fn new() -> Service {
        let database = Database::postgres().await;
        let store = tempfile::tempdir().expect("failed to create a directory");
        let mut service = Service { database, store, token: String::new() };
        let machine = Machine::new();
        let mut add = machine.command(&["user", "add", "ada@example.test", "--plan", "pro", "--token", "ci"]);
        add.envs(service.environment(&[])).stdin(std::process::Stdio::piped());
        add.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = add.spawn().expect("failed to run the binary");
        let mut input = child.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"correct horse\n").expect("written");
        drop(input);
        let printed = succeeded(&child.wait_with_output().expect("it ends"));
        service.token = printed.lines().last().expect("failed to find the token").to_owned();
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

    /// Starts a server with the data directory of a machine.
    fn serve(&self, machine: &Machine, more: &[(&'static str, &str)]) -> Server {
        let environment = self.environment(more);
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Server::start(machine, &[], &environment)
    }

    /// Returns the output of `strata nodes --json`.
    fn nodes(&self, machine: &Machine) -> Vec<Value> {
        let mut command = machine.command(&["nodes", "--json"]);
        command.envs(self.environment(&[("STRATA_CLUSTER__LOST_AFTER_S", "5")]));
        let printed = succeeded(&command.output().expect("failed to run the binary"));
        printed.lines().map(|line| serde_json::from_str(line).expect("failed to parse JSON")).collect()
    }

    /// Makes a call and returns its status and body, or `None` if the server has ended before the response.
    async fn post(&self, server: &Server, path: &str, body: Value) -> Option<(u16, String)> {
        let client = strata_testing::http_client().build().expect("failed to build the client");
        let request = client.post(format!("{}{path}", server.base_url)).bearer_auth(&self.token);
        let answer = request.header("content-type", "application/json").body(body.to_string()).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.text().await.ok()?))
    }

    async fn push(&self, server: &Server) -> Option<u16> {
        let body = json!({"dataset_id": 1, "entities": [{"a": 1}]});
        self.post(server, "/dataset/refresh", body).await.map(|(status, _)| status)
    }

    /// Creates a dataset and kills a server while it holds the refresh lease of the dataset. The lease itself would
    /// last for a very long time.
    async fn kill_during_refresh(&self, machine: &Machine, more: &[(&'static str, &str)]) {
        let mut server = self.serve(machine, &[more, &[("CRASH_AT", "refresh.leased")]].concat());
        let created =
            self.post(&server, "/dataset/create", json!({"name": "Things"})).await.expect("failed to get a response");
        assert_eq!(created.0, 200, "{}", created.1);
        assert_eq!(self.push(&server).await, None);
        assert_eq!(server.ended_by(), Some(9));
        self.database.execute("UPDATE refresh_leases SET expires_at = 4102444800000000").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_frees_its_leases() {
    let service = Service::new().await;
    let machine = Machine::new();
    let other = Machine::new();
    service.kill_during_refresh(&machine, &[]).await;
    let other = service.serve(&other, &[]);
    assert_eq!(service.push(&other).await, Some(409), "other servers cannot know whether the first server is alive");
    // With the same data directory, the server has the same node name.
    let again = service.serve(&machine, &[]);
    assert_eq!(service.push(&again).await, Some(200));
    assert_eq!(service.push(&other).await, Some(200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_same_name_frees_predecessor_leases() {
    let service = Service::new().await;
    let name = [("STRATA_CLUSTER__NODE", "strata-1")];
    service.kill_during_refresh(&Machine::new(), &name).await;
    // For example, a container with a new data directory. Nothing but the server's start frees the dataset.
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
async fn server_without_heartbeat_loses_its_leases() {
    let service = Service::new().await;
    let soon = [("STRATA_CLUSTER__LOST_AFTER_S", "5")];
    service.kill_during_refresh(&Machine::new(), &soon).await;
    let machine = Machine::new();
    let other = service.serve(&machine, &soon);
    eventually("the dataset is free", async || service.push(&other).await == Some(200)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_command_lists_servers_with_roles() {
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
    eventually("both servers are listed", async || listed() == [a, r#""b""alive"["http","refresh","query"]"#]).await;
    let b = &service.nodes(&machines[0])[1];
    assert_eq!((&b["internal_address"], &b["version"]), (&json!("10.0.0.7:8081"), &json!(env!("CARGO_PKG_VERSION"))));

    let metrics = || get(&format!("{}/metrics", second.base_url), None).1;
    let has_line = |text: &str, line: &str| text.lines().any(|found| found == line);
    let of_both = [
        "strata_nodes{state=\"alive\"} 2",
        "strata_nodes{state=\"lost\"} 0",
        "strata_node_roles{role=\"http\"} 1",
        "strata_node_roles{role=\"refresh\"} 2",
    ];
    eventually("the metrics list the nodes", async || of_both.iter().all(|line| has_line(&metrics(), line))).await;

    first.kill();
    eventually("one server is offline", async || listed() == [a, r#""b""lost"["http","refresh","query"]"#]).await;
    eventually("the metrics list the nodes", async || has_line(&metrics(), "strata_nodes{state=\"lost\"} 1")).await;
    let table =
        machines[0].command(&["nodes"]).envs(service.environment(&[])).output().expect("failed to run the binary");
    let table = succeeded(&table);
    assert!(table.starts_with("NODE  STATE  ") && table.lines().count() == 3, "{table}");

    let (code, errors) = second.stop("-TERM");
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(listed().len(), 1, "a stopped server removes its name");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_node_name_is_logged() {
    let service = Service::new().await;
    let machines = [Machine::new(), Machine::new()];
    let one = [("STRATA_CLUSTER__NODE", "one"), ("STRATA_CLUSTER__LOST_AFTER_S", "5")];
    let first = service.serve(&machines[0], &one);
    eventually("the first server has registered", async || service.nodes(&machines[0]).len() == 1).await;
    let second = service.serve(&machines[1], &one);
    let message = "another process has registered under this node's name";
    eventually("the first server logs the duplicate", async || first.errors().contains(message)).await;
    assert!(!second.errors().contains(message), "{}", second.errors());
    assert_eq!(service.nodes(&machines[0]).len(), 1);
    // When the other server has ended, this server registers its name again.
    let process = "SELECT process FROM nodes";
    let of_second = service.database.texts(process).await;
    second.stop("-TERM");
    eventually("the name belongs to the first server again", async || {
        let now = service.database.texts(process).await;
        now.len() == 1 && now != of_second
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_deployment_has_no_nodes() {
    let machine = Machine::with_user();
    let server = Server::start(&machine, &[], &[]);
    let none = "no nodes: a server registers as a node only if it uses PostgreSQL or has a [cluster] section\n";
    assert_eq!(succeeded(&machine.run(&["nodes"])), none);
    assert_eq!(succeeded(&machine.run(&["nodes", "--json"])), "");
    // Wait for longer than a registration takes.
    assert!(!comes_about(async || succeeded(&machine.run(&["nodes"])) != none).await);
    assert!(!machine.path("strata-data/node.id").exists());
    drop(server);
    // With a `[cluster]` section, the server registers.
    let server = Server::start(&machine, &[], &[("STRATA_CLUSTER__NODE", "laptop")]);
    eventually("the server registers", async || succeeded(&machine.run(&["nodes"])).contains("laptop")).await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_command_leases_are_free_at_once() {
    let machine = Machine::with_user();
    machine.write("small.json", "[{\"a\":1}]");
    succeeded(&machine.import("small.json", &[]));
    let _server = Server::start(&machine, &[], &[]);
    let arguments = ["import", "small.json", "--name", "Small Things", "--owner", "ada@example.test"];
    let killed =
        machine.command(&arguments).env("CRASH_AT", "refresh.leased").output().expect("failed to run the binary");
    assert!(!killed.status.success());
    assert!(succeeded(&machine.import("small.json", &[])).contains("\"version\":2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_read_role_serves_only_status() {
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

fn roles(names: &[&str]) -> NodeRoles {
    NodeRoles::try_from(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).expect("roles")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_without_refresh_role_rejects_refreshes() {
    let server = Postgres::shared();
    let url = CatalogUrl::try_from(server.create_database().await).expect("failed to parse the URL");
    let configured = |config: &mut Config| {
        config.catalog.url = Some(url);
        config.net.allow = vec!["127.0.0.0/8".to_owned()].try_into().expect("failed to parse networks");
        config.sources.schedule_spread_s = 0;
    };
    let owned = Owned::configured(configured, Some(Arc::clone(&server))).await;
    let id = owned.dataset("Pushed", json!({}), &["[{\"a\":1}]"]).await;
    let fetched =
        owned.dataset("Fetched", json!({"source": "http://127.0.0.1:1/", "schedule": "* * * * *"}), &[]).await;
    let view = owned.call("GET", &format!("/dataset/view?dataset_id={fetched}"), "").await;
    let ping = parsed(&view)["dataset"]["ping_url"].as_str().expect("failed to parse the URL").to_owned();

    let readers = owned.service.open_instance(|config| config.server.roles = roles(&["http", "query"])).await;
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
    // The server does all other work, also for owners.
    assert_eq!(readers.get(&format!("/api/{id}/pushed/latest/?format=jsonl")).await.text(), "{\"a\":1}\n");
    parsed(&call("/dataset/rollback", json!({"dataset_id": id, "version_number": 1})).await);
    // A run stays due until a server has the refresh role.
    let database =
        sqlx::PgPool::connect(owned.service.services.config.catalog_url().as_str()).await.expect("failed to connect");
    let due = "UPDATE datasets SET next_run_at = 1 WHERE next_run_at IS NOT NULL";
    sqlx::query(due).execute(&database).await.expect("failed to run the SQL statement");
    let still = async || {
        let sql = "SELECT COUNT(*) FROM datasets WHERE next_run_at = 1";
        sqlx::query_scalar::<_, i64>(sql).fetch_one(&database).await.expect("failed to run the SQL statement") == 1
    };
    assert!(!comes_about(async || !still().await).await, "the run started");
    let worker = owned.service.open_instance(|config| config.server.roles = roles(&["refresh"])).await;
    let working = worker.services.start_background();
    eventually("the run starts", async || !still().await).await;
    working.finish(std::time::Duration::from_secs(5)).await;
    background.finish(std::time::Duration::from_secs(5)).await;
}

#[test]
fn unknown_roles_are_rejected_at_startup() {
    for (roles, message) in
        [("http,worker", "\"worker\" is not a role; valid: http, refresh"), ("http,http", "http is listed twice")]
    {
        let machine = Machine::new();
        let refused =
            machine.command(&["serve"]).env("STRATA_SERVER__ROLES", roles).output().expect("failed to run the binary");
        let line = failed(&refused);
        assert!(line.contains("server.roles") && line.contains(message), "{line}");
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
        assert!(failed(&refused.expect("failed to run the binary")).contains("cluster."), "{variable}");
    }
}

#[tokio::test]
async fn unreadable_node_name_is_an_error() {
    let machine = Machine::new();
    let data = machine.path("strata-data");
    std::fs::create_dir(&data).expect("failed to create the directory");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700))
        .expect("failed to make the dataset private");
    machine.write("strata-data/node.id", "two words\n");
    let database = Database::postgres().await;
    assert!(matches!(database.raw, Raw::Postgres { .. }));
    let mut command = machine.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("STRATA_CATALOG__URL", &database.url).env("STRATA_STORE__URL", machine.path("store"));
    let line = failed(&command.output().expect("failed to run the binary"));
    assert!(line.contains("node.id") && line.contains("cluster.node") && line.contains("name is invalid"), "{line}");
}
