//! How much memory the process may use.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// What a machine has that does not tell: little, so that nothing is planned that is not there.
const UNKNOWN_BYTES: u64 = 2 << 30;

/// Where Linux shows control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory that the process may use: those of the machine, or fewer if its control group or one above it has a
/// limit. Asked once.
pub fn available_bytes() -> u64 {
    static AVAILABLE: OnceLock<u64> = OnceLock::new();
    *AVAILABLE.get_or_init(|| {
        let system =
            System::new_with_specifics(RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram()));
        let machine = match system.total_memory() {
            0 => UNKNOWN_BYTES,
            bytes => bytes,
        };
        // The library looks at the root, which is the group of a container. A service has one further below.
        let container = system.cgroup_limits().map_or(machine, |limits| limits.total_memory);
        let group = fs::read_to_string("/proc/self/cgroup").ok();
        let service = group.and_then(|group| cgroup_limit(Path::new(CGROUPS), &group));
        machine.min(container).min(service.unwrap_or(machine))
    })
}

/// Lets the system back memory by small pages alone. Of a huge page, 2 MiB are taken while some bytes are in use, and a
/// busy server would have hundreds of those.
pub fn use_no_huge_pages() {
    // Where that cannot be, the process is larger, and otherwise the same.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// The least limit of a process's control groups and of those above them. `group` is what Linux shows of the process:
/// `0::/system.slice/strata.service` for version 2, `4:memory:/strata` for version 1.
fn cgroup_limit(root: &Path, group: &str) -> Option<u64> {
    let limits = group.lines().flat_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default().trim_start_matches('/');
        let has_memory = controllers.split(',').any(|controller| controller == "memory");
        let (roots, files): (&[&str], &[&str]) = match (controllers, has_memory) {
            // The second place is that of systems that have both versions.
            ("", _) => (&["", "unified"], &["memory.max", "memory.high"]),
            (_, true) => (&["memory"], &["memory.limit_in_bytes"]),
            _ => (&[], &[]),
        };
        roots.iter().filter_map(|below| least_limit(&root.join(below), path, files)).collect::<Vec<u64>>()
    });
    limits.min()
}

/// The least number in these files of a group and of those above it.
fn least_limit(root: &Path, path: &str, files: &[&str]) -> Option<u64> {
    let group = root.join(path);
    let groups = group.ancestors().take_while(|directory| directory.starts_with(root));
    let limits = groups.flat_map(|directory| {
        // `max` is no limit, and a root has no such file.
        files.iter().filter_map(|file| fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok())
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_least_limit_of_a_group_and_those_above_it_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let slice = root.path().join("system.slice");
        let service = slice.join("strata.service");
        fs::create_dir_all(&service).expect("groups");
        let limit = || cgroup_limit(root.path(), "12:cpuset:/\n0::/system.slice/strata.service\n");
        assert_eq!(limit(), None, "groups without limits");
        fs::write(service.join("memory.max"), "max\n").expect("a file");
        assert_eq!(limit(), None);
        fs::write(slice.join("memory.max"), "4294967296\n").expect("a file");
        assert_eq!(limit(), Some(4 * GIB));
        fs::write(service.join("memory.max"), "1073741824\n").expect("a file");
        assert_eq!(limit(), Some(GIB));
        fs::write(slice.join("memory.max"), "536870912\n").expect("a file");
        assert_eq!(limit(), Some(GIB / 2));
        fs::write(service.join("memory.high"), "268435456\n").expect("a file");
        assert_eq!(limit(), Some(GIB / 4), "above it the group is slowed down");
    }

    #[test]
    fn limits_of_version_1_count_too() {
        let root = tempfile::tempdir().expect("a directory");
        let group = root.path().join("memory/user/strata");
        fs::create_dir_all(&group).expect("groups");
        let limit = |line| cgroup_limit(root.path(), line);
        assert_eq!(limit("4:memory:/user/strata\n"), None);
        fs::write(group.join("memory.limit_in_bytes"), "1073741824\n").expect("a file");
        assert_eq!(limit("4:memory:/user/strata\n"), Some(GIB));
        assert_eq!(limit("4:cpu,memory:/user/strata\n0::/\n"), Some(GIB));
        assert_eq!(limit("4:cpu:/user/strata\n0::/\n"), None);
        fs::write(root.path().join("memory/user/memory.limit_in_bytes"), "536870912\n").expect("a file");
        assert_eq!(limit("4:memory:/user/strata\n"), Some(GIB / 2));
        let unified = root.path().join("unified/strata");
        fs::create_dir_all(&unified).expect("groups");
        fs::write(unified.join("memory.max"), "134217728\n").expect("a file");
        assert_eq!(limit("4:memory:/user/strata\n0::/strata\n"), Some(GIB / 8));
    }

    #[test]
    fn the_machine_tells() {
        assert!(available_bytes() > 64 << 20);
    }
}
