//! The configuration that docs/guides/cluster.md shows, for the addresses of a test.

use std::path::Path;

use strata_testing::pages;

const PAGE: &str = "docs/guides/cluster.md";

/// Where the parts are that the page names otherwise.
pub struct Page {
    /// As `127.70.3.`, for `10.0.0.` of the page.
    pub network: String,
    /// The URL of the catalog.
    pub catalog: String,
    /// The URL of Redis.
    pub redis: String,
}

impl Page {
    /// `strata.toml` of a node, from 0.
    pub fn strata(&self, node: usize, data: &Path) -> String {
        let text = block("strata").replace("10.0.0.", &self.network);
        let tasks = format!("{}1{}:8081", self.network, node + 1);
        let text = replaced(&text, &format!("{}11:8081", self.network), &tasks);
        let data = data.display().to_string();
        [
            ("0.0.0.0:8080", format!("{}1{}:8080", self.network, node + 1)),
            ("/var/lib/strata", data),
            ("postgres://strata:secret@db.internal/strata?sslmode=verify-full", self.catalog.clone()),
            ("rediss://strata:secret@redis.internal:6379/0", self.redis.clone()),
        ]
        .into_iter()
        .fold(text, |text, (shown, real)| replaced(&text, shown, &real))
    }

    /// `haproxy.cfg`. Its own address is the one that the nodes trust.
    pub fn haproxy(&self) -> String {
        let text = block("haproxy").replace("10.0.0.", &self.network);
        // A test has few clients, and perhaps few file descriptors.
        let text = replaced(&text, "maxconn 10000\n", "maxconn 500\n");
        let text = replaced(&text, "bind :80\n", &format!("bind {}2:8000\n", self.network));
        replaced(&text, "defaults\n", &format!("defaults\n    source {}2\n", self.network))
    }
}

/// A block of the page, without the marks of code.
pub fn block(name: &str) -> String {
    pages::block(PAGE, name)
}

#[track_caller]
fn replaced(text: &str, shown: &str, real: &str) -> String {
    assert!(text.contains(shown), "{PAGE} no longer shows {shown:?}");
    text.replace(shown, real)
}
