"""Programs of other projects, found on the machine or unpacked from Debian packages, and their processes."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

Command = list[str | Path]


class Unavailable(Exception):
    """A system that is not on this machine and cannot be installed; the text contains the reason."""


class Debian:
    """Programs of Debian packages, unpacked into a directory without root privileges and without starting services.

    `apt-get` fetches the packages with a separate package list and checks their signatures. It does not fetch
    dependencies that the machine already has.
    """

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self._state = directory / "apt"

    def program(self, name: str, package: str, folders: tuple[str, ...] = ("usr/bin", "usr/sbin")) -> Path:
        """Returns the path of a program on this machine, or else of the unpacked package."""
        found = shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))
        if found:
            return Path(found)
        unpacked = [path for folder in folders for path in self.root.glob(f"{folder}/{name}")]
        if not unpacked:
            self._unpack(package)
            unpacked = [path for folder in folders for path in self.root.glob(f"{folder}/{name}")]
        if not unpacked:
            raise Unavailable(f"{name}: the package {package} does not contain it")
        return unpacked[-1]

    def environment(self) -> dict[str, str]:
        """Returns the environment in which an unpacked program finds its libraries."""
        folders = sorted({str(library.parent) for library in self.root.glob("usr/lib/*/*.so*")})
        known = [os.environ["LD_LIBRARY_PATH"]] if os.environ.get("LD_LIBRARY_PATH") else []
        return os.environ | {"LD_LIBRARY_PATH": os.pathsep.join(known + folders)}

    def _unpack(self, package: str) -> None:
        if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
            raise Unavailable(f"please install {package} (this machine has no apt-get)")
        lists, archives = self._state / "lists", self._state / "archives"
        for folder in (lists / "partial", archives / "partial", self.root):
            folder.mkdir(parents=True, exist_ok=True)
        options = ["-q", "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Cache={self._state}"]
        options += ["-o", "Debug::NoLocking=true"]
        if os.geteuid() == 0:
            options += ["-o", "APT::Sandbox::User=root"]
        if not any(lists.glob("*Packages*")):
            self._run(["apt-get", *options, "update"])
        wanted = self._run(
            ["apt-get", *options, "install", "--no-install-recommends", "--yes", "--print-uris", package]
        )
        # 'URI' NAME_VERSION_ARCHITECTURE.deb SIZE HASH, one line for each missing package.
        names = re.findall(r"^'[^']+' ([^_\s]+)_\S+\.deb ", wanted, re.MULTILINE)
        self._run(["apt-get", *options, "download", *names], archives)
        for archive in archives.glob("*.deb"):
            self._run(["dpkg-deb", "-x", str(archive), str(self.root)])

    def _run(self, command: list[str], directory: Path | None = None) -> str:
        ran = subprocess.run(command, cwd=directory, capture_output=True, text=True)
        if ran.returncode:
            raise Unavailable(f"{' '.join(command)}: {ran.stderr.strip()}")
        return ran.stdout


def free_port() -> int:
    """Returns an unused port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Server:
    """A running process, which is stopped at the end of the block."""

    def __init__(
        self,
        command: Command,
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        user: int | None = None,
        ends_by: signal.Signals = signal.SIGTERM,
    ) -> None:
        self._log = log
        self._ends_by = ends_by
        with log.open("wb") as output:
            nothing = subprocess.DEVNULL
            self.process = subprocess.Popen(
                command, stdin=nothing, stdout=output, stderr=output, env=environment, user=user, cwd=log.parent
            )
        deadline = time.monotonic() + 120
        while not ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{command[0]} does not start:\n{log.read_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stops the process and waits until it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(self._ends_by)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def listens(port: int) -> Callable[[], bool]:
    """Returns whether a process accepts connections on the port."""

    def ready() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    return ready


def built() -> Path:
    """Returns the path of the release binary, which is built if it is missing or outdated."""
    root = Path(__file__).resolve().parents[2]
    command = ["cargo", "build", "--release", "--locked", "--bin", "strata"]
    if subprocess.run(command, cwd=root).returncode:
        sys.exit("strata could not be built; --strata names a binary")
    return Path(os.environ["CARGO_TARGET_DIR"]) / "release" / "strata"
