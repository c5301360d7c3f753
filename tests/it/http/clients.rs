//! Clients generated from `/openapi.json`: generation has no warnings, the clients compile, and programs that use them
//! (`tests/tools/generated.py` and `generated.ts`) call every operation and read every format.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use strata_testing::machine::{Machine, Server, get, succeeded};
use strata_testing::scripts::{node_tool, node_tools, tool, tools_file};
use strata_types::read_request::ResponseFormat;

const EMAIL: &str = "grace@example.test";
const PASSWORD: &str = "the password of Grace";

/// A server with one user on the plan scale, and its document.
struct ServedDocument {
    machine: Machine,
    server: Server,
    /// The output of a program that has called everything.
    expected: String,
}

impl ServedDocument {
    fn start() -> ServedDocument {
        let machine = Machine::new();
        succeeded(&machine.run_with_input(&["user", "add", EMAIL, "--plan", "scale"], PASSWORD));
        // The server fetches a source from itself.
        let server = Server::start(&machine, &[], &[("STRATA_NET__ALLOW", "127.0.0.0/8")]);
        let (_, document) = get(&format!("{}/openapi.json", server.base_url), None);
        machine.write("openapi.json", &document);
        let document: Value = serde_json::from_str(&document).expect("invalid JSON");
        let items = document["paths"].as_object().expect("missing paths").values();
        let operations: usize = items.map(|item| item.as_object().expect("expected operations").len()).sum();
        assert!(operations >= 44, "{operations}");
        let expected = format!("{operations} operations, {} formats\n", ResponseFormat::ALL.len());
        ServedDocument { machine, server, expected }
    }

    /// Runs a program that uses the generated client.
    fn drive(&self, mut program: Command) {
        program.arg(self.machine.path("openapi.json")).args([&self.server.base_url, EMAIL, PASSWORD]);
        assert_eq!(run(&mut program, &self.machine.path("")), self.expected, "{program:?}");
    }
}

/// Returns the output of a successful program on both streams, because warnings count.
#[track_caller]
fn run(program: &mut Command, directory: &Path) -> String {
    program.current_dir(directory).env("NO_PROXY", "*").env("NO_COLOR", "1");
    let output = program.output().expect("failed to run program");
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{program:?}: {printed}");
    printed
}

#[test]
#[ignore = "campaign: generates and compiles a client"]
fn generated_python_client_calls_every_operation() {
    let served = ServedDocument::start();
    let directory = served.machine.path("");
    // The generator looks for its formatter in PATH.
    let mut generator = tool("openapi-python-client");
    let tools = Path::new(generator.get_program()).parent().expect("failed to create directory").to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(tools).chain(std::env::split_paths(&path));
    generator.env("PATH", std::env::join_paths(paths).expect("missing path"));
    generator.args(["generate", "--fail-on-warning", "--path", "openapi.json", "--output-path", "client"]);
    assert_eq!(run(&mut generator, &directory).trim(), "Generating client");

    let script = tools_file("generated.py");
    let mut types = tool("mypy");
    types.args(["--strict", "--cache-dir", "types", "client/strata_client"]).arg(&script).env("MYPYPATH", "client");
    let printed = run(&mut types, &directory);
    assert!(printed.starts_with("Success: no issues found in "), "{printed}");

    let mut program = tool("python");
    program.arg(&script).env("PYTHONPATH", "client").env("PYTHONDONTWRITEBYTECODE", "1");
    served.drive(program);
}

#[test]
#[ignore = "campaign: generates and compiles a client"]
fn generated_typescript_client_calls_every_operation() {
    let served = ServedDocument::start();
    // The directory is inside the directory of the packages that the program imports.
    let directory = tempfile::tempdir_in(node_tools()).expect("failed to create directory");
    for name in ["generated.ts", "tsconfig.json"] {
        std::fs::copy(tools_file(name), directory.path().join(name)).expect("failed to copy");
    }
    let mut generator = node_tool("openapi-typescript");
    generator.arg(served.machine.path("openapi.json")).args(["--output", "schema.d.ts"]);
    let printed = run(&mut generator, directory.path());
    // The output contains only the name of the tool and the generated file.
    assert_eq!(printed.lines().filter(|line| !line.is_empty()).count(), 2, "{printed}");

    assert_eq!(run(&mut node_tool("tsc"), directory.path()), "");

    let mut program = Command::new("node");
    program.arg(directory.path().join("generated.js"));
    served.drive(program);
}
