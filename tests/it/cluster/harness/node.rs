//! A node of the cluster.

use strata_testing::machine::{Machine, Server};

use super::page::GuideConfig;
use super::signal;

/// A node with its own data directory, running or not.
pub struct Node {
    machine: Machine,
    address: String,
    server: Option<Server>,
}

impl Node {
    pub fn new(page: &GuideConfig, number: usize) -> Node {
        let machine = Machine::new();
        machine.write("strata.toml", &page.strata(number, &machine.path("data")));
        Node { machine, address: format!("{}1{}:8080", page.network, number + 1), server: None }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts the node, and waits until it listens.
    pub fn start(
        &mut self,
        environment: &[(&'static str, String)],
        node_environment: &[(String, String)],
        more: &[(&str, &str)],
    ) {
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let node_environment = node_environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment: Vec<(&str, &str)> = environment.chain(node_environment).chain(more.iter().copied()).collect();
        self.server = Some(Server::configured(&self.machine, "strata.toml", &environment));
    }

    pub fn process(&self) -> u32 {
        self.server.as_ref().expect("node is running").id()
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        self.server.take().expect("node is running").kill();
    }

    /// Sends SIGSTOP.
    pub fn pause(&self) {
        signal(self.process(), "STOP");
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        signal(self.process(), "CONT");
    }

    /// Sends SIGTERM, waits for the end, and returns the exit code and the log.
    pub fn terminate(&mut self) -> (Option<i32>, String) {
        self.server.take().expect("node is running").stop("-TERM")
    }

    /// Returns the log of the running process.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Server::errors).unwrap_or_default()
    }
}
