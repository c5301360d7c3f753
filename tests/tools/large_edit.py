"""Changes three entities of a large version with the official Python SDK, as an agent does that knows nothing of the
dataset, and counts every byte that goes over its connections.

    large_edit.py BASE_URL TOKEN DATASET_ID WORD MAX_BYTES

Three entities of the version have WORD in some text, and each has a number `i`, its position. Prints the bytes; more
than MAX_BYTES, or an alternate with other changes, is an error.
"""

import asyncio
import contextlib
import json
import sys
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

BASE_URL, TOKEN, DATASET_ID, WORD, MAX_BYTES = (
    sys.argv[1],
    sys.argv[2],
    int(sys.argv[3]),
    sys.argv[4],
    int(sys.argv[5]),
)


class Counted:
    """A listener that passes everything on, and counts it."""

    def __init__(self):
        self.bytes = 0

    async def begin(self):
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    async def _connected(self, reader, writer):
        target = urlsplit(BASE_URL)
        back, forth = await asyncio.open_connection(target.hostname, target.port)
        # The program ends while connections are open.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._pass(reader, forth), self._pass(back, writer))

    async def _pass(self, reader, writer):
        while data := await reader.read(1 << 16):
            self.bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.close()


async def called(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    texts = [content.text for content in result.content]
    if result.is_error:
        sys.exit(f"{tool} {arguments}: {texts[0]}")
    return texts


async def main():
    counted = Counted()
    port = await counted.begin()
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=300)
    async with Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)) as client:
        await client.list_tools()
        await called(client, "list_datasets")
        await called(client, "profile", dataset_id=DATASET_ID)
        about, found = await called(client, "read", dataset_id=DATASET_ID, keywords=[WORD], positions=True)
        about, found = json.loads(about), json.loads(found)
        positions = about["positions"]
        if len(found) != 3 or positions != [entity["i"] for entity in found]:
            sys.exit(f"found {positions}: {found}")
        edits = [{"position": entity["i"], "set": {**entity, "changed": True}} for entity in found]
        edit = {"dataset_id": DATASET_ID, "version": about["version"], "etag": about["etag"], "edits": edits}
        await called(client, "edit_alt_version", **edit)
        count = {"dataset_id": DATASET_ID, "alt": True, "count": True}
        changed = json.loads((await called(client, "read", **count, filter=["changed:true"]))[1])["count"]
        left = json.loads((await called(client, "read", **count, keywords=[WORD]))[1])["count"]
        if (changed, left) != (3, 3):
            sys.exit(f"{changed} changed, {left} left")
    print(f"{counted.bytes} bytes")
    if counted.bytes > MAX_BYTES:
        sys.exit(f"more than {MAX_BYTES} bytes")


asyncio.run(main())
