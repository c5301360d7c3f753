//! The import, measured in a process of its own, so that its peak of memory is its own too.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use strata_config::Config;
use strata_service::{ImportProgress, ImportRequest, Purpose, Services};
use strata_types::user::Plan;

use super::process::{cpu_seconds, run_self, status};

/// The user whose datasets are imported.
pub const OWNER: &str = "bench@example.org";

/// The cache of a process that only imports.
const CACHE_BYTES: u64 = 64 << 20;

/// What an import took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The dataset that it made.
    pub dataset_id: u64,
    /// Its name in URLs.
    pub name_slug: String,
    /// Entities of its version.
    pub entities: u64,
    /// Wall time.
    pub seconds: f64,
    /// Processor time of all threads, where the system tells: less noisy than wall time on a busy machine.
    pub cpu_seconds: Option<f64>,
    /// The most memory that was resident at once, where the system tells.
    pub peak_bytes: Option<u64>,
    /// Of that, what was resident before the import began.
    pub before_bytes: Option<u64>,
}

impl Report {
    /// The path of the version in URLs.
    pub fn path(&self) -> String {
        format!("/api/{}/{}/active/", self.dataset_id, self.name_slug)
    }
}

/// A configuration whose data lies in `directory`.
pub fn config(directory: &Path, cache_bytes: u64) -> Config {
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.cache.memory_bytes = Some(cache_bytes);
    // What is measured is the work, not that it was done before.
    config.cache.response_bytes = 0;
    config.cache.export_bytes = 0;
    (config.limits.public_per_minute, config.limits.private_per_minute) = (0, 0);
    config
}

/// Arguments that no person gives.
#[derive(clap::Args)]
pub struct Hidden {
    /// The child process that imports
    #[arg(long, num_args = 2, hide = true)]
    import: Option<Vec<PathBuf>>,
    /// What cargo passes to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

impl Hidden {
    /// Whether this is the child process that imports; it has done so then.
    pub fn imported(&self) -> bool {
        if let Some(paths) = &self.import {
            run(paths);
        }
        self.import.is_some()
    }
}

/// Imports `source` into a new data directory, in a child process.
pub fn in_child(source: &Path, data: &Path) -> Report {
    if data.exists() {
        std::fs::remove_dir_all(data).expect("the last run's data can be removed");
    }
    run_self(&["--import".as_ref(), source.as_os_str(), data.as_os_str()])
}

/// The child: imports and prints the report.
fn run(paths: &[PathBuf]) {
    let [source, data] = paths else { panic!("--import takes a source and a data directory") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    let report = runtime.block_on(async {
        let services = Services::open(&config(data, CACHE_BYTES), Purpose::Serve).await.expect("a data directory");
        services.accounts.add_user(OWNER, "not a secret", Plan::Scale, None).await.expect("a user");
        let request = ImportRequest {
            source: source.display().to_string(),
            name: "bench".to_owned(),
            owner_email: OWNER.to_owned(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
            about: strata_types::dataset::About::default(),
        };
        // From here on, the peak counts anew. Where the system refuses, it includes hashing the password (20 MB).
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before_bytes = status("VmRSS:");
        let cpu_before = cpu_seconds();
        let started = Instant::now();
        let imported =
            services.refreshes.import(request, Arc::new(ImportProgress::default())).await.expect("an import");
        Report {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_before.zip(cpu_seconds()).map(|(before, after)| after - before),
            peak_bytes: status("VmHWM:"),
            before_bytes,
            dataset_id: imported.dataset_id.get(),
            name_slug: imported.name_slug,
            entities: imported.entity_count,
        }
    });
    println!("{}", serde_json::to_string(&report).expect("a report is JSON"));
}
