"""strata: its own server with default options, over HTTP."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

from peers import answers
from peers.answers import Answer
from peers.load import Wrk
from peers.programs import Command, Server
from peers.questions import CSV, EXACT, JSON, LIMIT, MIDDLE, NESTED, PAGE, PAIRS, PARQUET, SUBSTRING, TOP, Question, Row
from peers.systems.http import HttpSystem

OWNER = "peers@example.org"
FORMATS = {JSON: "format=json&pretty=false", CSV: "format=csv", PARQUET: "format=parquet"}

# All clients have the same network here, so the rate limit of 100 requests per minute would reject them.
UNLIMITED = {"STRATA_LIMITS__PUBLIC_PER_MINUTE": "0"}
NO_RESPONSE_CACHE = {"STRATA_CACHE__RESPONSE_BYTES": "0", "STRATA_CACHE__EXPORT_BYTES": "0"}


class Strata(HttpSystem):
    """The server. An instance without response caches serves the data that the other instance has imported."""

    def __init__(self, wrk: Wrk, program: Path, directory: Path, caches_responses: bool = True) -> None:
        super().__init__(wrk)
        self.name = "strata default" if caches_responses else "strata uncached"
        # strata caches a Parquet export, so that a second one would only copy a file.
        self.exports_again = not caches_responses
        self._program = program
        self.directory = directory
        own = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self._environment = own | UNLIMITED | ({} if caches_responses else NO_RESPONSE_CACHE)
        self._server: Server | None = None

    def prepare(self) -> str:
        return self._run("--version").removeprefix("strata ").strip()

    def load(self, source: Path) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        data = ("--data", str(self.directory / "data"))
        self._run("user", "add", OWNER, "--plan", "scale", *data, text="a long enough password\n")
        self._run("import", str(source), "--name", "Packages", "--owner", OWNER, *data)

    def start(self) -> None:
        log = self.directory / f"{self.name.replace(' ', '-')}.log"

        def ready() -> bool:
            found = re.search(r"listening on http://127\.0\.0\.1:(\d+)", log.read_text())
            self.port = int(found[1]) if found else 0
            return bool(found)

        command: Command = [
            self._program,
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            self.directory / "data",
        ]
        self._server = Server(command, log, ready, self._environment)

    def stop(self) -> None:
        if self._server:
            self._server.stop()

    def serves(self, row: Row) -> bool:
        return True

    def target(self, question: Question) -> str:
        row, texts = question.row, [quote(text) for text in question.texts]
        page = f"limit={LIMIT}&offset={question.offset}"
        if row in (PAGE, MIDDLE):
            query = page
        elif row == EXACT:
            query = f"filter=publisher:{texts[0]}&{page}"
        elif row == NESTED:
            query = f"filter=dependencies.name:{texts[0]}&{page}"
        elif row == SUBSTRING:
            query = f"filter_contains=description:{texts[0]}&count=true"
        elif row == TOP:
            query = f"sort=downloads:desc&{page}"
        elif row == PAIRS:
            query = f"keep_field={','.join(texts)}&dedup=true"
        else:
            query = f"keywords={','.join(texts)}&keywords_mode=and&" + ("count=true" if row.count else page)
        return f"/api/1/packages/active/?{query}&pretty=false"

    def parse(self, question: Question, body: bytes) -> Answer:
        value = json.loads(body)
        if question.row.count:
            return value["count"]
        return answers.from_pairs(value) if question.row == PAIRS else value

    def export(self, row: Row, path: Path) -> None:
        self.download(f"/api/1/packages/active/?{FORMATS[row]}", path)

    def _run(self, *arguments: str, text: str = "") -> str:
        command = [str(self._program), *arguments]
        ran = subprocess.run(command, env=self._environment, input=text, capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ran.stderr}")
        return ran.stdout
