// A dataset whose names and values try to run, to reorder, to hide and to be too much: its pages show them, and nothing
// more happens.
//
//     node hostile.mjs BASE_URL EMAIL PASSWORD TOKEN [axe]
//
// With `axe`, it checks each page for accessibility; otherwise only pages with a form that is filled in.

import assert from "node:assert/strict";

import { Browser, NARROW, WIDE, listen, operations, overflow, signIn, until, violations } from "./support.mjs";

const [baseUrl, email, password, token, everywhere] = process.argv.slice(2);

const RUNS = [
  "<script>globalThis.ran=1</script>",
  "<img src=x onerror=globalThis.ran=1>",
  '"><svg onload=globalThis.ran=1>',
  "' onmouseover='globalThis.ran=1",
  "javascript:globalThis.ran=1",
  "data:text/html,<script>globalThis.ran=1</script>",
  "</td></tr></table><iframe srcdoc='<script>parent.ran=1</script>'>",
  "{{7*7}}${7*7}<%= 7*7 %>",
  "https://elsewhere.invalid/\"onclick=globalThis.ran=1",
];
const FOREIGN = "right to left: שלום עולם مرحبا";
const REORDERS = `\u202e${FOREIGN}\u202c \u2066isolated\u2069 \u200b\u0000\u0007\u001b[31m\u007f\ufeff`;

const wide = Object.fromEntries(Array.from({ length: 800 }, (_, n) => [`path ${n}`, n]));
const entities = [
  ...RUNS.map((text, n) => ({ n, text, [text]: text, deep: { [text]: [text, { [text]: text }] } })),
  { n: 100, text: REORDERS, [REORDERS]: REORDERS },
  { n: 101, text: "x".repeat(1_000_000), long: "many words ".repeat(5_000) },
  { n: 102, ["k".repeat(5_000)]: "a long key" },
  { n: 103, ...wide },
  { n: 104, text: "W".repeat(300), list: Array.from({ length: 2_000 }, (_, n) => n) },
];

const operation = operations(baseUrl, token);
const call = (path, body) => operation("POST", path, body);

const { dataset } = await call("/dataset/create", {
  name: `${RUNS[0]} ${RUNS[2]} x`,
  source: "push",
  listed: true,
  description: `${RUNS[1]} ${FOREIGN} ${"long".repeat(200)}`,
  licence: RUNS[4],
});
const { dataset_id } = dataset;
const receiver = await listen(({ response }) => response.writeHead(500, RUNS[7]).end(RUNS[0]));
const url = `${receiver.base}/<script>globalThis.ran=1</script>?"'<b>`;
await call("/webhook/register", { dataset_id, url, secret: RUNS[0] });
await call("/dataset/refresh", { dataset_id, entities });
const changed = entities.map((entity) => ({ ...entity, [RUNS[1]]: RUNS[6], text: `${RUNS[0]}${entity.text}` }));
await call("/dataset/refresh", { dataset_id, entities: [{ n: -1, text: RUNS[6] }, ...changed.slice(0, -1)] });
const { etag } = await call("/agent/pull_for_edit", { dataset_id, version: 2, limit: 0 });
const edits = [
  { position: 1, set: { ...entities[0], text: REORDERS, [RUNS[2]]: RUNS[3] } },
  { position: 2, remove: true },
  { position: 4, insert: [{ [REORDERS]: RUNS[0] }] },
];
await call("/dataset/alternate/edit", { dataset_id, version: 2, etag, edits });
await call("/token/create", { name: RUNS[1], scope: "read" });
await until(async () => {
  const { deliveries } = await operation("GET", `/webhook/deliveries?dataset_id=${dataset_id}`);
  return deliveries.length === 2 && deliveries.every(({ status, error }) => status !== null || error !== null);
});
const home = `/ui/${dataset.dataset_id}/${encodeURIComponent(dataset.name_slug)}`;
const query = encodeURIComponent(RUNS[0]);
const paths = [
  "/",
  `/?q=${query}`,
  `${home}/active/`,
  `${home}/active/?view=json&limit=12`,
  `${home}/active/?keywords=${encodeURIComponent("script,onerror=,<,&,\"")}`,
  `${home}/active/?filter=text:${query}`,
  `${home}/active/?columns=${encodeURIComponent("text,<script>globalThis.ran=1</script>")}`,
  `${home}/active/?add_path=${query}&add_operator=filter_contains`,
  `${home}/v1/entity/0`,
  `${home}/v1/entity/6`,
  `${home}/v1/entity/9`,
  `${home}/v1/entity/10`,
  `${home}/v1/entity/12`,
  `${home}/v1/profile`,
  `${home}/v2/alt/`,
  `${home}/v2/alt/entity/1`,
  `${home}/v2/alt/profile`,
  `${home}/diff?v1=1&v2=2`,
  `${home}/diff?v1=1&v2=2&view=whole&limit=5`,
  `${home}/diff?v1=2&v2=2&alt=true`,
  `${home}/diff?v1=${query}&v2=${query}`,
  `${home}/v2/alternate`,
  `${home}/v2/alternate/edit?position=1`,
  `${home}/v2/alternate/edit?position=4`,
  `${home}/v2/alternate/edit?position=10`,
  `${home}/v2/alternate/edit?position=11`,
  `${home}/v2/alternate/edit?position=12`,
  `${home}/v2/alternate/edit?position=${query}`,
  `${home}/v2/alternate/add?position=0`,
  `${home}/v2/alternate/remove?position=1`,
  `${home}/v2/alternate/delete`,
  `${home}/refresh?done=${query}&before=${query}`,
  `${home}/webhook`,
  `${home}/webhook/delete`,
  `${home}/usage?days=${query}`,
  "/ui/new",
  `${home}/v1/explain?keywords=${query}&filter=text:${query}`,
  `${home}/versions`,
  `${home}/settings`,
  "/ui/account",
];

const browser = await Browser.start(baseUrl);
const wrong = [];
const context = await browser.session();
const page = await context.newPage();
await signIn(page, email, password);
/** Where forms are filled with them, and what is said of it. */
const FORMS = [
  [
    `${home}/v2/alternate/edit?position=1`,
    async () => {
      await page.getByLabel("Entity as JSON").fill(JSON.stringify({ [RUNS[0]]: RUNS, text: REORDERS }));
      await page.getByRole("button", { name: "Preview changes" }).click();
      await page.getByRole("heading", { name: "Preview of your changes" }).waitFor();
    },
  ],
  [
    `${home}/v2/alternate/edit?position=1`,
    async () => {
      await page.getByLabel("Entity as JSON").fill(`{"a": ${RUNS[0]}`);
      await page.getByRole("button", { name: "Save changes" }).click();
      await page.locator("#problem").waitFor();
    },
  ],
  [
    `${home}/v2/alternate/remove`,
    async () => {
      await page.getByLabel("Positions").fill("0-9");
      await page.getByRole("button", { name: "Preview removal" }).click();
      await page.locator(".compared").first().waitFor();
    },
  ],
  [
    `${home}/refresh`,
    async () => {
      await page.getByLabel("Cron expression (UTC)").fill(RUNS[0]);
      await page.getByRole("button", { name: "Save schedule" }).click();
      await page.locator("#schedule-problem").waitFor();
    },
  ],
  [
    `${home}/refresh`,
    async () => {
      const buffer = Buffer.from(`[{"a":${RUNS[0]}`);
      const name = "<img src=x onerror=globalThis.ran=1>.json";
      await page.getByLabel("File", { exact: true }).setInputFiles({ name, mimeType: "text/html", buffer });
      await page.getByRole("button", { name: "Upload file" }).click();
      await page.locator("#file-problem").waitFor();
    },
  ],
  [
    `${home}/webhook`,
    async () => {
      await page.getByLabel("URL", { exact: true }).fill(RUNS[4]);
      await page.getByRole("button", { name: "Replace webhook" }).click();
      await page.locator("#url-problem").waitFor();
    },
  ],
  [
    "/ui/new",
    async () => {
      await page.getByLabel("Name", { exact: true }).fill(RUNS[0]);
      await page.getByLabel("Fetch from this URL:").check();
      await page.getByLabel("Source URL").fill(RUNS[5]);
      await page.getByRole("button", { name: "Create dataset" }).click();
      await page.locator("#source-problem").waitFor();
    },
  ],
];

/** That nothing of them runs, hides or reorders. */
async function look(path) {
  // What is folded away is there, too.
  await page.evaluate(() => document.querySelectorAll("details").forEach((element) => (element.open = true)));
  for (const element of await page.locator("main td, main summary").all().then((all) => all.slice(0, 20))) {
    await element.dispatchEvent("mouseover");
  }
  for (const viewport of [WIDE, NARROW]) {
    await page.setViewportSize(viewport);
    const over = await overflow(page);
    if (over > 0) wrong.push(`${path}: ${over} px too wide at ${viewport.width} px`);
  }
  const state = await page.evaluate(() => {
    const foreign = "iframe, object, embed, img, svg[onload], a[href^='javascript:'], a[href^='data:']";
    const controls = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u202a-\u202e\u2066-\u2069]/;
    return {
      ran: "ran" in globalThis,
      foreign: [...document.querySelectorAll(foreign)].map((found) => found.outerHTML),
      controls: controls.test(document.querySelector("main").innerText),
    };
  });
  assert.deepEqual(state, { ran: false, foreign: [], controls: false }, path);
  browser.check(path);
}

/** That axe finds nothing. */
async function check(path) {
  wrong.push(...(await violations(page)).map((text) => `${path}: ${text.slice(0, 400)}`));
}

browser.expectErrors(page);
for (const path of paths) {
  await page.goto(path);
  await look(path);
  if (everywhere === "axe") await check(path);
}
for (const [path, fill] of FORMS) {
  await page.goto(path);
  await fill();
  await look(`a form of ${path}`);
  await check(`a form of ${path}`);
}
receiver.close();
assert.equal(wrong.join("\n"), "");
await browser.end();
console.log(`${paths.length + FORMS.length} pages`);
