"""The releases of a public package: one entity for each feature of a web browser."""

import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peers.programs import Unavailable

PACKAGE = "@mdn/browser-compat-data"


class Releases:
    """The newest releases of the package, as files of JSON lines."""

    def __init__(self, directory: Path, count: int) -> None:
        self._directory = directory / "releases"
        self._directory.mkdir(parents=True, exist_ok=True)
        numbers = json.loads(self._npm("view", PACKAGE, "versions", "--json"))
        self.numbers = [number for number in numbers if re.fullmatch(r"[\d.]+", number)][-count:]

    def path(self, number: str) -> Path:
        """Returns the entities of a release. Downloads the release the first time."""
        path = self._directory / f"{number}.jsonl"
        if not path.exists():
            archive = self._directory / self._npm("pack", "--silent", f"{PACKAGE}@{number}").strip().splitlines()[-1]
            with tarfile.open(archive) as files:
                data = files.extractfile("package/data.json")
                assert data
                document = json.load(data)
            archive.unlink()
            unfinished = path.with_suffix(".unfinished")
            with unfinished.open("w") as file:
                for entity in features(document, ()):
                    file.write(json.dumps(entity, ensure_ascii=False, separators=(",", ":")) + "\n")
            unfinished.rename(path)
        return path

    def _npm(self, *arguments: str) -> str:
        try:
            ran = subprocess.run(["npm", *arguments], cwd=self._directory, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable("the releases need npm") from error
        if ran.returncode:
            raise Unavailable(f"npm {' '.join(arguments)}: {ran.stderr.strip()}")
        return ran.stdout


def features(document: dict[str, Any], path: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Yields the features of a document, each with its path."""
    for key, value in document.items():
        if key == "__compat":
            yield {"feature": ".".join(path), **value}
        elif isinstance(value, dict) and key != "__meta":
            yield from features(value, (*path, key))
