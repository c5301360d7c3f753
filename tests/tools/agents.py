"""Drives the MCP server with the official Python SDK, as an agent's client does.

    agents.py BASE_URL TOKEN DATASET_ID SLUG EXPECTED

DATASET_ID has one version and no alternate, and beside it the user has one more dataset. EXPECTED is JSON with `tools`,
the names of all tools in order, and `parameters`, those of the read endpoint; and of the other dataset `pairs`, its id,
and `diff`, what its versions 1 and 2 differ in. Runs through everything once with the handshake of older clients and
once without; prints a line for each; the first thing that is not as it should be ends it.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

BASE_URL, TOKEN, DATASET_ID, SLUG = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
EXPECTED = json.loads(sys.argv[5])


def connected(token, mode):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
    return Client(streamable_http_client(f"{BASE_URL}/mcp", http_client=http), mode=mode)


def same(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r} instead of {expected!r}")


def over_http(path):
    answer = httpx2.get(f"{BASE_URL}/api/{DATASET_ID}/{SLUG}/{path}")
    same(path, answer.status_code, 200)
    return answer.text


async def done(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    if result.is_error:
        sys.exit(f"{tool} {arguments}: {result.content[0].text}")
    return result


async def refused(client, tool, words, **arguments):
    result = await client.call_tool(tool, arguments)
    if not result.is_error or words not in result.content[0].text:
        sys.exit(f"{tool} {arguments}: {result!r} instead of {words!r}")


def record(result):
    return json.loads(result.content[0].text)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def described(client):
    same("the server", client.server_info.name, "strata")
    for word in ["etag", "pull_for_edit", "alternate"]:
        same(f"{word} in the instructions", word in client.instructions, True)
    tools = (await client.list_tools()).tools
    same("tools", [tool.name for tool in tools], EXPECTED["tools"])
    for tool in tools:
        same(f"a description of {tool.name}", len(tool.description) > 60, True)
        same(
            f"the hint of {tool.name}",
            tool.annotations.read_only_hint,
            tool.name not in ["push_alt_version", "edit_alt_version"],
        )
        for name, schema in tool.input_schema["properties"].items():
            described = len(schema.get("description", "")) > 10 or tool.name == "explain"
            same(f"a description of {tool.name}'s {name}", described, True)
    read = next(tool for tool in tools if tool.name == "read").input_schema
    same("read's parameters", list(read["properties"]), ["dataset_id", "version", *EXPECTED["parameters"], "positions"])
    same("read's limit", read["properties"]["limit"]["default"], 20)
    push = next(tool for tool in tools if tool.name == "push_alt_version")
    same("what a push needs", push.input_schema["required"], ["dataset_id", "version", "etag", "entities"])


async def reading(client):
    page = record(await done(client, "list_datasets"))
    names = [dataset["name_slug"] for dataset in page["datasets"]]
    same("datasets", (names, page["next_after"]), ([SLUG, "pairs"], None))

    page = record(await done(client, "profile", dataset_id=DATASET_ID, below="name", limit=3))
    same("a profile in short", (page["entities"], page["next_offset"], len(page["paths"])), (250, 3, 3))
    page = record(await done(client, "profile", dataset_id=DATASET_ID, below="name", limit=3, details=True))
    same("a profile", (page["profile"]["entities"], page["next_offset"]), (250, 3))
    same("its paths", [path["path"] for path in page["profile"]["paths"]], ["name", "name.common", "name.official"])
    rest = await done(client, "profile", dataset_id=DATASET_ID, below="name", offset=3, limit=10**6, details=True)
    rest = record(rest)
    same("all paths", len(rest["profile"]["paths"]) + 3, page["path_count"])
    await refused(client, "profile", "or set `below` to one path", dataset_id=DATASET_ID, limit=10**6, details=True)
    await refused(client, "profile", "active, latest, or a version number", dataset_id=DATASET_ID, version="newest")

    diff = (await done(client, "diff", dataset_id=EXPECTED["pairs"], v1=1, v2=2)).content[0].text
    same("a diff", diff, EXPECTED["diff"])
    added = (await done(client, "diff", dataset_id=EXPECTED["pairs"], v1=1, v2=2, change_type="added", limit=1)).content
    expected = json.loads(diff)
    expected["records"] = [record for record in expected["records"] if record["change_type"] == "added"]
    same("what was added", json.loads(added[0].text), expected)
    await refused(client, "diff", "versions are 1 to 2", dataset_id=EXPECTED["pairs"], v1=1, v2=3)
    await refused(client, "diff", "valid: added, subtracted, modified", dataset_id=1, v1=1, v2=1, change_type="all")

    async def texts(**arguments):
        result = await done(client, "read", dataset_id=DATASET_ID, **arguments)
        about, entities = (content.text for content in result.content)
        return json.loads(about), entities

    about, entities = await texts()
    same(
        "about a page",
        about,
        {
            "dataset_id": DATASET_ID,
            "version": 1,
            "alt": False,
            "format": "json",
            "returned": 20,
            "total_count": 250,
            "next_offset": 20,
        },
    )
    same("a page", entities, over_http("v1/?limit=20&pretty=false"))
    about, entities = await texts(
        version="v1",
        filter=["region:Europe"],
        keep_field=["name.common", "area", "region"],
        sort="area:desc",
        limit=3,
        offset=51,
        format="csv",
        include_source=False,
    )
    same("about a table", (about["returned"], about["total_count"], about["next_offset"]), (2, 53, None))
    query = (
        "filter=region:Europe&keep_field=name.common,area,region&sort=area:desc&limit=3&offset=51&include_source=false"
    )
    same("a table", entities, over_http(f"v1/?format=csv&{query}"))
    about, entities = await texts(count=True, keywords="island", pretty=False)
    same("a count", entities, over_http("v1/?count=true&keywords=island&pretty=false"))
    same("the count", about["total_count"], json.loads(entities)["count"])

    await refused(client, "read", "limit, select fields with keep_field", dataset_id=DATASET_ID, limit=250)
    await refused(client, "read", "parameter limit: -1 is not a whole number", dataset_id=DATASET_ID, limit=-1)
    await refused(client, "read", 'unknown argument "limitt"', dataset_id=DATASET_ID, limitt=1)
    await refused(client, "read", "parameter sort", dataset_id=DATASET_ID, sort=":up")
    await refused(client, "read", "valid: json, jsonl, csv, tsv", dataset_id=DATASET_ID, format="parquet")
    await refused(client, "read", "dataset_id: missing")
    await refused(client, "read", "No dataset that you can read has this dataset_id", dataset_id=10**15)
    await refused(client, "read", "no version 99", dataset_id=DATASET_ID, version="v99")
    await refused(client, "read", "active, latest, or a version number", dataset_id=DATASET_ID, version="newest")
    await refused(client, "read", "at most 1000", dataset_id=DATASET_ID, keywords=["x"] * 1001)
    await refused(client, "list_datasets", "limit", limit="many")
    explained = (await done(client, "explain", dataset_id=DATASET_ID, filter=["region:Europe"])).content[0].text
    same("a plan", "Physical plan" in explained, True)
    try:
        await client.call_tool("drop_everything", {})
        sys.exit("there is a tool drop_everything")
    except MCPError as error:
        same("the error names the tools", "pull_for_edit" in str(error), True)


async def editing(client, number):
    pulled = json.loads((await done(client, "pull_for_edit", dataset_id=DATASET_ID)).content[0].text)
    same("what was pulled", (pulled["dataset_id"], pulled["version"], pulled["alt"]), (DATASET_ID, 1, False))
    entities = pulled["entities"]
    same("entities", compact(entities), over_http("v1/?pretty=false"))
    entities[0]["edited"] = {"by": "an agent", "number": number}
    del entities[1:240]
    push = {"dataset_id": DATASET_ID, "version": 1, "etag": pulled["etag"], "entities": entities}
    pushed = record(await done(client, "push_alt_version", **push))
    same("another etag", pushed["etag"] == pulled["etag"], False)
    same("an alternate", isinstance(pushed["version"]["alt_file_path"], str), True)
    same("the alternate over HTTP", over_http("v1/alt/?pretty=false"), compact(entities))
    same("the version over HTTP", over_http("v1/?count=true&pretty=false").startswith('{"count":250,'), True)

    await refused(client, "push_alt_version", "Pull again", **push)
    await refused(client, "push_alt_version", "etag: missing", **{**push, "etag": None})
    await refused(client, "push_alt_version", "item 2", **{**push, "entities": [{}, 2]})
    await refused(client, "push_alt_version", "no version 9", **{**push, "version": 9})
    await refused(client, "pull_for_edit", "version", dataset_id=DATASET_ID, version="V1")
    same("the alternate is as it was", over_http("v1/alt/?pretty=false"), compact(entities))

    # The etag of the push serves for the next one.
    push = {**push, "etag": pushed["etag"], "entities": entities[:1]}
    await done(client, "push_alt_version", **push)
    alternate = (await done(client, "pull_for_edit", dataset_id=DATASET_ID, version=1, alt=True)).content[0].text
    same("the alternate over MCP", json.loads(alternate)["entities"], entities[:1])

    # A few entities are edited by position.
    found = record(await done(client, "read", dataset_id=DATASET_ID, alt=True, positions=True))
    same("positions", found["positions"], [0])
    edits = [{"position": 0, "set": {"edited": number}}, {"position": 1, "insert": entities[:1]}]
    edit = {"dataset_id": DATASET_ID, "version": 1, "etag": found["etag"], "edits": edits}
    edited = record(await done(client, "edit_alt_version", **edit))
    same("the edited alternate", over_http("v1/alt/?pretty=false"), compact([{"edited": number}, entities[0]]))
    await refused(client, "edit_alt_version", "Pull again", **edit)
    edits = [{"position": 0, "remove": True}]
    await done(client, "edit_alt_version", **{**edit, "etag": edited["etag"], "edits": edits})
    about, page = (await done(client, "read", dataset_id=DATASET_ID, alt=True)).content
    same("a read of the alternate", (json.loads(about.text)["alt"], page.text), (True, compact(entities[:1])))


async def strangers(mode):
    for token in ["strata_wrong", "x", TOKEN + "0"]:
        try:
            async with connected(token, mode) as client:
                await client.list_tools()
        except BaseException:
            continue
        sys.exit(f"{token} opens it")


async def main():
    for number, mode in enumerate(["legacy", "auto"]):
        async with connected(TOKEN, mode) as client:
            await described(client)
            await reading(client)
            await editing(client, number)
            print(f"{mode}: {client.protocol_version}, {len(EXPECTED['tools'])} tools")
        await strangers(mode)


asyncio.run(main())
