"""Makes the data directory of a build for the tests of those that come after it: see README.md.

    make.py BINARY FOLDER

BINARY is the build, and FOLDER is named after its last migration. It needs the program zstd.
"""

import hashlib
import http.client
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile

FIXTURES = pathlib.Path(__file__).parents[2] / "data-fixtures"

READS = [
    "/api/1/penguins/v2/?limit=5",
    "/api/1/penguins/v2/?format=jsonl",
    "/api/1/penguins/v2/?format=csv&flatten=true",
    "/api/1/penguins/v2/?count=true&filter=Species:Gentoo",
    "/api/1/penguins/v2/?keywords=biscoe&count=true",
    "/api/1/penguins/v2/?sort=Body%20Mass%20%28g%29:desc&limit=20",
    "/api/1/penguins/v2/?dedup_key=Island&format=jsonl",
    "/api/1/penguins/active/?limit=3",
    "/api/1/penguins/latest/alt/",
    "/api/1/penguins/v2/?format=xml&limit=2",
    "/api/1/penguins/v2/?sample=7&seed=3&format=jsonl",
    "/api/2/emoji/v1/?keywords=face&total=true&limit=10",
    "/api/2/emoji/v1/?format=tsv&keep_field=emoji",
    # The alternate is an edited file: what a read needs lies in it, in its base, or in both.
    "/api/3/words/v1/?limit=3&offset=197",
    "/api/3/words/v1/alt/?limit=3&offset=197",
    "/api/3/words/v1/alt/?format=jsonl&keep_field=id,kind,more",
    "/api/3/words/v1/alt/?filter=kind:K9&limit=5&keep_field=id,kind",
    "/api/3/words/v1/alt/?filter=id:200&count=true",
    "/api/3/words/v1/alt/?filter_gte=id:390&keep_field=id&format=csv",
    "/api/3/words/v1/alt/?filter=more.n:2.0&format=jsonl",
    "/api/3/words/v1/alt/?filter_gt=more.text:ab&keep_field=more&format=jsonl",
    "/api/3/words/v1/alt/?keywords=brought&keep_field=more&format=jsonl",
    "/api/3/words/v1/alt/?keywords=word11&count=true",
    "/api/3/words/v1/alt/?sort=id:desc&limit=4&keep_field=id",
    "/api/3/words/v1/alt/?dedup_key=kind&keep_field=id,kind&format=jsonl",
]


def entity(number):
    """One of many that together are so long that an edit of them writes what it changes, and that compress well."""
    return {"id": number, "kind": f"k{number % 7}", "words": f"word{number % 97} " * 6500}


EDITS = [
    {"position": 0, "remove": True},
    {"position": 198, "set": {"id": 198, "kind": "k9", "more": {"n": 2, "text": "abc"}}},
    {"position": 199, "set": {"id": "199", "kind": "K9", "words": "brought by an edit"}},
    {"position": 200, "remove": True},
    {"position": 400, "insert": [{"id": 400.5, "more": [{"n": 2.0}, {"text": "brought, too"}]}, {}]},
]


class Server:
    def __init__(self, binary, data):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        environment["STRATA_LIMITS__BODY_BYTES"] = str(64 << 20)
        self.common = {"env": environment, "text": True, "cwd": data.parent}
        add = [binary, "user", "add", "ada@example.test", "--plan", "scale", "--token", "ci", "--data", data]
        added = subprocess.run(add, input="not a secret\n", capture_output=True, check=True, **self.common)
        self.token = added.stdout.splitlines()[-1]
        serve = [binary, "serve", "--listen", "127.0.0.1:0", "--data", data]
        self.process = subprocess.Popen(serve, stdout=subprocess.PIPE, **self.common)
        for line in self.process.stdout:
            if line.startswith("listening on http://"):
                self.address = line.split("//")[1].strip()
                return
        raise SystemExit("the server does not start")

    def call(self, method, path, body=None, bearer=None):
        connection = http.client.HTTPConnection(self.address)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if bearer:
            headers["Authorization"] = f"Bearer {bearer}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200, (path, answer.status, content)
        return answer, content

    def post(self, path, **body):
        return json.loads(self.call("POST", path, body, self.token)[1])

    def stop(self):
        self.process.terminate()
        assert self.process.wait() == 0


def unpacked(path):
    return subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout


def fill(server):
    """The private key of the private dataset."""
    penguins = json.loads((FIXTURES / "penguins/penguins.json").read_text())
    server.post("/dataset/create", name="Penguins", licence="CC0-1.0")
    for entities in (penguins[:100], penguins):
        server.post("/dataset/refresh", dataset_id=1, entities=entities)
    server.post("/dataset/alternate/save", dataset_id=1, version=2, entities=penguins[5:16])
    server.post("/dataset/rollback", dataset_id=1, version_number=1)

    emoji = json.loads(unpacked(FIXTURES / "emoji/emoji.json.zst"))
    private = server.post("/dataset/create", name="Emoji", private=True)["dataset"]["private_key"]
    server.post("/dataset/refresh", dataset_id=2, entities=emoji[:200])
    hook = {"dataset_id": 2, "url": "https://hooks.example.org/x", "secret": "a signing secret"}
    server.post("/webhook/register", **hook)

    server.post("/dataset/create", name="Words")
    server.post("/dataset/refresh", dataset_id=3, entities=[entity(number) for number in range(400)])
    etag = server.post("/agent/pull_for_edit", dataset_id=3, version=1, limit=1)["etag"]
    server.post("/dataset/alternate/edit", dataset_id=3, version=1, etag=etag, edits=EDITS)
    return private


def main(binary, folder):
    binary, folder = pathlib.Path(binary).resolve(), pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as directory:
        data = pathlib.Path(directory) / "data"
        server = Server(binary, data)
        try:
            private = fill(server)
            reads = []
            for read in READS:
                answer, content = server.call("GET", read, bearer=private if read.startswith("/api/2/") else None)
                told = {"total": answer.getheader("X-Total-Count"), "bytes": len(content)}
                reads.append({"read": read, **told, "sha256": hashlib.sha256(content).hexdigest()})
        finally:
            server.stop()

        (folder / "versions").mkdir(parents=True)
        with sqlite3.connect(data / "catalog.sqlite") as catalog:
            catalog.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        catalog.close()
        pack = ["zstd", "-19", "-q", data / "catalog.sqlite", "-o", folder / "catalog.sqlite.zst"]
        subprocess.run(pack, check=True)
        shutil.copyfile(data / "store/strata.id", folder / "strata.id")
        for file in (data / "store/versions").iterdir():
            shutil.copyfile(file, folder / "versions" / file.name)
        expected = {"token": server.token, "private_key": private, "reads": reads}
        (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
