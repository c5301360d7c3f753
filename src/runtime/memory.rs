//! The memory that is available to the process.
//!
//! Problem: the system ends a process that exceeds the limit of its control group, and the limit can be far below the
//! memory of the machine. For example, on a machine with 64 GiB, a systemd service with `MemoryMax=8G` has 8 GiB.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// The assumed memory if the real size is unknown: little, so that the planned memory use does not exceed it.
const FALLBACK_MEMORY_BYTES: u64 = 2 << 30;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// Returns the memory of the machine in bytes, or less if a control group has a lower limit. The result is cached.
pub fn available_memory_bytes() -> u64 {
    static AVAILABLE: OnceLock<u64> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let system =
            System::new_with_specifics(RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram()));
        let machine = match system.total_memory() {
            0 => FALLBACK_MEMORY_BYTES,
            bytes => bytes,
        };
        // sysinfo reads the root control group, which is the group of a container. A systemd service has a group below
        // it.
        let container = system.cgroup_limits().map_or(machine, |limits| limits.total_memory);
        let group = fs::read_to_string("/proc/self/cgroup").ok();
        let service = group.and_then(|group| cgroup_memory_limit(Path::new(CGROUP_ROOT), &group));
        machine.min(container).min(service.unwrap_or(machine))
    })
}

/// Disables huge pages, because each one occupies 2 MiB while only some of its bytes are in use.
pub fn disable_huge_pages() {
    // If huge pages cannot be disabled, the process only needs more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Returns the lowest limit of a process's control groups and their ancestors. `cgroup_file` is the content of
/// `/proc/self/cgroup`: `0::/system.slice/strata.service` for version 2, `4:memory:/strata` for version 1.
fn cgroup_memory_limit(root: &Path, cgroup_file: &str) -> Option<u64> {
    let limits = cgroup_file.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default().trim_start_matches('/');
        let has_memory = controllers.split(',').any(|controller| controller == "memory");
        let (roots, files): (&[&str], &[&str]) = match (controllers, has_memory) {
            // On systems with both versions of control groups, version 2 has its root at `unified`.
            ("", _) => (&["", "unified"], &["memory.max", "memory.high"]),
            (_, true) => (&["memory"], &["memory.limit_in_bytes"]),
            _ => (&[], &[]),
        };
        roots.iter().filter_map(|below| min_cgroup_limit(&root.join(below), path, files)).collect::<Vec<u64>>()
    });
    limits.min()
}

fn min_cgroup_limit(root: &Path, path: &str, files: &[&str]) -> Option<u64> {
    let group = root.join(path);
    let groups = group.ancestors().take_while(|directory| directory.starts_with(root));
    let limits = groups.flat_map(|directory| {
        // The value `max` means that a control group has no limit. The root group has no file with a limit.
        files.iter().filter_map(|file| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok())
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn lowest_limit_of_group_and_ancestors_applies() {
        let root = tempfile::tempdir().expect("failed to create directory");
        let slice = root.path().join("system.slice");
        let service = slice.join("strata.service");
        fs::create_dir_all(&service).expect("failed to create groups");
        let limit = || cgroup_memory_limit(root.path(), "12:cpuset:/\n0::/system.slice/strata.service\n");
        assert_eq!(limit(), None, "groups without limits");
        fs::write(service.join("memory.max"), "max\n").expect("failed to write file");
        assert_eq!(limit(), None);
        fs::write(slice.join("memory.max"), "4294967296\n").expect("failed to write file");
        assert_eq!(limit(), Some(4 * GIB));
        fs::write(service.join("memory.max"), "1073741824\n").expect("failed to write file");
        assert_eq!(limit(), Some(GIB));
        fs::write(slice.join("memory.max"), "536870912\n").expect("failed to write file");
        assert_eq!(limit(), Some(GIB / 2));
        fs::write(service.join("memory.high"), "268435456\n").expect("failed to write file");
        assert_eq!(limit(), Some(GIB / 4), "the group is throttled above `memory.high`");
    }

    #[test]
    fn cgroup_version_1_limits_apply() {
        let root = tempfile::tempdir().expect("failed to create directory");
        let group = root.path().join("memory/user/strata");
        fs::create_dir_all(&group).expect("failed to create groups");
        let limit = |line| cgroup_memory_limit(root.path(), line);
        assert_eq!(limit("4:memory:/user/strata\n"), None);
        fs::write(group.join("memory.limit_in_bytes"), "1073741824\n").expect("failed to write file");
        assert_eq!(limit("4:memory:/user/strata\n"), Some(GIB));
        assert_eq!(limit("4:cpu,memory:/user/strata\n0::/\n"), Some(GIB));
        assert_eq!(limit("4:cpu:/user/strata\n0::/\n"), None);
        fs::write(root.path().join("memory/user/memory.limit_in_bytes"), "536870912\n").expect("failed to write file");
        assert_eq!(limit("4:memory:/user/strata\n"), Some(GIB / 2));
        let unified = root.path().join("unified/strata");
        fs::create_dir_all(&unified).expect("failed to create groups");
        fs::write(unified.join("memory.max"), "134217728\n").expect("failed to write file");
        assert_eq!(limit("4:memory:/user/strata\n0::/strata\n"), Some(GIB / 8));
    }

    #[test]
    fn machine_memory_is_detected() {
        assert!(available_memory_bytes() > 64 << 20);
    }
}
