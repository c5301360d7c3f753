// A dataset whose names and values try to run, to reorder, to hide and to be too much: its pages show them, and nothing
// more happens.
//
//     node hostile.mjs BASE_URL EMAIL PASSWORD TOKEN

import assert from "node:assert/strict";

import { Browser, NARROW, WIDE, overflow, signIn, violations } from "./support.mjs";

const [baseUrl, email, password, token] = process.argv.slice(2);

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

async function call(path, body) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const answer = await fetch(baseUrl + path, { method: "POST", headers, body: JSON.stringify(body) });
  assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

const { dataset } = await call("/dataset/create", {
  name: `${RUNS[0]} ${RUNS[2]} x`,
  source: "push",
  listed: true,
  description: `${RUNS[1]} ${FOREIGN} ${"long".repeat(200)}`,
  licence: RUNS[4],
});
await call("/dataset/refresh", { dataset_id: dataset.dataset_id, entities });
await call("/token/create", { name: RUNS[1], scope: "read" });
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
for (const path of paths) {
  for (const viewport of [WIDE, NARROW]) {
    await page.setViewportSize(viewport);
    await browser.open(page, path);
    // What is folded away is there, too.
    await page.evaluate(() => document.querySelectorAll("details").forEach((element) => (element.open = true)));
    for (const element of await page.locator("main td, main summary").all().then((all) => all.slice(0, 20))) {
      await element.dispatchEvent("mouseover");
    }
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
  wrong.push(...(await violations(page)).map((text) => `${path}: ${text.slice(0, 400)}`));
}
assert.equal(wrong.join("\n"), "");
await browser.end();
console.log(`${paths.length} pages`);
