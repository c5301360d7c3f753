//! Certificates of nodes, created by the commands of docs/guides/cluster.md.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use strata_config::ClusterConfig;
use tempfile::TempDir;

use crate::pages::block;

/// An authority and certificates of three nodes, whose addresses end with 11, 12 and 13.
pub struct Certificates {
    directory: TempDir,
    /// The network prefix such as `127.70.3.`, which replaces `10.0.0.` of the page.
    network: String,
}

impl Certificates {
    pub fn make(network: &str) -> Certificates {
        let directory = tempfile::tempdir().expect("failed to create temporary directory");
        let script = block("docs/guides/cluster.md", "certificates").replace("10.0.0.", network);
        let mut command = Command::new("sh");
        command.args(["-e", "-c", &script]).current_dir(directory.path()).stdin(Stdio::null());
        let made = command.output().expect("failed to run sh");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Certificates { directory, network: network.to_owned() }
    }

    /// Returns the network prefix of the nodes.
    pub fn network(&self) -> &str {
        &self.network
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, node: usize, ending: &str) -> String {
        format!("{}1{}.{ending}", self.network, node + 1)
    }

    /// Returns the options of a node (0 to 2) with the paths of its files.
    pub fn options(&self, node: usize) -> [(&'static str, String); 3] {
        let path = |name: &str| self.path(name).display().to_string();
        [
            ("tls_certificate", path(&self.file(node, "pem"))),
            ("tls_key", path(&self.file(node, "key"))),
            ("tls_ca", path("ca.pem")),
        ]
    }

    /// Returns the same options as environment variables.
    pub fn environment(&self, node: usize) -> Vec<(String, String)> {
        let variable = |name: &str| format!("STRATA_CLUSTER__{}", name.to_ascii_uppercase());
        self.options(node).into_iter().map(|(name, path)| (variable(name), path)).collect()
    }

    /// Returns the same options as a section of the configuration.
    pub fn section(&self, node: usize) -> ClusterConfig {
        let lines = self.options(node).map(|(name, path)| format!("{name} = {path:?}\n"));
        toml::from_str(&lines.concat()).expect("failed to parse section")
    }

    pub fn certificate(&self, node: usize) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(&self.file(node, "pem"))).expect("failed to read certificate")
    }

    /// Replaces these files one by one with the files of other certificates.
    pub fn replace(&self, others: &Certificates) {
        let nodes = (0..3).flat_map(|node| ["pem", "key"].map(|ending| self.file(node, ending)));
        for name in nodes.chain(["ca.pem".to_owned()]) {
            std::fs::copy(others.path(&name), self.path(&name)).expect("failed to copy");
        }
    }
}
