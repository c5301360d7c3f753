// A dataset of many entities: paged to the last one, filtered by a click in the tree of paths, sorted and counted.
//
//     node large.mjs BASE_URL ENTITIES
//
// The dataset is the only one, and ENTITIES a multiple of 500 that 7919 does not divide: entity N has `n` N, a `group`
// of ten, and a `score` of its own below ENTITIES.

import assert from "node:assert/strict";

import { Browser, openFields, violations } from "./support.mjs";

const [baseUrl, number] = process.argv.slice(2);
const entities = Number(number);
const home = "/ui/1/large";
const shown = (value) => value.toLocaleString("en-US");

const browser = await Browser.start(baseUrl);
const context = await browser.session();
const page = await context.newPage();
const wrong = [];

const link = (name, within = page) => within.getByRole("link", { name, exact: true }).first().click();
const result = () => page.locator("#result").innerText();
const is = async (first, last, all) => {
  // The number may come after the page.
  await page.locator("#result", { hasText: /entities$/ }).waitFor();
  assert.equal(await result(), `${shown(first)} to ${shown(last)} of ${shown(all)} entities`);
};

/** The cells of a column, as they are shown. */
async function cells(name) {
  const heads = await page.locator("thead th").allInnerTexts();
  const column = heads.findIndex((head) => head.startsWith(name));
  assert.ok(column >= 0, `${name} of ${heads}`);
  return page.locator(`tbody tr > :nth-child(${column + 1})`).allInnerTexts();
}

const numbers = async (name) => (await cells(name)).map(Number);

async function look(where) {
  wrong.push(...(await violations(page)).map((text) => `${where}: ${text}`));
  browser.check(where);
}

async function pages() {
  await browser.open(page, `${home}/active/`);
  await is(1, 50, entities);
  assert.deepEqual((await numbers("n")).slice(0, 3), [0, 1, 2]);
  await link("Next");
  await page.waitForURL(/offset=50$/);
  await is(51, 100, entities);
  await link("Last");
  await page.waitForURL(new RegExp(`offset=${entities - 50}$`));
  await is(entities - 49, entities, entities);
  assert.equal((await numbers("n")).at(-1), entities - 1);
  assert.equal(await page.getByRole("link", { name: "Next", exact: true }).count(), 0);
  await look("the last page");
  await page.locator("tbody tr").last().getByRole("link").first().click();
  await page.waitForURL(new RegExp(`/entity/${entities - 1}$`));
  await page.getByText(`name ${entities - 1}`).first().waitFor();
  await look("the last entity");
  await browser.open(page, `${home}/active/?offset=${entities - 50}`);
  await link("Previous");
  await page.waitForURL(new RegExp(`offset=${entities - 100}$`));
  await is(entities - 99, entities - 50, entities);
}

async function filters() {
  await browser.open(page, `${home}/active/`);
  await openFields(page);
  const group = page.locator(".fields > ul > li").filter({ has: page.locator("code", { hasText: /^group$/ }) });
  await group.locator("summary").click();
  await link("group 3", group);
  await page.waitForURL(/filter=group/);
  await is(1, 50, entities / 10);
  assert.deepEqual([...new Set(await cells("group"))], ["group 3"]);
  await link("Last");
  await page.waitForURL(/offset=/);
  await is(entities / 10 - 49, entities / 10, entities / 10);
  assert.equal((await numbers("n")).at(-1), entities - 7);
  await look("filtered");
  await browser.open(page, `${home}/active/?filter=name:name+${entities - 1}`);
  assert.equal(await result(), "1 of 1 entity");
  await browser.open(page, `${home}/active/?keywords=name+${entities - 1}`);
  assert.equal(await result(), "1 of 1 entity");
  assert.equal(await page.locator("tbody mark").first().innerText(), `name ${entities - 1}`);
}

async function sorts() {
  await browser.open(page, `${home}/active/`);
  await link("score");
  await page.waitForURL(/sort=score/);
  assert.deepEqual(await numbers("score"), Array.from({ length: 50 }, (_, place) => place));
  await link("Last");
  await page.waitForURL(/offset=/);
  assert.equal((await numbers("score")).at(-1), entities - 1);
  await browser.open(page, `${home}/active/?sort=score:desc&filter=group:group+0`);
  await is(1, 50, entities / 10);
  const [first, ...rest] = await numbers("score");
  assert.ok(rest.every((score, place) => score < (place ? rest[place - 1] : first)), `${first}, ${rest}`);
  await look("sorted");
}

async function counts() {
  await browser.open(page, `${home}/active/?count=true`);
  assert.equal(await page.locator(".big").innerText(), `${shown(entities)} entities`);
  await browser.open(page, `${home}/active/?count=true&filter=group:group+7&filter_lt=n:${entities / 2}`);
  assert.equal(await page.locator(".big").innerText(), `${shown(entities / 20)} entities`);
  await browser.open(page, `${home}/active/profile`);
  await page.getByRole("link", { name: "Histogram with round boundaries of score" }).click();
  await page.getByText("Each range includes its lower bound").waitFor();
  const bars = await page.locator("table:has(a[tabindex='-1']) td.number").allInnerTexts();
  const sum = bars.map((bar) => Number(bar.split(" ")[0].replaceAll(",", ""))).reduce((one, other) => one + other);
  assert.equal(sum, entities);
  await look("the histogram");
}

for (const part of [pages, filters, sorts, counts]) await part();
assert.equal(wrong.join("\n"), "");
await browser.end();
console.log("done");
