"""strata: imports of several versions, and a server whose responses are measured."""

import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from peers.programs import Command, Server

OWNER = "storage@example.org"

# All requests come from the same network, so the rate limits would reject them. Cached responses and comparisons would
# hide the cost.
SETTINGS = {
    "STRATA_LIMITS__PUBLIC_PER_MINUTE": "0",
    "STRATA_CACHE__RESPONSE_BYTES": "0",
    "STRATA_CACHE__DIFF_BYTES": "0",
}
TIMEOUT_S = 300


@dataclass(frozen=True)
class Changes:
    """The changes between two versions: seconds until the first byte and until the last one, and the bytes."""

    first_byte: float
    complete: float
    size: int


def entities_of(body: bytes) -> object:
    """Returns the entities of a response, or the number in the response to a count, which also names the dataset."""
    found = json.loads(body)
    return found["count"] if isinstance(found, dict) else found


class Strata:
    """A binary and its data directory."""

    def __init__(self, program: Path, directory: Path) -> None:
        self._program = program
        self.directory = directory
        own = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self._environment = own | SETTINGS
        self._data = directory / "data"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command: Command = [program, "user", "add", OWNER, "--plan", "scale", "--data", self._data]
        subprocess.run(command, env=self._environment, input=b"a long enough password\n", stdout=sys.stderr, check=True)
        self._server: Server | None = None
        self.port = 0

    def import_version(self, source: Path, name: str) -> float:
        """Imports a file as the next version of a dataset. Returns the seconds of processor time."""
        command: Command = [self._program, "import", source, "--name", name, "--owner", OWNER, "--data", self._data]
        process = subprocess.Popen(command, env=self._environment, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"the import failed with exit code {process.returncode}")
        return usage.ru_utime + usage.ru_stime

    def stored_bytes(self) -> int:
        """Returns the size of all version files."""
        return sum(path.stat().st_size for path in (self._data / "store" / "versions").iterdir())

    def start(self) -> None:
        """Starts the server."""
        log = self.directory / "log"

        def ready() -> bool:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())
            self.port = int(found[1]) if found else 0
            return bool(found)

        command: Command = [self._program, "serve", "--listen", "127.0.0.1:0", "--data", self._data]
        self._server = Server(command, log, ready, self._environment)

    def stop(self) -> None:
        """Stops the server if it was started."""
        if self._server:
            self._server.stop()

    def get(self, target: str) -> bytes:
        """Returns the body of a successful response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request("GET", target)
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"{target}: status {response.status}: {body[:300].decode(errors='replace')}")
        return body

    def compare(self, targets: list[tuple[str, str]], repeats: int) -> str:
        """Returns how many times as long the first targets take as the second ones, whose responses must be equal."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for repeat in range(repeats):
            for pair in targets:
                bodies = []
                for durations, target in zip(seconds, pair, strict=True):
                    began = time.perf_counter()
                    bodies.append(self.get(target))
                    # The first responses warm the caches.
                    if repeat:
                        durations.append(time.perf_counter() - began)
                if entities_of(bodies[0]) != entities_of(bodies[1]):
                    raise RuntimeError(f"the responses to {pair[0]} and {pair[1]} differ")
        return f"{statistics.median(seconds[0]) / statistics.median(seconds[1]):.2f}"

    def changes(self, target: str) -> Changes:
        """Measures a stream of changes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            began = time.perf_counter()
            connection.request("GET", target)
            response = connection.getresponse()
            size = len(response.read(1))
            first_byte = time.perf_counter() - began
            size += len(response.read())
            complete = time.perf_counter() - began
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"{target}: status {response.status}")
        return Changes(first_byte, complete, size)

    def sync(self, target: str, file: Path) -> int:
        """Runs `strata sync`. Returns the bytes of the bodies that the server has sent."""
        before = self._sent_bytes()
        command: Command = [self._program, "sync", f"http://127.0.0.1:{self.port}{target}", file]
        subprocess.run(command, env=self._environment, stdout=sys.stderr, check=True)
        return self._sent_bytes() - before

    def _sent_bytes(self) -> int:
        text = self.get("/metrics").decode()
        routes = re.findall(r'^strata_http_sent_bytes_total\{route="([^"]+)"\} (\S+)$', text, re.MULTILINE)
        return sum(int(float(sent)) for route, sent in routes if "metrics" not in route)
