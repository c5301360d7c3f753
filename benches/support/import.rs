//! A measured import in a child process, so that its peak memory can be measured separately.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use strata_config::Config;
use strata_service::{ImportRequest, ProcessPurpose, RefreshCounters, Services};
use strata_types::user::UserPlan;

use super::process::{cpu_seconds, run_self, status};

/// The email address of the owner of the imported datasets.
pub const OWNER: &str = "bench@example.org";

/// The cache size of the importing process, in bytes.
const CACHE_BYTES: u64 = 64 << 20;

/// The measurement of one import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImportReport {
    pub dataset_id: u64,
    pub name_slug: String,
    /// The number of entities in the version.
    pub entities: u64,
    pub seconds: f64,
    /// The processor time of all threads, if the system reports it. On a busy machine, it is more precise than
    /// wall-clock time.
    pub cpu_seconds: Option<f64>,
    /// The peak resident memory, if the system reports it.
    pub peak_bytes: Option<u64>,
    /// The resident memory before the import.
    pub before_bytes: Option<u64>,
}

impl ImportReport {
    /// Returns the URL path of the version.
    pub fn path(&self) -> String {
        format!("/api/{}/{}/active/", self.dataset_id, self.name_slug)
    }
}

/// Returns a configuration with the data directory `directory`.
pub fn config(directory: &Path, cache_bytes: u64) -> Config {
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.cache.memory_bytes = Some(cache_bytes);
    // Responses are not cached, so that each request does its work.
    config.cache.response_bytes = 0;
    config.cache.export_bytes = 0;
    config.limits.public_per_minute = 0;
    config.limits.private_per_minute = 0;
    config
}

/// Arguments that only other programs pass.
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
    /// Returns true if this is the importing child process, after it has imported the source.
    pub fn imported(&self) -> bool {
        if let Some(paths) = &self.import {
            run(paths);
        }
        self.import.is_some()
    }
}

/// Imports `source` into a new data directory in a child process.
pub fn in_child(source: &Path, data: &Path) -> ImportReport {
    if data.exists() {
        std::fs::remove_dir_all(data).expect("failed to remove the data of the last run");
    }
    run_self(&["--import".as_ref(), source.as_os_str(), data.as_os_str()])
}

/// Imports in the child process and prints the report.
fn run(paths: &[PathBuf]) {
    let [source, data] = paths else { panic!("--import takes a source and a data directory") };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("failed to start the threads");
    let report = runtime.block_on(async {
        let services = Services::open(&config(data, CACHE_BYTES), ProcessPurpose::Serve)
            .await
            .expect("failed to open the data directory");
        services.accounts.add_user(OWNER, "not a secret", UserPlan::Scale, None).await.expect("failed to add a user");
        let request = ImportRequest {
            source: source.display().to_string(),
            name: "bench".to_owned(),
            owner_email: OWNER.to_owned(),
            private: false,
            format: None,
            records_path: None,
            publish_query: false,
            infer_types: false,
            about: strata_types::dataset::DatasetMetadata::default(),
        };
        // This resets the peak memory. If the system refuses, the peak includes hashing the password (20 MB).
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let before_bytes = status("VmRSS:");
        let cpu_before = cpu_seconds();
        let started = Instant::now();
        let imported =
            services.refreshes.import(request, Arc::new(RefreshCounters::default())).await.expect("failed to import");
        ImportReport {
            seconds: started.elapsed().as_secs_f64(),
            cpu_seconds: cpu_before.zip(cpu_seconds()).map(|(before, after)| after - before),
            peak_bytes: status("VmHWM:"),
            before_bytes,
            dataset_id: imported.dataset_id.get(),
            name_slug: imported.name_slug,
            entities: imported.entity_count,
        }
    });
    println!("{}", serde_json::to_string(&report).expect("failed to parse the report"));
}
