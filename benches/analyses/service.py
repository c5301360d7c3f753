"""strata as a process with the data, and the metrics that it reports."""

import os
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

from peers.programs import Command, Server

OWNER = "analyses@example.org"

# The proxy identifies the clients. No client is rate limited, so that all requests can be counted.
OPTIONS = {"STRATA_SERVER__TRUSTED_PROXIES": "127.0.0.1", "STRATA_LIMITS__PUBLIC_PER_MINUTE": "1000000"}
COUNTED = re.compile(r'^strata_limiter_decisions_total\{bucket="public",decision="allowed"\} (\S+)$', re.MULTILINE)


class Strata:
    """A binary and its data directory."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self._directory = directory
        own = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self._environment = own | OPTIONS
        self._server: Server | None = None
        self.port = 0

    def version(self) -> str:
        """Returns the version that the binary reports."""
        return self._run("--version").strip()

    def load(self, datasets: dict[str, Path]) -> None:
        """Imports datasets by name into an empty directory. Their IDs start at 1."""
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        data = ("--data", str(self._directory / "data"))
        self._run("user", "add", OWNER, "--plan", "scale", *data, text="a long enough password\n")
        for name, source in datasets.items():
            self._run("import", str(source), "--name", name, "--owner", OWNER, *data)

    def start(self) -> None:
        """Starts the server on a free port."""
        log = self._directory / "log"

        def ready() -> bool:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())
            self.port = int(found[1]) if found else 0
            return bool(found)

        command: Command = [self._program, "serve", "--listen", "127.0.0.1:0", "--data", self._directory / "data"]
        self._server = Server(command, log, ready, self._environment)

    def stop(self) -> None:
        """Stops the server and deletes the data."""
        if self._server:
            self._server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def counted(self) -> int:
        """Returns the number of requests that have counted toward the rate limit."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            found = COUNTED.search(answer.read().decode())
        return int(float(found[1])) if found else 0

    def _run(self, *arguments: str, text: str = "") -> str:
        command = [str(self._program), *arguments]
        ran = subprocess.run(command, env=self._environment, input=text, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ran.stderr}")
        return ran.stdout
