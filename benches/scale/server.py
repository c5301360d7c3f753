"""strata: an import, and a server whose first request finds nothing in memory."""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from peers.programs import Command, Server

from scale.rows import Different, Request

OWNER = "scale@example.org"

# All requests come from the same network, so the rate limit of 100 requests per minute would reject them.
UNLIMITED = {"STRATA_LIMITS__PUBLIC_PER_MINUTE": "0"}

COUNTERS = ("strata_store_bytes_total", "strata_store_requests_total")
TIMEOUT_S = 300


@dataclass(frozen=True)
class Cost:
    """The cost of a request. PostgreSQL does not report the bytes and requests."""

    milliseconds: float
    store_bytes: int | None = None
    store_requests: int | None = None


@dataclass(frozen=True)
class ImportCost:
    """The cost of an import, and the size of the version file."""

    seconds: float
    processor_seconds: float
    peak_bytes: int
    file_bytes: int


def drop_cached_pages(directory: Path) -> None:
    """Removes the files below a directory from the operating system's page cache. Needs no root privileges."""
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            try:
                # The operating system only drops pages that are already on the disk.
                os.fdatasync(file)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


class Strata:
    """A binary and its data directory."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self.directory = directory
        own = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self._environment = own | UNLIMITED
        self._data = directory / "data"
        # Written when the import is complete.
        self._record = directory / "import.json"
        self._server: Server | None = None
        self._connection: http.client.HTTPConnection | None = None

    def is_loaded(self) -> bool:
        """Returns whether the directory contains the data of an earlier run."""
        return self._record.exists()

    def load(self, source: Path) -> ImportCost:
        """Imports a file into an empty directory, or returns the cost of the earlier import of a kept directory."""
        if self.is_loaded():
            return ImportCost(**json.loads(self._record.read_text()))
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        data = ["--data", self._data]
        command: Command = [self._program, "user", "add", OWNER, "--plan", "scale", *data]
        subprocess.run(command, env=self._environment, input=b"a long enough password\n", stdout=sys.stderr, check=True)
        command = [self._program, "import", source, "--name", "Packages", "--owner", OWNER, *data]
        began = time.perf_counter()
        process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"the import failed with exit code {process.returncode}")
        files = [path.stat().st_size for path in (self._data / "store" / "versions").iterdir()]
        # Linux counts the peak in KiB.
        cost = ImportCost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, sum(files))
        self._record.write_text(json.dumps(vars(cost)))
        return cost

    def start(self) -> None:
        """Starts a new process. No page of its files is in the page cache."""
        drop_cached_pages(self._data)
        log = self.directory / "log"
        port = 0

        def ready() -> bool:
            nonlocal port
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())
            port = int(found[1]) if found else 0
            return bool(found)

        command: Command = [self._program, "serve", "--listen", "127.0.0.1:0", "--data", self._data]
        self._server = Server(command, log, ready, self._environment)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)

    def stop(self) -> None:
        """Stops the process if it was started."""
        if self._connection:
            self._connection.close()
        if self._server:
            self._server.stop()

    def ask(self, request: Request) -> Cost:
        """Measures a request and checks its response."""
        before = self._counters()
        began = time.perf_counter()
        body = self._get(f"/api/1/packages/active/?{request.query}&pretty=false")
        milliseconds = (time.perf_counter() - began) * 1e3
        store_bytes, store_requests = (new - old for new, old in zip(self._counters(), before))
        request.check(body)
        return Cost(milliseconds, store_bytes, store_requests)

    def _counters(self) -> list[int]:
        text = self._get("/metrics").decode()
        found = (re.search(rf"^{name} (\S+)$", text, re.MULTILINE) for name in COUNTERS)
        # A counter is missing until its first increase.
        return [int(float(match[1])) if match else 0 for match in found]

    def _get(self, target: str) -> bytes:
        assert self._connection
        self._connection.request("GET", target)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise Different(f"{target}: status {response.status}: {body[:500].decode(errors='replace')}")
        return body
