// How an owner gets a dataset from nothing to a signed webhook, compares its versions and edits an alternate that
// another session edits, too, with scripts or without.
//
//     node changes.mjs BASE_URL EMAIL PASSWORD TOKEN with|without

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Browser, listen, operations, signIn, until } from "./support.mjs";

const [baseUrl, email, password, token, mode] = process.argv.slice(2);
const call = operations(baseUrl, token);

/** The slow source that is being asked for, and what the receiver of webhooks has got. */
let slow = null;
const posts = [];
const server = await listen(({ request, response, body }) => {
  if (request.url.startsWith("/hook")) {
    posts.push({ body, signature: request.headers["x-service-signature"] });
    response.writeHead(204).end();
  } else {
    response.writeHead(200, { "Content-Type": "application/jsonl" });
    response.write('{"n":1}\n'.repeat(10_000));
    slow = response;
  }
});

const button = (page, name) => page.getByRole("button", { name, exact: true }).click();
const link = (page, name) => page.getByRole("link", { name, exact: true }).click();
const tab = (page, name) => link(page.getByRole("navigation", { name: "Pages of this dataset" }), name);
const history = (page) => page.locator("section[aria-labelledby=history] tbody tr").first();

/** Makes a dataset by the form; returns where its pages are. */
async function create(page, name, source) {
  await page.goto("/");
  await link(page, "New dataset");
  await page.getByLabel("Name", { exact: true }).fill(name);
  if (source) {
    await page.getByLabel("Fetch from this URL:").check();
    await page.getByLabel("Source URL").fill(source);
  }
  await button(page, "Create dataset");
  await page.waitForURL(/\/refresh$/);
  return new URL(page.url()).pathname.replace(/\/refresh$/, "");
}

async function upload(page, home, name, text) {
  await page.goto(`${home}/refresh`);
  const file = { name, mimeType: "application/octet-stream", buffer: Buffer.from(text) };
  await page.getByLabel("File", { exact: true }).setInputFiles(file);
  await button(page, "Upload file");
}

async function uploads(page, home) {
  await upload(page, home, "stations.csv", 'station,bikes,"city, part"\nA,1,Köln\nB,2,Paris\nC,3,Porto\n');
  await page.locator(".done", { hasText: "Version 1 was created with 3 entities." }).waitFor();
  await link(page, "version 1");
  assert.equal(await page.locator("#result").innerText(), "1 to 3 of 3 entities");
  await upload(page, home, "stations.json", '[{"station":"A"},\n {"station":');
  assert.match(await page.locator("#file-problem").innerText(), /item 2/);
  assert.match(await history(page).innerText(), /item 2/);
}

async function schedule(page) {
  const field = page.getByLabel("Cron expression (UTC)");
  await field.fill("0 2 * *");
  await button(page, "Save schedule");
  await page.locator("#schedule-problem").waitFor();
  assert.equal(await field.inputValue(), "0 2 * *");
  await field.fill("0 2 * * *");
  await button(page, "Preview next runs");
  await page.getByRole("heading", { name: "Next five runs if you save this schedule" }).waitFor();
  assert.equal(await page.locator(".times li").count(), 5);
  await button(page, "Save schedule");
  await page.locator(".done", { hasText: "The schedule was saved." }).waitFor();
  assert.equal(await page.locator(".times li").count(), 5);
}

/** A refresh that is watched until it ends, on a page that nobody touches. */
async function progress(page, scripts) {
  slow = null;
  await button(page, "Refresh now");
  const running = page.getByRole("heading", { name: "A refresh is running" });
  await running.waitFor();
  const bytes = page.locator("[data-bytes]");
  if (scripts) {
    slow.write('{"n":2}\n'.repeat(50_000));
    await until(async () => (await bytes.innerText()) === "480 kB");
    assert.match(await page.locator("[data-entities]").innerText(), /^[\d,]+$/);
  }
  slow.end('{"n":3}\n');
  await running.waitFor({ state: "detached" });
  assert.match(await history(page).innerText(), /you.*version 1/s);
}

async function ping(page) {
  await button(page, "Show ping URL");
  const shown = page.locator("#ping");
  const before = await shown.inputValue();
  assert.match(before, /\/ping\//);
  await page.locator("section[aria-labelledby=by-ping] summary").click();
  await button(page, "Replace ping URL");
  await page.locator(".done").waitFor();
  assert.notEqual(await shown.inputValue(), before);
  assert.equal((await fetch(before)).status, 404);
}

/** What the program of the page says of what came. */
async function checked(page, { body, signature }, secret) {
  const snippet = page.locator(".snippet", { hasText: "JavaScript" });
  const program = await snippet.locator("code").textContent();
  const directory = mkdtempSync(join(tmpdir(), "strata-webhook-"));
  writeFileSync(join(directory, "check.cjs"), program);
  writeFileSync(join(directory, "body.json"), body);
  const env = { ...process.env, SIGNATURE: signature, WEBHOOK_SECRET: secret };
  const said = execFileSync(process.execPath, ["check.cjs"], { cwd: directory, env, encoding: "utf8" });
  rmSync(directory, { recursive: true });
  return said.trim();
}

async function webhook(page, home, scripts) {
  await tab(page, "Webhook");
  await page.getByLabel("URL", { exact: true }).fill(`${server.base}/hook`);
  await page.getByLabel("Sign with a new secret that strata generates and shows only once").check();
  await button(page, "Register webhook");
  const secret = await page.locator("#made").inputValue();
  const copy = page.locator("#made + .copy");
  if (scripts) await copy.waitFor();
  else assert.equal(await copy.count(), 0);
  posts.length = 0;
  await upload(page, home, "stations.json", JSON.stringify(STATIONS));
  await page.locator(".done").waitFor();
  const [post] = await until(() => posts.length && posts);
  await tab(page, "Webhook");
  assert.equal(await page.locator("#made").count(), 0);
  assert.equal(await checked(page, post, secret), "genuine");
  assert.equal(await checked(page, post, `${secret}x`), "forged");
  assert.equal(JSON.parse(post.body).entity_count, STATIONS.length);
  const delivery = page.locator("section[aria-labelledby=deliveries] tbody tr").first();
  await until(async () => {
    await page.reload();
    return (await delivery.innerText()).includes("status 204");
  });
  await link(page, "Delete webhook…");
  await button(page, "Delete webhook");
  await page.locator(".done", { hasText: "The webhook was deleted." }).waitFor();
  assert.equal(await delivery.count(), 1);
}

const STATIONS = [
  { station: "A", bikes: 1, "city, part": "Köln", at: { lat: 50.9, lon: 6.9 } },
  { station: "B", bikes: 20, "city, part": "Paris" },
  { station: "D", bikes: 4, "city, part": "Gdańsk", open: true },
];

async function usage(page, home) {
  const answer = await fetch(`${baseUrl}${home.replace("/ui/", "/api/")}/active/`);
  await fetch(answer.url, { headers: { "If-None-Match": answer.headers.get("etag") } });
  await tab(page, "Usage");
  assert.equal(await page.locator(".chart").count(), 2);
  const total = await page.locator("tfoot td").allInnerTexts();
  assert.ok(Number(total[0]) >= 2 && Number(total[1]) >= 1, total.join());
  await link(page, "7 days");
  await page.getByRole("heading", { name: "Requests in the last 7 days" }).waitFor();
}

async function diff(page) {
  await tab(page, "Versions");
  await page.getByLabel("Compare version").fill("1");
  await page.getByLabel("with version").fill("2");
  await button(page, "Compare");
  await page.getByRole("heading", { name: /^Version 1 and version 2/ }).waitFor();
  const records = page.locator(".record");
  const all = await records.count();
  const kinds = page.getByRole("navigation", { name: "Change types" });
  await kinds.getByRole("link", { name: /^Changed/ }).click();
  await page.waitForURL(/change_type=modified/);
  const changed = await records.count();
  assert.ok(changed > 0 && changed <= all);
  // An entity side by side: what differs is marked, and what is equal comes when it is asked for.
  assert.ok((await page.locator(".record del").count()) > 0 && (await page.locator(".record ins").count()) > 0);
  assert.equal(await page.locator(".compared tr.same").count(), 0);
  assert.match(await page.locator("table.summary").innerText(), /bikes/);
  await link(page, "Show unchanged fields");
  await page.waitForURL(/view=whole/);
  assert.ok((await page.locator(".compared tr.same").count()) > 0);
  await kinds.getByRole("link", { name: /^Removed/ }).click();
  await page.waitForURL(/change_type=subtracted/);
  assert.equal(await records.count(), 1);
  await link(page, "Summary by path");
  await page.locator("table.summary").waitFor();
}

const text = (page) => page.getByLabel("Entity as JSON");

async function edits(page, other, home, scripts) {
  await page.goto(`${home}/v2/entity/1`);
  await link(page, "Edit in the alternate");
  const before = await text(page).inputValue();
  assert.deepEqual(JSON.parse(before), STATIONS[1]);

  // A mistake is told, while one types or when it is sent, and the text stays.
  const broken = before.replace("20", "020");
  await text(page).fill(broken);
  if (scripts) {
    await page.locator(".json-state", { hasText: "Line 3, column 12: this is not a JSON value." }).waitFor();
  }
  await button(page, "Preview changes");
  assert.match(await page.locator("#problem").innerText(), /line 3/i);
  assert.equal(await text(page).inputValue(), broken);

  await text(page).fill(before.replace("20", "21"));
  await button(page, "Preview changes");
  assert.match(await page.locator("#preview ~ .scroll tbody tr").innerText(), /bikes.*20.*21/s);
  await button(page, "Save changes");
  await page.locator(".done", { hasText: "Your changes were saved. The alternate now has 3 entities." }).waitFor();

  // Of two editors, the second one is told, and merges.
  const editor = `${home}/v2/alternate/edit?position=1`;
  await page.goto(editor);
  await other.goto(editor);
  await text(other).fill((await text(other).inputValue()).replace("21", "22"));
  await button(other, "Save changes");
  await other.locator(".done").waitFor();
  await text(page).fill((await text(page).inputValue()).replace("Paris", "Lyon"));
  await button(page, "Save changes");
  await page.locator(".problem", { hasText: "Another user saved changes first" }).waitFor();
  assert.match(await page.locator("#theirs ~ .scroll").first().innerText(), /bikes.*21.*22/s);
  assert.match(await text(page).inputValue(), /Lyon/);
  await button(page, "Merge my changes");
  await page.locator(".note", { hasText: "Your changes were merged" }).waitFor();
  await button(page, "Save changes");
  await page.locator(".done").waitFor();
  const api = `${baseUrl}${home.replace("/ui/", "/api/")}/v2`;
  const alternate = async () => (await fetch(`${api}/alt/`)).json();
  assert.deepEqual((await alternate())[1], { ...STATIONS[1], bikes: 22, "city, part": "Lyon" });

  await link(page, "Add entities");
  await page.getByLabel("Entity as JSON, or an array of entities").fill('[{"station":"E"},{"station":"F"}]');
  await button(page, "Save changes");
  await link(page, "Remove entities");
  await page.getByLabel("Positions").fill("0, 3");
  await button(page, "Preview removal");
  await page.getByRole("button", { name: /^Remove/ }).click();
  await page.locator(".done", { hasText: "The alternate now has 3 entities." }).waitFor();
  assert.deepEqual((await alternate()).map(({ station }) => station), ["B", "D", "F"]);
  await link(page, "View changes");
  await page.getByRole("heading", { name: /^Version 2 and version 2, alternate/ }).waitFor();
  assert.equal(await page.locator(".record").count(), 4);

  await page.goto(`${home}/v2/alternate`);
  await link(page, "Delete alternate…");
  await button(page, "Delete alternate");
  await page.locator(".done", { hasText: "The alternate was deleted." }).waitFor();
  assert.equal((await fetch(`${api}/alt/`)).status, 404);
  assert.deepEqual(await (await fetch(`${api}/`)).json(), STATIONS);
}

const browser = await Browser.start(baseUrl);
const scripts = mode === "with";
const name = scripts ? "Changes with scripts" : "Changes without scripts";
const context = await browser.session({ javaScriptEnabled: scripts });
const page = await context.newPage();
const colleague = await browser.session({ javaScriptEnabled: scripts });
const other = await colleague.newPage();
for (const one of [page, other]) {
  browser.expectErrors(one);
  await signIn(one, email, password);
}
const home = await create(page, name);
await uploads(page, home);
await webhook(page, home, scripts);
await usage(page, home);
await diff(page);
await edits(page, other, home, scripts);

await create(page, `${name}, fetched`, `${server.base}/slow.jsonl?key=secret`);
await schedule(page);
await progress(page, scripts);
await ping(page);
browser.check(name);
await context.close();
await colleague.close();
// Nothing of it has happened elsewhere.
const { datasets } = await call("GET", "/dataset/list");
assert.equal(datasets.length, 2);
await browser.end();
server.close();
console.log("done");
