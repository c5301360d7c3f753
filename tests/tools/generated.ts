// Drives the service with openapi-fetch, by the types that openapi-typescript makes of its OpenAPI document.
//
//     node generated.js DOCUMENT BASE_URL EMAIL PASSWORD
//
// DOCUMENT is the file that `./schema.js` was made of. The user has no dataset, and a plan with webhooks. Makes every
// operation of the document succeed, reads all six formats, and prints how many operations there were; the first thing
// that is not as it should be ends it. The tests check its types, too, so that it stands for a program of a user.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

import createClient from "openapi-fetch";

import type { components, operations, paths } from "./schema.js";

type Dataset = components["schemas"]["DatasetRecord"];
type Entity = components["schemas"]["Entity"];
type Format = NonNullable<NonNullable<operations["readDataset"]["parameters"]["query"]>["format"]>;

const [documentPath = "", baseUrl = "", email = "", password = ""] = process.argv.slice(2);
const document = JSON.parse(readFileSync(documentPath, "utf8"));
const newPassword = "another long password";

const csv = 'name,radius,note\nMercury,2439.7,"hot, grey"\nVenus,6051.8,\nEarth,6371,ours\n';
const planets = [
  { name: "Mercury", radius: 2439.7 },
  { name: "Venus", radius: 6052, moons: [] },
  { name: "Mars", radius: 3389.5, moons: [{ name: "Phobos" }, { name: "Deimos" }] },
];

// The operations that succeeded, as method and path.
const succeeded = new Set<string>();

function client(headers: Record<string, string> = {}) {
  const made = createClient<paths>({ baseUrl, headers });
  made.use({
    onResponse({ request, response, schemaPath }) {
      if (response.ok) succeeded.add(`${request.method.toLowerCase()} ${schemaPath}`);
    },
  });
  return made;
}

type Client = ReturnType<typeof client>;

/** What an answer holds that is no error. */
function done<T>(answer: { data?: T; error?: unknown; response: Response }): NonNullable<T> {
  const { data, error, response } = answer;
  if (!response.ok || data === undefined || data === null) throw new Error(`${response.status} ${response.url}: ${error}`);
  return data;
}

/** A client with the cookie of a new session. */
async function loggedIn(password: string): Promise<Client> {
  const answer = await client().POST("/session/login", { body: { email, password } });
  assert.equal(done(answer).user.email, email);
  const [cookie = ""] = (answer.response.headers.get("set-cookie") ?? "").split(";");
  return client({ Cookie: cookie });
}

async function operational(anybody: Client) {
  assert.equal(done(await anybody.GET("/healthz", { parseAs: "text" })), "ok");
  assert.equal(done(await anybody.GET("/readyz", { parseAs: "text" })), "ok");
  assert.match(done(await anybody.GET("/metrics", { parseAs: "text" })), /strata_/);
  assert.deepEqual(done(await anybody.GET("/openapi.json")), document);
}

async function accounts(session: Client): Promise<Client> {
  assert.equal(done(await session.GET("/session/me")).user.plan, "scale");
  await loggedIn(password);
  const { sessions } = done(await session.GET("/session/list"));
  assert.equal(sessions.length, 2);
  const other = sessions.find((one) => !one.current);
  done(await session.DELETE("/session/end", { body: { id: other?.id ?? "" } }));
  const { token } = done(await session.POST("/token/create", { body: { name: "generated" } }));
  done(await session.POST("/token/create", { body: { name: "reading", scope: "read", expires_in_s: 60 } }));
  const { tokens } = done(await session.GET("/token/list"));
  const expiry: (string | null)[] = tokens.map((one) => one.expires_at);
  assert.deepEqual(expiry.map((one) => typeof one).sort(), ["object", "string"]);
  done(await session.DELETE("/token/delete", { body: { name: "reading" } }));
  return client({ Authorization: `Bearer ${token}` });
}

/** A dataset with two versions: one pushed as JSON, one as CSV. */
async function datasets(anybody: Client, owner: Client): Promise<Dataset> {
  const body = { name: "Planets", source: "push", listed: true, description: null, format: null };
  const { dataset } = done(await owner.POST("/dataset/create", { body }));
  const { dataset_id } = dataset;
  const nothing: (number | string | null)[] = [dataset.active_version, dataset.description, dataset.private_key];
  assert.deepEqual(nothing, [null, null, null]);
  const first = done(await owner.POST("/dataset/refresh", { body: { dataset_id, entities: planets } })).version;
  assert.deepEqual([first.version_number, first.entity_count], [1, 3]);
  const second = await owner.POST("/dataset/refresh", {
    params: { query: { dataset_id, format: "csv", infer_types: true } },
    body: csv,
    bodySerializer: (text) => text,
    headers: { "Content-Type": "application/octet-stream" },
  });
  assert.deepEqual([done(second).version.version_number, done(second).version.entity_count], [2, 3]);
  const changed = { dataset_id, description: "Of the sun", licence: "CC0-1.0" };
  assert.equal(done(await owner.POST("/dataset/update", { body: changed })).dataset.description, "Of the sun");
  assert.deepEqual(done(await owner.GET("/dataset/list")).datasets.map((one) => one.name), ["Planets"]);
  const view = done(await owner.GET("/dataset/view", { params: { query: { dataset_id } } })).dataset;
  assert.deepEqual(view.versions.map((version) => version.version_number), [2, 1]);
  const listed = done(await anybody.GET("/datasets", { params: { query: { q: "SUN" } } })).datasets;
  assert.deepEqual(listed.map((one) => [one.name, one.version]), [["Planets", 2]]);
  return dataset;
}

/** Every format comes through as the bytes that were sent, and texts as text. */
async function formats(anybody: Client, { dataset_id, name_slug }: Dataset): Promise<number> {
  const all: Format[] = ["json", "jsonl", "csv", "tsv", "xml", "parquet"];
  assert.deepEqual(all, document.components.parameters.format.schema.enum);
  const path = { dataset_id, name_slug, version: "v2" };
  for (const format of all) {
    const params = { path, query: { format, sort: "name:desc" } };
    const read = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params, parseAs: "arrayBuffer" });
    const bytes: ArrayBuffer = done(read);
    const direct = await fetch(`${baseUrl}/api/${dataset_id}/${name_slug}/v2/?format=${format}&sort=name:desc`);
    assert.deepEqual(new Uint8Array(bytes), new Uint8Array(await direct.arrayBuffer()), format);
    if (format === "parquet") {
      assert.equal(new TextDecoder().decode(bytes.slice(0, 4)), "PAR1");
      continue;
    }
    const again = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params, parseAs: "text" });
    const text: string = done(again);
    assert.match(text, /Venus[^]*Mercury[^]*Earth/, format);
    assert.equal(text, new TextDecoder().decode(bytes), format);
  }
  return all.length;
}

async function reads(anybody: Client, { dataset_id, name_slug }: Dataset) {
  const at = (version: string) => ({ dataset_id, name_slug, version });
  const query = {
    filter: ["name:EARTH", "radius:6371.0"],
    filter_gt: ["radius:6000"],
    keep_field: ["name", "radius"],
    keywords: ["earth", "no, such"],
    total: true,
    limit: 1,
  };
  const read = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params: { path: at("latest"), query } });
  const entities = done(read) as Entity[];
  assert.deepEqual(entities, [{ name: "Earth", radius: 6371 }]);
  assert.equal(read.response.headers.get("X-Total-Matches"), "1");
  const params = { path: at("v1"), query: { count: true } };
  const count = done(await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params }));
  assert.deepEqual(count, { count: 3, dataset_id, version: 1, alt: false });
  const part = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", {
    params: { path: at("v1"), query: { format: "parquet" }, header: { Range: "bytes=0-3" } },
    parseAs: "text",
  });
  assert.deepEqual([part.response.status, done(part)], [206, "PAR1"]);
  const missing = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params: { path: at("v9") } });
  const error: string | undefined = missing.error;
  assert.deepEqual([missing.response.status, typeof error], [404, "string"]);
}

async function alternates(anybody: Client, owner: Client, { dataset_id, name_slug }: Dataset) {
  const pulled = done(await owner.POST("/agent/pull_for_edit", { body: { dataset_id, version: 1 } }));
  assert.deepEqual(pulled.entities, planets);
  const pushed = { dataset_id, version: 1, etag: pulled.etag, entities: pulled.entities.slice(0, 2) };
  const { etag } = done(await owner.POST("/agent/push_alt_version", { body: pushed }));
  const edits = [
    { position: 0, remove: true as const },
    { position: 1, set: { name: "Venus", radius: 6051.8 } },
    { position: 2, insert: [{ name: "Earth" }] },
  ];
  const edited = await owner.POST("/dataset/alternate/edit", { body: { dataset_id, version: 1, etag, edits } });
  assert.equal(done(edited).alt_entity_count, 2);
  const params = { path: { dataset_id, name_slug, version: "v1" } };
  const read = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}/alt", { params });
  assert.deepEqual(done(read), [{ name: "Venus", radius: 6051.8 }, { name: "Earth" }]);
  const saved = await owner.POST("/dataset/alternate/save", { body: { dataset_id, version: 1, entities: [] } });
  assert.equal(done(saved).alt_entity_count, 0);
  done(await owner.DELETE("/dataset/alternate/delete", { body: { dataset_id, version: 1 } }));
}

async function versions(owner: Client, { dataset_id }: Dataset) {
  const back = done(await owner.POST("/dataset/rollback", { body: { dataset_id, version_number: 1 } })).dataset;
  assert.deepEqual([back.active_version, back.pinned], [1, true]);
  assert.equal(done(await owner.POST("/dataset/unpin", { body: { dataset_id } })).dataset.active_version, 2);
  const freeze = { dataset_id, version_number: 2, freeze: true };
  assert.equal(done(await owner.POST("/dataset/rollback", { body: freeze })).dataset.frozen, true);
  assert.equal(done(await owner.POST("/dataset/unfreeze", { body: { dataset_id } })).dataset.frozen, false);
  const sides = { dataset_id, v1: "1", v2: "latest" };
  const diff = done(await owner.GET("/dataset/diff", { params: { query: sides } })) as components["schemas"]["DiffResult"];
  assert.deepEqual([diff.added, diff.subtracted, diff.modified], [2, 2, 1]);
  const lines = await owner.GET("/dataset/diff", { params: { query: { ...sides, format: "jsonl" } }, parseAs: "text" });
  assert.deepEqual(done(lines).trim().split("\n").map((line) => JSON.parse(line)), diff.records);
  const asked = { dataset_id, filter: ["name:venus"] };
  const plan = await owner.GET("/dataset/explain", { params: { query: { ...asked, explain: "text" } }, parseAs: "text" });
  assert.match(done(plan), /^Query on dataset/);
  const explained = done(await owner.GET("/dataset/explain", { params: { query: asked } }));
  assert.equal((explained as components["schemas"]["Explanation"]).answer.total, 1);
  const { profile } = done(await owner.GET("/dataset/profile", { params: { query: { dataset_id } } }));
  assert.deepEqual(profile.paths.map((path) => path.path), ["name", "radius", "note"]);
  const { attempts } = done(await owner.GET("/dataset/attempts", { params: { query: { dataset_id } } }));
  assert.deepEqual(attempts.map((one) => [one.ok, one.version, one.error]), [[true, 2, null], [true, 1, null]]);
  done(await owner.GET("/dataset/usage", { params: { query: { dataset_id, days: 7 } } }));
}

/** A dataset that is fetched from another one, by its ping URL and with a webhook. */
async function sources(anybody: Client, owner: Client, other: Dataset) {
  const source = `${baseUrl}/api/${other.dataset_id}/${other.name_slug}/v1/?format=jsonl`;
  const created = { name: "Copies", source, format: "jsonl" as const, schedule: null };
  const { dataset } = done(await owner.POST("/dataset/create", { body: created }));
  const { dataset_id } = dataset;
  const query = { params: { query: { dataset_id } } };
  assert.deepEqual(done(await owner.GET("/webhook/view", query)), { has_webhook: false });
  done(await owner.POST("/webhook/register", { body: { dataset_id, url: `${baseUrl}/healthz`, secret: "a secret" } }));
  const webhook = done(await owner.GET("/webhook/view", query));
  assert(webhook.has_webhook);
  const status: number | null = webhook.last_status;
  assert.deepEqual([webhook.has_secret, status], [true, null]);
  const token = (record: Dataset) => ({ params: { path: { token: record.ping_url?.split("/").at(-1) ?? "" } } });
  assert.equal(done(await anybody.GET("/ping/{token}", token(dataset))).version.version_number, 1);
  const rotated = done(await owner.POST("/dataset/rotate_ping", { body: { dataset_id } })).dataset;
  assert.equal(done(await anybody.POST("/ping/{token}", token(rotated))).version.version_number, 2);
  done(await owner.GET("/webhook/deliveries", query));
  done(await owner.DELETE("/webhook/delete", { body: { dataset_id } }));
}

/** A private clone, read with its key; and a dataset without versions, which goes. */
async function copies(anybody: Client, owner: Client, { dataset_id }: Dataset) {
  const clone = await owner.POST("/dataset/clone", { body: { dataset_id, name: "Private Planets" } });
  const cloned = done(clone).dataset;
  const hidden = { dataset_id: cloned.dataset_id, private: true };
  const old = done(await owner.POST("/dataset/update", { body: hidden })).dataset.private_key;
  const rotated = await owner.POST("/dataset/rotate_key", { body: { dataset_id: cloned.dataset_id } });
  const key = done(rotated).dataset.private_key;
  assert(key !== null && key !== old);
  const params = { path: { dataset_id: cloned.dataset_id, name_slug: cloned.name_slug, version: "v1" } };
  const without = await anybody.GET("/api/{dataset_id}/{name_slug}/{version}", { params });
  assert.equal(without.response.status, 401);
  const reader = client({ Authorization: `Bearer ${key}` });
  const read = await reader.GET("/api/{dataset_id}/{name_slug}/{version}", { params });
  assert.equal((done(read) as Entity[]).length, 3);
  const empty = done(await owner.POST("/dataset/create", { body: { name: "Empty" } })).dataset;
  done(await owner.DELETE("/dataset/delete", { body: { dataset_id: empty.dataset_id } }));
}

const anybody = client();
await operational(anybody);
const session = await loggedIn(password);
const owner = await accounts(session);
const dataset = await datasets(anybody, owner);
const formatCount = await formats(anybody, dataset);
await reads(anybody, dataset);
await alternates(anybody, owner, dataset);
await versions(owner, dataset);
await sources(anybody, owner, dataset);
await copies(anybody, owner, dataset);
done(await session.POST("/account/password", { body: { old: password, new: newPassword } }));
done(await (await loggedIn(newPassword)).POST("/session/logout"));

const described = Object.entries(document.paths as Record<string, object>).flatMap(([path, item]) =>
  Object.keys(item).map((method) => `${method} ${path}`),
);
assert.deepEqual(described.filter((operation) => !succeeded.has(operation)), [], "operations without a call that succeeds");
console.log(`${described.length} operations, ${formatCount} formats`);
