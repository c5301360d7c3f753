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

/// The least limit of a process's control group (version 2) and of those above it. `group` is what Linux shows of the
/// process, `0::/system.slice/strata.service`.
fn cgroup_limit(root: &Path, group: &str) -> Option<u64> {
    let path = group.lines().find_map(|line| line.strip_prefix("0::"))?;
    let directory = root.join(path.trim_start_matches('/'));
    let limits = directory.ancestors().take_while(|directory| directory.starts_with(root)).filter_map(|directory| {
        // `max` is no limit, and the root has no such file.
        fs::read_to_string(directory.join("memory.max")).ok()?.trim().parse().ok()
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
        assert_eq!(cgroup_limit(root.path(), "4:memory:/user\n"), None, "version 1 alone");
    }

    #[test]
    fn the_machine_tells() {
        assert!(available_bytes() > 64 << 20);
    }
}
