"""A temporary PostgreSQL server, from the programs of this machine or of an unpacked Debian package."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from peers.programs import Command, Debian, Server, Unavailable, free_port

# These settings trade safety for speed, in favor of PostgreSQL: no other compared system trades as much.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "2GB",
    "work_mem": "128MB",
    "maintenance_work_mem": "1GB",
    "max_parallel_maintenance_workers": "2",
    "effective_cache_size": "6GB",
    "random_page_cost": "1.1",
    "jit": "off",
    "autovacuum": "off",
}

USER = "peers"


class PostgresServer:
    """The programs, the data directory, and the process. The order of calls is: prepare, create, start, stop."""

    def __init__(self, name: str, debian: Debian) -> None:
        self._debian = debian
        self._server: Server | None = None
        self._user: pwd.struct_passwd | None = None
        self.port = 0
        # In a directory that an account other than root can access.
        self.directory = Path(tempfile.gettempdir()) / f"strata-{name}-postgres-{os.geteuid()}"

    def prepare(self) -> str:
        """Finds or unpacks the programs and returns the version. Raises `Unavailable` if that is impossible."""
        programs = [Path(os.environ.get("STRATA_TEST_POSTGRES_BIN", "/nowhere"))]
        programs += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        programs += sorted(self._debian.root.glob("usr/lib/postgresql/*/bin"), reverse=True)
        found = next((folder for folder in programs if (folder / "initdb").exists()), None)
        if not found:
            path = self._debian.program("initdb", "postgresql", ("usr/lib/postgresql/*/bin",))
            found = path.resolve().parent
        self._programs = found
        if os.geteuid() == 0:
            # The server refuses to run as root.
            names = {account.pw_name: account for account in pwd.getpwall()}
            self._user = names.get("postgres") or names.get("nobody")
            if not self._user:
                raise Unavailable("postgres: the server needs an unprivileged account, such as postgres")
        return self.run("postgres", "--version").split()[2]

    def create(self) -> None:
        """Creates an empty data directory. Deletes an existing one."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(mode=0o700)
        if self._user:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)
        options = ["--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-sync"]
        self.run("initdb", *options, "--pgdata", str(self.directory / "data"))

    def start(self) -> None:
        """Starts the server on a free port and waits until it accepts connections."""
        self.port = free_port()
        options = [text for name, value in SETTINGS.items() for text in ("-c", f"{name}={value}")]
        command: Command = [self._programs / "postgres", "-D", self.directory / "data", "-p", str(self.port), *options]
        user = self._user.pw_uid if self._user else None
        check: Command = [self._programs / "pg_isready", "--quiet", "--host=127.0.0.1", f"--port={self.port}"]

        def ready() -> bool:
            return subprocess.run(check, env=self._environment()).returncode == 0

        self._server = Server(command, self.directory / "log", ready, self._environment(), user, signal.SIGINT)

    def stop(self) -> None:
        """Stops the server if it was started."""
        if self._server:
            self._server.stop()

    def url(self) -> str:
        """Returns the URL of the database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *arguments: str, source: Path = Path(os.devnull)) -> str:
        """Runs a program with a file as its standard input. Returns its standard output."""
        command: Command = [self._programs / program, *arguments]
        user = self._user.pw_uid if self._user else None
        with source.open("rb") as file:
            ran = subprocess.run(
                command, env=self._environment(), user=user, cwd="/", stdin=file, capture_output=True, text=True
            )
        if ran.returncode:
            raise RuntimeError(f"{program}: {ran.stderr}")
        return ran.stdout

    def _environment(self) -> dict[str, str]:
        return self._debian.environment() | {"LC_ALL": "C"}
