"""Base class of the systems that answer over HTTP."""

import subprocess
import urllib.request
from pathlib import Path

from peers.answers import Answer
from peers.load import Load, Wrk, warm_up
from peers.programs import Command
from peers.questions import Question, Supply
from peers.systems.system import System


class HttpSystem(System):
    """A system that answers GET requests on a port of the loopback interface."""

    def __init__(self, wrk: Wrk) -> None:
        self._wrk = wrk
        self.port = 0

    def target(self, question: Question) -> str:
        """Returns the path and the query of a question."""
        raise NotImplementedError

    def parse(self, question: Question, body: bytes) -> Answer:
        """Returns the answer in a body."""
        raise NotImplementedError

    def get(self, target: str) -> bytes:
        """Returns the body of a GET request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{target}", timeout=300) as response:
            return response.read()

    def answer(self, question: Question) -> Answer:
        return self.parse(question, self.get(self.target(question)))

    def measure(self, supply: Supply, connections: int, seconds: float) -> Load:
        warm_up(lambda question: self.get(self.target(question)), supply)
        return self._wrk.measure(self.port, self.target, supply, connections, seconds)

    def download(self, target: str, path: Path) -> None:
        """Fetches a large answer into a file."""
        command: Command = [
            "curl",
            "--silent",
            "--show-error",
            "--fail",
            "--max-time",
            "1800",
            "--output",
            path,
        ]
        subprocess.run([*command, f"http://127.0.0.1:{self.port}{target}"], check=True)
