// Datasets of strings of ten megabytes and of five thousand paths: their pages stay small, axe finds nothing, and the
// console has no error.
//
//     node long_and_wide.mjs BASE_URL EMAIL PASSWORD TOKEN

import assert from "node:assert/strict";

import { Browser, NARROW, WIDE, operations, overflow, signIn, violations } from "./support.mjs";

const [baseUrl, email, password, token] = process.argv.slice(2);
const operation = operations(baseUrl, token);
const call = (path, body) => operation("POST", path, body);

const LONG = 10_000_000;
const PATHS = 5_000;

/** Bytes of the largest page: 200 entities of 2 MiB in all are shown shortened, and much less than that. */
const PAGE_BYTES = 3_000_000;
const EDITOR_PAGE_BYTES = 24 << 20;

/** Makes a dataset of these versions, with an alternate of the last one; returns where its pages are. */
async function make(name, versions, edits) {
  const { dataset } = await call("/dataset/create", { name, source: "push" });
  const { dataset_id } = dataset;
  for (const entities of versions) await call("/dataset/refresh", { dataset_id, entities });
  const version = versions.length;
  const { etag } = await call("/agent/pull_for_edit", { dataset_id, version, limit: 0 });
  await call("/dataset/alternate/edit", { dataset_id, version, etag, edits });
  return `/ui/${dataset_id}/${dataset.name_slug}`;
}

const words = "many words ".repeat(LONG / 11);
const tags = "<b>&".repeat(LONG / 4);
const one = "é".repeat(LONG / 2);
const short = { n: 3, text: "short" };
const long = await make(
  "Long",
  [
    [{ n: 0, text: words }, { n: 1, list: [tags] }, { n: 2, text: one }, short],
    [
      { n: 0, text: `${words}!` },
      { n: 2, text: `!${one}` },
      { ...short, text: "shorter" },
      { n: 4, deep: { text: tags } },
    ],
  ],
  [{ position: 2, set: { ...short, text: "edited" } }, { position: 0, insert: [{ n: -1, text: tags.slice(0, 1_000_000) }] }],
);

const range = (from, to) => Array.from({ length: to - from }, (_, n) => from + n);
const members = (from, to, add) => Object.fromEntries(range(from, to).map((n) => [`path ${n}`, n + add]));
const half = PATHS / 2;
const broad = (add) => ({ n: 0, ...members(0, half, add), in: members(half, PATHS, add) });
const wide = await make(
  "Wide",
  [[broad(0), { n: 1 }], [broad(1), { n: 1, more: true }]],
  [{ position: 0, set: { ...broad(1), "path 7": "edited" } }],
);

const paths = [
  ...[long, wide].flatMap((home) => [
    `${home}/active/`,
    `${home}/active/?view=json`,
    `${home}/active/?sort=n:desc&keywords=words,7`,
    `${home}/v1/entity/0`,
    `${home}/v1/entity/1`,
    `${home}/v1/profile`,
    `${home}/diff?v1=1&v2=2`,
    `${home}/diff?v1=1&v2=2&view=whole`,
    `${home}/diff?v1=2&v2=2&alt=true`,
    `${home}/v2/alt/`,
    `${home}/v2/alt/entity/0`,
    `${home}/v2/alternate`,
    `${home}/v2/alternate/edit?position=0`,
    `${home}/v2/alternate/edit?position=1`,
    `${home}/v2/alternate/remove?positions=0-1`,
  ]),
  `${long}/active/?filter_contains=text:words`,
  `${long}/active/?offset=2`,
  `${long}/v2/alternate/edit?position=3`,
  `${wide}/active/?columns=path+4,in,path+2499`,
  `${wide}/active/?keep_field=in&flatten=true`,
  `${wide}/active/?filter=in.path+4999:4999`,
  `${wide}/v1/profile?q=path+49`,
  `${wide}/v1/profile?from=4980`,
];

const browser = await Browser.start(baseUrl);
const context = await browser.session();
const page = await context.newPage();
await signIn(page, email, password);
const wrong = [];

async function look(where) {
  const bytes = await page.evaluate(() => new Blob([document.documentElement.outerHTML]).size);
  // The editor holds an entity twice: as it was, and as it is.
  if (bytes > (where.includes("/alternate/edit") ? EDITOR_PAGE_BYTES : PAGE_BYTES)) wrong.push(`${where}: ${bytes} bytes`);
  for (const viewport of [WIDE, NARROW]) {
    await page.setViewportSize(viewport);
    const over = await overflow(page);
    if (over > 0) wrong.push(`${where}: ${over} px too wide at ${viewport.width} px`);
  }
  wrong.push(...(await violations(page)).map((text) => `${where}: ${text.slice(0, 400)}`));
  browser.check(where);
}

for (const path of paths) {
  await browser.open(page, path);
  await look(path);
}

// What is too large for the editor is told with the call that changes it all the same.
await browser.open(page, `${long}/v2/alternate/edit?position=1`);
assert.match(await page.locator("main").innerText(), /too large/);
// Five thousand paths are not.
await browser.open(page, `${wide}/v2/alternate/edit?position=0`);
const text = page.getByLabel("Entity as JSON");
const entity = JSON.parse(await text.inputValue());
assert.equal(Object.keys(entity).length + Object.keys(entity.in).length, PATHS + 2);
await text.fill(JSON.stringify({ ...entity, "path 8": "edited, too", new: 1 }));
await page.getByRole("button", { name: "Preview changes" }).click();
await page.locator("#preview").waitFor();
await look("a change of an entity of many paths");
await page.getByRole("button", { name: "Save changes" }).click();
await page.locator(".done").waitFor();
await browser.open(page, `${wide}/diff?v1=2&v2=2&alt=true`);
const changed = await page.locator("table.summary th[scope=row]").allInnerTexts();
assert.deepEqual(changed.sort(), ["new", "path 7", "path 8"]);
// A text that is too long is not sent, and stays.
await browser.open(page, `${long}/v2/alternate/edit?position=3`);
await page.getByLabel("Entity as JSON").fill(JSON.stringify({ text: "x".repeat(6_500_000) }));
await page.getByRole("button", { name: "Preview changes" }).click();
await page.locator(".json-state", { hasText: "the editor accepts at most 6,291,456." }).waitFor();
assert.match(page.url(), /edit\?position=3$/);
await look("a text that is too long");

assert.equal(wrong.join("\n"), "");
await browser.end();
console.log(`${paths.length + 2} pages`);
