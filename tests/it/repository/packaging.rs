//! The Debian package: its build command, its files, its systemd unit, and the installed binary.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use strata_testing::machine::{Machine, succeeded};

fn run(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    // The test binary is large, and the package is deleted after the test.
    command.args(arguments).env("DEB_COMPRESSION", "none");
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Returns whether the `SystemCallFilter=` lines of the unit allow a system call. Later lines add to earlier ones, or
/// remove from them if they begin with `~`.
fn allows_system_call(unit: &str, call: &str) -> bool {
    fn contains(name: &str, call: &str) -> bool {
        if !name.starts_with('@') {
            return name == call;
        }
        let group = succeeded(&run("systemd-analyze", &["syscall-filter", name]));
        let members = group.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        members.into_iter().any(|member| contains(member, call))
    }
    let mut is_allowed = false;
    for names in unit.lines().filter_map(|line| line.strip_prefix("SystemCallFilter=")) {
        let (names, adds) = names.strip_prefix('~').map_or((names, true), |names| (names, false));
        if names.split(' ').any(|name| contains(name, call)) {
            is_allowed = adds;
        }
    }
    is_allowed
}

/// Without setpriority, long work would compete with small requests.
#[test]
fn unit_allows_threads_to_lower_their_priority() {
    let unit = include_str!("../../../packaging/strata.service");
    assert!(allows_system_call(unit, "getpriority"));
    assert!(allows_system_call(unit, "setpriority"));
    for denied in ["setrlimit", "setuid", "mount"] {
        assert!(!allows_system_call(unit, denied), "{denied}");
    }
}

#[test]
fn package_installs_working_service() {
    let machine = Machine::new();
    let path = |name: &str| machine.path(name).display().to_string();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/build-deb");
    let package = succeeded(&run(script, &[env!("CARGO_BIN_EXE_strata"), &path("")]));
    let package = package.trim();
    let fields = succeeded(&run("dpkg-deb", &["--field", package, "Package", "Version", "Depends"]));
    assert!(fields.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"), "\n")), "{fields}");
    assert!(fields.contains("Depends: ca-certificates, "), "without them https works nowhere: {fields}");
    let image = include_str!("../../../packaging/Containerfile");
    assert!(image.contains("apt-get install --yes --no-install-recommends ca-certificates"), "{image}");

    let root = path("root");
    succeeded(&run("dpkg-deb", &["--extract", package, &root]));
    for (name, mode) in [
        ("usr/bin/strata", 0o755),
        ("etc/strata/strata.toml", 0o644),
        ("usr/lib/systemd/system/strata.service", 0o644),
        ("usr/lib/sysusers.d/strata.conf", 0o644),
        ("usr/share/man/man1/strata-serve.1.gz", 0o644),
        ("usr/share/bash-completion/completions/strata", 0o644),
        ("usr/share/doc/strata/reference/configuration.md", 0o644),
    ] {
        let metadata = Path::new(&root).join(name).metadata().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(metadata.permissions().mode() & 0o777, mode, "{name}");
    }
    // The units that the service depends on, as on any system.
    let units = format!("{root}/usr/lib/systemd/system");
    for target in ["sysinit", "basic", "shutdown", "multi-user", "network-online"] {
        std::fs::write(format!("{units}/{target}.target"), "[Unit]\nDescription=Of the system\n").expect("written");
    }
    for slice in ["system", "-"] {
        std::fs::write(format!("{units}/{slice}.slice"), "[Unit]\nDescription=Of the system\n").expect("written");
    }
    let verified = run("systemd-analyze", &["verify", "--man=no", &format!("--root={root}"), "strata.service"]);
    let message = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && message.is_empty(), "{message}");

    // The installed binary accepts the installed configuration, whose data directory is the packaged one.
    let installed = format!("{root}/usr/bin/strata");
    let configuration = format!("{root}/etc/strata/strata.toml");
    let refused = run(&installed, &["check", "--config", &configuration, "--data", &path("nothing")]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("there is no metadata database"), "{message}");
    let configured = std::fs::read_to_string(&configuration).expect("the configuration");
    assert!(configured.contains("directory = \"/var/lib/strata\""), "{configured}");
}
