"""Drives the service with the Python client that openapi-python-client makes of its OpenAPI document.

    generated.py DOCUMENT BASE_URL EMAIL PASSWORD

DOCUMENT is the file that the client was made of. The user has no dataset, and a plan with webhooks. Makes every
operation of the document succeed, reads all six formats, and prints how many operations there were; the first thing
that is not as it should be ends it. The tests check its types, too, so that it stands for a program of a user.
"""

import csv
import datetime
import json
import re
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree
from http import HTTPStatus
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import httpx
from strata_client import AuthenticatedClient, Client
from strata_client.api.accounts import (
    change_password,
    create_token,
    delete_token,
    end_session,
    get_user,
    list_sessions,
    list_tokens,
    log_in,
    log_out,
)
from strata_client.api.alternates import (
    delete_alternate,
    edit_alternate,
    pull_for_edit,
    push_alt_version,
    save_alternate,
)
from strata_client.api.datasets import (
    clone_dataset,
    create_dataset,
    delete_dataset,
    find_datasets,
    get_usage,
    list_datasets,
    rotate_key,
    rotate_ping,
    update_dataset,
    view_dataset,
)
from strata_client.api.operational import get_health, get_metrics, get_open_api, get_readiness
from strata_client.api.read import read_alternate, read_dataset
from strata_client.api.versions import (
    diff_versions,
    explain_read,
    list_attempts,
    ping,
    ping_by_post,
    profile_version,
    refresh_dataset,
    roll_back,
    unfreeze,
    unpin,
)
from strata_client.api.webhooks import delete_webhook, list_deliveries, register_webhook, view_webhook
from strata_client.models import (
    ChangePasswordBody,
    CloneDatasetBody,
    Count,
    CreateDatasetBody,
    CreateDatasetBodyFormatType0,
    CreateTokenBody,
    CreateTokenBodyScopeType0,
    DatasetRecord,
    DeleteAlternateBody,
    DeleteDatasetBody,
    DeleteTokenBody,
    DeleteWebhookBody,
    EditAlternateBody,
    EditAlternateBodyEditsItem,
    EndSessionBody,
    Entity,
    LogInBody,
    NoWebhook,
    PullForEditBody,
    PushAltVersionBody,
    ReadDatasetFormat,
    RefreshDatasetFormat,
    RefreshDatasetJsonBody,
    RegisterWebhookBody,
    RollBackBody,
    RotateKeyBody,
    RotatePingBody,
    SaveAlternateBody,
    UnfreezeBody,
    UnpinBody,
    UpdateDatasetBody,
    WebhookRecord,
)
from strata_client.types import File, Response

DOCUMENT, BASE_URL, EMAIL, PASSWORD = json.loads(Path(sys.argv[1]).read_text("utf-8")), *sys.argv[2:5]
NEW_PASSWORD = "another long password"

CSV = 'name,radius,note\nMercury,2439.7,"hot, grey"\nVenus,6051.8,\nEarth,6371,ours\n'
PLANETS = [
    {"name": "Mercury", "radius": 2439.7},
    {"name": "Venus", "radius": 6052, "moons": []},
    {"name": "Mars", "radius": 3389.5, "moons": [{"name": "Phobos"}, {"name": "Deimos"}]},
]

T = TypeVar("T")

# The operations that succeeded: method and path.
SUCCEEDED: set[tuple[str, str]] = set()


def note(response: httpx.Response) -> None:
    if response.is_success:
        SUCCEEDED.add((response.request.method.lower(), response.request.url.path))


ARGUMENTS: dict[str, Any] = {
    "base_url": BASE_URL,
    "timeout": httpx.Timeout(60),
    "httpx_args": {"event_hooks": {"response": [note]}},
}


def done(response: Response[T | str]) -> T:
    """The record of an answer that is no error."""
    if response.status_code != HTTPStatus.OK or response.parsed is None or isinstance(response.parsed, str):
        sys.exit(f"{response.status_code}: {response.content!r}")
    return response.parsed


def same(what: str, found: object, expected: object) -> None:
    if found != expected:
        sys.exit(f"{what}\n  found    {found!r:.500}\n  expected {expected!r:.500}")


def rows(response: Response[Any]) -> list[dict[str, Any]]:
    """The entities of a response in JSON."""
    if not isinstance(response.parsed, list):
        sys.exit(f"{response.status_code}: {response.content!r}")
    return [entity.to_dict() for entity in response.parsed]


def entities(values: list[dict[str, Any]]) -> list[Entity]:
    return [Entity.from_dict(value) for value in values]


def logged_in(password: str) -> AuthenticatedClient:
    """A client with the cookie of a new session."""
    # A client keeps its cookies, and a log-in with a session ends that session.
    response = log_in.sync_detailed(client=Client(**ARGUMENTS), body=LogInBody(email=EMAIL, password=password))
    same("the user", done(response).user.email, EMAIL)
    cookie = response.headers["set-cookie"].partition(";")[0]
    return AuthenticatedClient(token=cookie, prefix="", auth_header_name="Cookie", **ARGUMENTS)


def accounts(session: AuthenticatedClient) -> AuthenticatedClient:
    same("the user", done(get_user.sync_detailed(client=session)).user.plan, "scale")
    logged_in(PASSWORD)
    sessions = done(list_sessions.sync_detailed(client=session)).sessions
    same("sessions", len(sessions), 2)
    other = next(one for one in sessions if not one.current)
    done(end_session.sync_detailed(client=session, body=EndSessionBody(id=other.id)))
    made = done(create_token.sync_detailed(client=session, body=CreateTokenBody(name="generated")))
    reading = CreateTokenBody(name="reading", scope=CreateTokenBodyScopeType0.READ, expires_in_s=60)
    done(create_token.sync_detailed(client=session, body=reading))
    tokens = {token.name: token for token in done(list_tokens.sync_detailed(client=session)).tokens}
    same("what does not expire", tokens["generated"].expires_at, None)
    same("what does", isinstance(tokens["reading"].expires_at, datetime.datetime), True)
    done(delete_token.sync_detailed(client=session, body=DeleteTokenBody(name="reading")))
    return AuthenticatedClient(token=made.token, **ARGUMENTS)


def datasets(anybody: Client, owner: AuthenticatedClient) -> DatasetRecord:
    """A dataset with two versions: one pushed as JSON, one as CSV."""
    created = CreateDatasetBody(name="Planets", source="push", listed=True, description=None, format_=None)
    made = done(create_dataset.sync_detailed(client=owner, body=created)).dataset
    same("what it has not", (made.active_version, made.description, made.private_key), (None, None, None))
    pushed = RefreshDatasetJsonBody(dataset_id=made.dataset_id, entities=entities(PLANETS))
    version = done(refresh_dataset.sync_detailed(client=owner, body=pushed)).version
    same("the first version", (version.version_number, version.entity_count), (1, 3))
    version = done(
        refresh_dataset.sync_detailed(
            client=owner,
            body=File(BytesIO(CSV.encode())),
            dataset_id=made.dataset_id,
            format_=RefreshDatasetFormat.CSV,
            infer_types=True,
        )
    ).version
    same("the second version", (version.version_number, version.entity_count), (2, 3))
    changed = UpdateDatasetBody(dataset_id=made.dataset_id, description="Of the sun", licence="CC0-1.0")
    same(
        "the description",
        done(update_dataset.sync_detailed(client=owner, body=changed)).dataset.description,
        "Of the sun",
    )
    same("all", [one.name for one in done(list_datasets.sync_detailed(client=owner)).datasets], ["Planets"])
    view = done(view_dataset.sync_detailed(client=owner, dataset_id=made.dataset_id)).dataset
    same("versions", [version.version_number for version in view.versions], [2, 1])
    found = done(find_datasets.sync_detailed(client=anybody, q="SUN")).datasets
    same("what is listed", [(one.name, one.version) for one in found], [("Planets", 2)])
    return made


def formats(anybody: Client, dataset: DatasetRecord) -> None:
    """Every format comes through as the bytes that were sent."""
    for format_ in ReadDatasetFormat:
        path = f"/api/{dataset.dataset_id}/{dataset.name_slug}/v2/?format={format_}&sort=name:desc"
        with urllib.request.urlopen(f"{BASE_URL}{path}") as direct:
            sent = direct.read()
        # The client parses JSON; its connection gives the other formats.
        received = anybody.get_httpx_client().get(path).content
        same(f"bytes of {format_}", received, sent)
        if format_ is ReadDatasetFormat.PARQUET:
            same("a file", (received[:4], received[-4:]), (b"PAR1", b"PAR1"))
            continue
        text = received.decode()
        if format_ is ReadDatasetFormat.JSON:
            place = (dataset.dataset_id, dataset.name_slug, "v2")
            names = [
                entity["name"] for entity in rows(read_dataset.sync_detailed(*place, client=anybody, sort="name:desc"))
            ]
        elif format_ is ReadDatasetFormat.JSONL:
            names = [json.loads(line)["name"] for line in text.splitlines()]
        elif format_ is ReadDatasetFormat.XML:
            names = [entity.findtext("name") for entity in xml.etree.ElementTree.fromstring(text)]
        else:
            table = csv.DictReader(text.splitlines(), delimiter="\t" if format_ is ReadDatasetFormat.TSV else ",")
            names = [row["name"] for row in table]
        same(f"names in {format_}", names, ["Venus", "Mercury", "Earth"])


def reads(anybody: Client, dataset: DatasetRecord) -> None:
    place = (dataset.dataset_id, dataset.name_slug)
    read = read_dataset.sync_detailed(
        *place,
        "latest",
        client=anybody,
        filter_=["name:EARTH", "radius:6371.0"],
        filter_gt=["radius:6000"],
        keep_field=["name", "radius"],
        keywords=["earth", "no, such"],
        pretty=False,
        total=True,
        limit=1,
    )
    same("one entity", rows(read), [{"name": "Earth", "radius": 6371}])
    same("what matches", (read.headers["X-Total-Matches"], read.headers["X-Dataset-Version"]), ("1", "v2"))
    counted = read_dataset.sync(*place, "v1", client=anybody, count=True)
    if not isinstance(counted, Count):
        sys.exit(f"no count: {counted!r}")
    same("a count", counted.to_dict(), {"count": 3, "dataset_id": dataset.dataset_id, "version": 1, "alt": False})
    parquet = ReadDatasetFormat.PARQUET
    part = read_dataset.sync_detailed(*place, "v1", client=anybody, format_=parquet, range_="bytes=0-3")
    same("a part", (part.status_code, part.content), (HTTPStatus.PARTIAL_CONTENT, b"PAR1"))
    again = read_dataset.sync_detailed(*place, "v1", client=anybody, if_none_match="*")
    same("not modified", (again.status_code, again.parsed), (HTTPStatus.NOT_MODIFIED, None))
    missing = read_dataset.sync_detailed(*place, "v9", client=anybody)
    same("an error", (missing.status_code, type(missing.parsed)), (HTTPStatus.NOT_FOUND, str))


def alternates(anybody: Client, owner: AuthenticatedClient, dataset: DatasetRecord) -> None:
    dataset_id = dataset.dataset_id
    pulled = done(pull_for_edit.sync_detailed(client=owner, body=PullForEditBody(dataset_id=dataset_id, version=1)))
    same("what was pulled", [entity["name"] for entity in pulled.entities], ["Mercury", "Venus", "Mars"])
    same("as it was", [entity.to_dict() for entity in pulled.entities], PLANETS)
    pushed = PushAltVersionBody(dataset_id=dataset_id, version=1, etag=pulled.etag, entities=pulled.entities[:2])
    etag = done(push_alt_version.sync_detailed(client=owner, body=pushed)).etag
    edits = [
        EditAlternateBodyEditsItem(position=0, remove=True),
        EditAlternateBodyEditsItem(position=1, set_=Entity.from_dict({"name": "Venus", "radius": 6051.8})),
        EditAlternateBodyEditsItem(position=2, insert=entities([{"name": "Earth"}])),
    ]
    edited = EditAlternateBody(dataset_id=dataset_id, version=1, etag=etag, edits=edits)
    same("edited", done(edit_alternate.sync_detailed(client=owner, body=edited)).alt_entity_count, 2)
    read = read_alternate.sync_detailed(dataset_id, dataset.name_slug, "v1", client=anybody, pretty=False)
    same("an alternate", rows(read), [{"name": "Venus", "radius": 6051.8}, {"name": "Earth"}])
    saved = SaveAlternateBody(dataset_id=dataset_id, version=1, entities=[])
    same("saved", done(save_alternate.sync_detailed(client=owner, body=saved)).alt_entity_count, 0)
    deleted = DeleteAlternateBody(dataset_id=dataset_id, version=1)
    done(delete_alternate.sync_detailed(client=owner, body=deleted))


def versions(anybody: Client, owner: AuthenticatedClient, dataset: DatasetRecord) -> None:
    dataset_id = dataset.dataset_id
    back = done(roll_back.sync_detailed(client=owner, body=RollBackBody(dataset_id=dataset_id, version_number=1)))
    same("pinned", (back.dataset.active_version, back.dataset.pinned), (1, True))
    same("unpinned", done(unpin.sync_detailed(client=owner, body=UnpinBody(dataset_id))).dataset.active_version, 2)
    frozen = RollBackBody(dataset_id=dataset_id, version_number=2, freeze=True)
    same("frozen", done(roll_back.sync_detailed(client=owner, body=frozen)).dataset.frozen, True)
    same("unfrozen", done(unfreeze.sync_detailed(client=owner, body=UnfreezeBody(dataset_id))).dataset.frozen, False)
    diff = done(diff_versions.sync_detailed(client=owner, dataset_id=dataset_id, v1="1", v2="latest"))
    same("the diff", (diff.added, diff.subtracted, diff.modified, diff.total_v1), (2, 2, 1, 3))
    changes = [(one.change_type.value, one.v1["name"] if one.v1 else None) for one in diff.records]
    gone = [("modified", "Mercury"), ("subtracted", "Venus"), ("subtracted", "Mars")]
    same("its records", changes, [*gone, ("added", None), ("added", None)])
    # The client reads the JSON of an answer that may be lines, too; its connection gives these.
    asked = f"/dataset/diff?dataset_id={dataset_id}&v1=1&v2=2&format=jsonl"
    lines = owner.get_httpx_client().get(asked).text.splitlines()
    same("its lines", [json.loads(line) for line in lines], [record.to_dict() for record in diff.records])
    plan = done(explain_read.sync_detailed(client=owner, dataset_id=dataset_id, filter_=["name:venus"]))
    same("a plan", (plan.entity_count, plan.answer.total), (3, 1))
    profile = done(profile_version.sync_detailed(client=owner, dataset_id=dataset_id)).profile
    same("a profile", [path.path for path in profile.paths], ["name", "radius", "note"])
    attempts = done(list_attempts.sync_detailed(client=owner, dataset_id=dataset_id)).attempts
    same("attempts", [(one.ok, one.version, one.error) for one in attempts], [(True, 2, None), (True, 1, None)])
    done(get_usage.sync_detailed(client=owner, dataset_id=dataset_id, days=7))


def sources(anybody: Client, owner: AuthenticatedClient, dataset: DatasetRecord) -> None:
    """A dataset that is fetched from another one, by its ping URL and with a webhook."""
    source = f"{BASE_URL}/api/{dataset.dataset_id}/{dataset.name_slug}/v1/?format=jsonl"
    created = CreateDatasetBody(name="Copies", source=source, format_=CreateDatasetBodyFormatType0.JSONL, schedule=None)
    made = done(create_dataset.sync_detailed(client=owner, body=created)).dataset
    dataset_id = made.dataset_id
    nothing = view_webhook.sync(client=owner, dataset_id=dataset_id)
    same("no webhook", type(nothing), NoWebhook)
    hook = RegisterWebhookBody(dataset_id=dataset_id, url=f"{BASE_URL}/healthz", secret="a secret")
    done(register_webhook.sync_detailed(client=owner, body=hook))
    webhook = view_webhook.sync(client=owner, dataset_id=dataset_id)
    if not isinstance(webhook, WebhookRecord):
        sys.exit("the webhook is not there")
    same("a webhook", (webhook.has_secret, webhook.last_status), (True, None))
    same("what is not said", type(done(ping.sync_detailed(token_of(made), client=anybody)).version.version_number), int)
    rotated = done(rotate_ping.sync_detailed(client=owner, body=RotatePingBody(dataset_id))).dataset
    version = done(ping_by_post.sync_detailed(token_of(rotated), client=anybody)).version
    same("the second version", (version.version_number, version.alt_file_path), (2, None))
    done(list_deliveries.sync_detailed(client=owner, dataset_id=dataset_id))
    done(delete_webhook.sync_detailed(client=owner, body=DeleteWebhookBody(dataset_id)))


def token_of(dataset: DatasetRecord) -> str:
    return str(dataset.ping_url).rpartition("/")[2]


def copies(anybody: Client, owner: AuthenticatedClient, dataset: DatasetRecord) -> None:
    """A private clone, read with its key; and a dataset without versions, which goes."""
    clone = CloneDatasetBody(dataset_id=dataset.dataset_id, name="Private Planets")
    cloned = done(clone_dataset.sync_detailed(client=owner, body=clone)).dataset
    private = UpdateDatasetBody(dataset_id=cloned.dataset_id, private=True)
    old = done(update_dataset.sync_detailed(client=owner, body=private)).dataset.private_key
    key = done(rotate_key.sync_detailed(client=owner, body=RotateKeyBody(cloned.dataset_id))).dataset.private_key
    same("another key", isinstance(key, str) and key != old, True)
    place = (cloned.dataset_id, cloned.name_slug, "v1")
    without = read_dataset.sync_detailed(*place, client=anybody)
    same("without the key", without.status_code, HTTPStatus.UNAUTHORIZED)
    reader = AuthenticatedClient(token=str(key), **ARGUMENTS)
    same("with the key", len(rows(read_dataset.sync_detailed(*place, client=reader))), 3)
    empty = done(create_dataset.sync_detailed(client=owner, body=CreateDatasetBody(name="Empty"))).dataset
    done(delete_dataset.sync_detailed(client=owner, body=DeleteDatasetBody(empty.dataset_id)))


def operational(anybody: Client) -> None:
    same("health", get_health.sync(client=anybody), "ok")
    same("readiness", get_readiness.sync_detailed(client=anybody).status_code, HTTPStatus.OK)
    same("metrics", "strata_" in (get_metrics.sync(client=anybody) or ""), True)
    document = done(get_open_api.sync_detailed(client=anybody))
    same("the document", document.to_dict(), DOCUMENT)


def called() -> set[str]:
    """The ids of the operations that succeeded."""
    patterns = {
        operation["operationId"]: (method, re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
    }
    return {
        name
        for name, (method, pattern) in patterns.items()
        if any(method == done and re.fullmatch(pattern, path) for done, path in SUCCEEDED)
    }


def main() -> None:
    anybody = Client(**ARGUMENTS)
    operational(anybody)
    session = logged_in(PASSWORD)
    owner = accounts(session)
    dataset = datasets(anybody, owner)
    formats(anybody, dataset)
    reads(anybody, dataset)
    alternates(anybody, owner, dataset)
    versions(anybody, owner, dataset)
    sources(anybody, owner, dataset)
    copies(anybody, owner, dataset)
    changed = ChangePasswordBody(old=PASSWORD, new=NEW_PASSWORD)
    done(change_password.sync_detailed(client=session, body=changed))
    done(log_out.sync_detailed(client=logged_in(NEW_PASSWORD)))

    ids = {operation["operationId"] for item in DOCUMENT["paths"].values() for operation in item.values()}
    same("operations without a call that succeeds", sorted(ids - called()), [])
    print(f"{len(ids)} operations, {len(ReadDatasetFormat)} formats")


if __name__ == "__main__":
    main()
