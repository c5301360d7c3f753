"""nginx: a static file for each row, with the bytes of strata's answer to the first question of the row."""

import os
import subprocess
from pathlib import Path

from peers.answers import Answer
from peers.load import Wrk
from peers.programs import Command, Debian, Server, free_port, listens
from peers.questions import Question, Row
from peers.systems.http import HttpSystem

CONFIGURATION = """
daemon off;
worker_processes {workers};
pid {directory}/nginx.pid;
error_log stderr warn;
{user}
events {{ worker_connections 1024; }}
http {{
    access_log off;
    default_type application/json;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    open_file_cache max=100;
    client_body_temp_path {directory}/temp; proxy_temp_path {directory}/temp; fastcgi_temp_path {directory}/temp;
    uwsgi_temp_path {directory}/temp; scgi_temp_path {directory}/temp;
    server {{ listen 127.0.0.1:{port}; root {directory}/files; }}
}}
"""


class Nginx(HttpSystem):
    """The static file server."""

    name = "static file"

    def __init__(self, wrk: Wrk, debian: Debian, directory: Path) -> None:
        super().__init__(wrk)
        self._debian = debian
        self.directory = directory
        self._server: Server | None = None

    def prepare(self) -> str:
        self._program = self._debian.program("nginx", "nginx")
        ran = subprocess.run([self._program, "-v"], env=self._debian.environment(), capture_output=True, text=True)
        return ran.stderr.rpartition("/")[2].strip()

    def put(self, name: str) -> Path:
        """Returns the path of the file that is served under a name."""
        files = self.directory / "files"
        files.mkdir(parents=True, exist_ok=True)
        return files / name

    def start(self) -> None:
        self.port = free_port()
        self.put("small").write_text("{}")
        configuration = self.directory / "nginx.conf"
        user = "user root;" if os.geteuid() == 0 else ""
        configuration.write_text(
            CONFIGURATION.format(
                directory=self.directory, port=self.port, user=user, workers=len(os.sched_getaffinity(0))
            )
        )
        command: Command = [self._program, "-p", self.directory, "-e", "stderr", "-c", configuration]
        self._server = Server(command, self.directory / "log", listens(self.port), self._debian.environment())

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def serves(self, row: Row) -> bool:
        return (self.directory / "files" / row.key).exists()

    def target(self, question: Question) -> str:
        return f"/{question.row.key}"

    def parse(self, question: Question, body: bytes) -> Answer:
        raise NotImplementedError("a copy of an answer proves nothing")

    def export(self, row: Row, path: Path) -> None:
        self.download(f"/{row.key}", path)

    def ceiling(self, connections: int, seconds: float) -> float:
        """Returns the requests per second for a file of two bytes, which server and load generator reach together."""
        measured = self._wrk.run(self.port, ["/small"], True, connections, seconds)
        return measured["requests"] / measured["seconds"]
