//! The configuration in docs/guides/cluster.md with the addresses of a test.

use std::path::Path;

use strata_testing::pages;

const PAGE: &str = "docs/guides/cluster.md";

/// The values that replace the addresses and URLs in the documentation.
pub struct GuideConfig {
    /// For example `127.70.3.`, which replaces `10.0.0.`.
    pub network: String,
    pub catalog: String,
    pub redis: String,
}

impl GuideConfig {
    /// Returns `strata.toml` of a node. Nodes are numbered from 0.
    pub fn strata(&self, node: usize, data: &Path) -> String {
        let text = block("strata").replace("10.0.0.", &self.network);
        let tasks = format!("{}1{}:8081", self.network, node + 1);
        let text = replace_documented(&text, &format!("{}11:8081", self.network), &tasks);
        let data = data.display().to_string();
        [
            ("0.0.0.0:8080", format!("{}1{}:8080", self.network, node + 1)),
            ("/var/lib/strata", data),
            ("postgres://strata:secret@db.internal/strata?sslmode=verify-full", self.catalog.clone()),
            ("rediss://strata:secret@redis.internal:6379/0", self.redis.clone()),
        ]
        .into_iter()
        .fold(text, |text, (shown, real)| replace_documented(&text, shown, &real))
    }

    /// Returns `haproxy.cfg`. The source address is the one that the nodes trust.
    pub fn haproxy(&self) -> String {
        let text = block("haproxy").replace("10.0.0.", &self.network);
        // A test has few clients, and possibly few file descriptors.
        let text = replace_documented(&text, "maxconn 10000\n", "maxconn 500\n");
        let text = replace_documented(&text, "bind :80\n", &format!("bind {}2:8000\n", self.network));
        replace_documented(&text, "defaults\n", &format!("defaults\n    source {}2\n", self.network))
    }
}

/// Returns a code block of the page.
pub fn block(name: &str) -> String {
    pages::block(PAGE, name)
}

#[track_caller]
fn replace_documented(text: &str, shown: &str, real: &str) -> String {
    assert!(text.contains(shown), "{PAGE} no longer shows {shown:?}");
    text.replace(shown, real)
}
