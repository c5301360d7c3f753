//! One server of the service.

use strata_testing::machine::{Machine, Server};

use super::page::Page;
use super::signal;

/// A server with a data directory of its own, whether it runs or not.
pub struct Node {
    machine: Machine,
    address: String,
    server: Option<Server>,
}

impl Node {
    pub fn new(page: &Page, number: usize) -> Node {
        let machine = Machine::new();
        machine.write("strata.toml", &page.strata(number, &machine.path("data")));
        Node { machine, address: format!("{}1{}:8080", page.network, number + 1), server: None }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Starts it, and waits until it listens.
    pub fn start(&mut self, environment: &[(&'static str, String)], own: &[(String, String)], more: &[(&str, &str)]) {
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        let own = own.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment: Vec<(&str, &str)> = environment.chain(own).chain(more.iter().copied()).collect();
        self.server = Some(Server::configured(&self.machine, "strata.toml", &environment));
    }

    pub fn process(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    /// SIGSTOP: it does nothing more, and nobody is told.
    pub fn pause(&self) {
        signal(self.process(), "STOP");
    }

    /// SIGCONT.
    pub fn go_on(&self) {
        signal(self.process(), "CONT");
    }

    /// SIGTERM; waits for its end, and tells its exit code and what it wrote to its log.
    pub fn terminate(&mut self) -> (Option<i32>, String) {
        self.server.take().expect("it runs").stop("-TERM")
    }

    /// What the running process has written to its log.
    pub fn log(&self) -> String {
        self.server.as_ref().map(Server::errors).unwrap_or_default()
    }
}
