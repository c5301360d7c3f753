// What scripts add to pages: keys, columns that are remembered, copying. The parts for pages that hold JSON fields or
// progress are tried on elements that are put into a page before the script comes.
//
//     node island.mjs BASE_URL EMAIL PASSWORD

import assert from "node:assert/strict";

import { Browser, NARROW, WIDE, openQuery } from "./support.mjs";

const [baseUrl] = process.argv.slice(2);
const browser = await Browser.start(baseUrl);
const context = await browser.session({ permissions: ["clipboard-read", "clipboard-write"] });
const page = await context.newPage();
const countries = "/ui/1/world-countries/active/";
const focused = () => page.evaluate(() => document.activeElement?.textContent);
const heads = () => page.locator("[data-columns] thead th:visible").allInnerTexts();

/** Opens a page of entities, and waits for what its script does last, after the page has loaded. */
async function open(path) {
  await page.goto(path);
  await page.locator(".call + .copy").first().waitFor({ state: "attached" });
}

async function keys() {
  await page.goto(`${countries}?limit=10`);
  await page.keyboard.press("j");
  assert.equal(await focused(), "0");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  assert.equal(await focused(), "1");
  await page.keyboard.press("/");
  await page.keyboard.type("jkn/");
  assert.equal(await page.locator("#keywords").inputValue(), "jkn/");
  await page.locator("#keywords").blur();
  await page.keyboard.press("n");
  await page.waitForURL(/offset=10/);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.waitForURL(/entity\/10$/);
}

async function columns() {
  await open(countries);
  const [, first, second] = await heads();
  const panel = page.locator(".choice");
  await panel.locator("summary").click();
  await panel.getByRole("checkbox").first().uncheck();
  assert.equal((await heads())[1], second);
  await panel.getByRole("button", { name: `Move ${second} down`, exact: true }).click();
  const order = await heads();
  // Who presses it again moves it further.
  const label = () => page.evaluate(() => document.activeElement?.getAttribute("aria-label"));
  assert.equal(await label(), `Move ${second} down`);
  await page.keyboard.press("Enter");
  assert.equal((await heads())[3], second);
  await panel.getByRole("button", { name: `Move ${second} up`, exact: true }).press("Enter");
  assert.equal(await label(), `Move ${second} up`);
  assert.equal(order[2], second);
  // They are remembered for all pages of the dataset, and only here.
  await open(`${countries}?limit=50`);
  await panel.locator("summary").waitFor();
  assert.deepEqual(await heads(), order);
  const cells = await page.locator("tbody tr").first().locator("td:visible").count();
  assert.equal(cells, order.length - 1);
  await open(`${countries}?columns=${first},area`);
  assert.equal(await page.locator(".choice").count(), 0);
  assert.deepEqual(await page.locator("thead th").allInnerTexts(), ["#", first, "area"]);
  await open(countries);
  await panel.locator("summary").click();
  await panel.getByRole("checkbox").first().waitFor();
  await page.keyboard.press("Escape");
  await panel.getByRole("checkbox").first().waitFor({ state: "detached" });
  await panel.locator("summary").press("Enter");
  await panel.getByRole("button", { name: "Show all in the original order" }).click();
  assert.deepEqual((await heads()).slice(0, 3), ["#", first, second]);
}

async function fields() {
  const panel = page.locator("details.fields");
  await open(countries);
  assert.notEqual(await panel.getAttribute("open"), null, "there is room beside the entities");
  await panel.locator("> summary").click();
  await open(countries);
  assert.equal(await panel.getAttribute("open"), null, "it is remembered");
  await panel.locator("> summary").click();
  await open(countries);
  assert.notEqual(await panel.getAttribute("open"), null);
  await page.setViewportSize({ width: 800, height: 900 });
  await open(countries);
  assert.equal(await panel.getAttribute("open"), null, "the entities come first");
  await page.setViewportSize({ width: 1200, height: 900 });
}

/** What is made when it is needed alone, and what a small screen shows first. */
async function lightness() {
  await page.setViewportSize(NARROW);
  await open(countries);
  const first = await page.locator("tbody tr").first().boundingBox();
  assert.ok(first.y + first.height < NARROW.height, `the first entity is at ${first.y}`);
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements < 3000, `${elements} elements`);
  const made = page.locator(".fields li");
  assert.equal(await made.count(), 0);
  await page.locator("details.fields > summary").click();
  await made.first().waitFor();
  assert.ok((await made.count()) > 100);
  const completed = page.locator("#paths option");
  assert.equal(await completed.count(), 0);
  await openQuery(page);
  await page.locator("#add_path").focus();
  assert.ok((await completed.count()) > 100);
  // The positions stay when the table is moved sideways.
  const place = () => page.locator("tbody th").first().boundingBox();
  const before = await place();
  await page.locator(".scroll").evaluate((region) => region.scrollTo(200, 0));
  await page.locator(".scroll.moved").waitFor();
  assert.equal((await place()).x, before.x);
  // What is wrong is said in sight of its field, which is unfolded and has the focus.
  browser.expectErrors(page);
  await page.goto(`${countries}?sample=x`);
  await page.waitForFunction(() => document.activeElement?.id === "sample");
  const [field, problem] = await Promise.all(["#sample", "#problem"].map((name) => page.locator(name).boundingBox()));
  assert.ok(problem.y > field.y && problem.y - (field.y + field.height) < 20, "it stands below the field");
  assert.ok(field.y > 0 && problem.y + problem.height < NARROW.height, "both are in sight");
  await page.setViewportSize(WIDE);
}

/** Fields that are folded away: those that hold something are there before the script, the others after it. */
async function folded() {
  const fields = (shown) =>
    shown.locator("details.more :is(input, select)").evaluateAll((all) => all.map(({ name }) => name));
  const query = "filter=region:Europe&sort=area:desc&dedup=true";
  await page.route("**/*.js", (route) => route.fulfill({ contentType: "text/javascript", body: "" }));
  await page.goto(`${countries}?${query}`);
  assert.deepEqual(await fields(page), ["filter", "sort", "dedup"]);
  // A form that is sent before the script has come loses nothing.
  await page.locator("#keywords").fill("land");
  await page.locator("#keywords").press("Enter");
  const sent = new URLSearchParams({ keywords: "land", filter: "region:Europe", sort: "area:desc", dedup: "true" });
  const isSent = (url) => [...sent].every(([name, value]) => url.searchParams.get(name) === value);
  await page.waitForURL((url) => isSent(url) && url.searchParams.size === 4);
  await page.unroute("**/*.js");

  // With scripts and without, a form has the same fields in the same places.
  const plain = await browser.session({ javaScriptEnabled: false });
  const forms = [];
  for (const shown of [page, await plain.newPage()]) {
    await shown.goto(`${countries}?${query}`);
    await openQuery(shown);
    await shown.locator("#seed").waitFor();
    const { width, height } = await shown.locator("details.more").boundingBox();
    forms.push([width, height, ...(await fields(shown))]);
  }
  await plain.close();
  assert.ok(forms[0].length > 15, `${forms[0]}`);
  assert.deepEqual(forms[1], forms[0]);
}

async function copying() {
  await page.goto(`${countries}?limit=2`);
  const call = page.locator(".call + .copy");
  await call.click();
  await page.getByRole("button", { name: "Copied" }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.equal(copied, `${baseUrl}/api/1/world-countries/active/?limit=2`);
  await page.locator(".snippet summary", { hasText: "curl" }).click();
  await page.locator(".snippet[open] .copy").click();
  await page.locator(".snippet[open] .copy", { hasText: "Copied" }).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), `curl '${copied}'`);
}

/** The count of a page that did not wait for it. */
async function counts() {
  const heading = page.locator("#result");
  const query = "filter=region:europe";
  const paths = { page: `${countries}?${query}`, call: `${countries}download?${query}&count=true` };
  let answer = { status: 200, json: { count: 1234 } };
  const isCall = (url) => url.pathname.endsWith("/download");
  const isPage = (url) => url.pathname === countries;
  await page.route(isCall, (route) => route.fulfill(answer));
  const link = `<a href="${paths.page}&amp;total=true" data-count="${paths.call}" data-limit="50">Count</a>`;
  await page.route(isPage, async (route) => {
    const served = await route.fetch();
    const html = (await served.text()).replace(/1 to 50 of \d+ entities/, () => `1 to 50 ${link}`);
    await route.fulfill({ response: served, body: html.replaceAll(/<a [^>]*>Last<\/a>/g, "") });
  });
  await page.goto(paths.page);
  await page.waitForFunction(() => document.querySelector("#result")?.textContent === "1 to 50 of 1,234 entities");
  const last = page.getByRole("link", { name: "Last", exact: true });
  assert.equal(await last.count(), 2);
  assert.match(await last.first().getAttribute("href"), /filter=region%3Aeurope&offset=1200$/);
  browser.expectErrors(page);
  answer = { status: 503, body: "busy" };
  await page.goto(paths.page);
  await page.waitForLoadState("networkidle");
  assert.equal(await heading.innerText(), "1 to 50 Count", "it still leads to the count");
  await page.unroute(isCall);
  await page.unroute(isPage);
}

/** A page with other elements in its place, which the script finds when it comes. */
async function withElements(html) {
  await page.route("**/ui/sign-in", async (route) => {
    const answer = await route.fetch();
    const body = (await answer.text()).replace(/<main id="main" tabindex="-1">/, (main) => main + html);
    await route.fulfill({ response: answer, body });
  });
  await page.goto("/ui/sign-in");
}

async function tooLong() {
  await withElements(
    '<form action="/sent"><label for="json">Entity</label><textarea id="json" data-json data-bytes="30"></textarea>' +
      '<button>Send it</button></form>',
  );
  const state = page.locator(".json-state");
  const says = (wanted) =>
    page.waitForFunction((wanted) => document.querySelector(".json-state").textContent === wanted, wanted);
  // 31 bytes, of 20 characters.
  const text = `{"a":"${"é".repeat(11)}x"}`;
  await page.locator("#json").fill(text);
  await says("The text is 31 bytes long, but the editor accepts at most 30.");
  await page.getByRole("button", { name: "Send it" }).click();
  assert.equal(new URL(page.url()).pathname, "/ui/sign-in");
  assert.equal(await page.locator("#json").inputValue(), text);
  assert.equal(await state.getAttribute("class"), "json-state failed");
  await page.locator("#json").fill(text.replace("x", ""));
  await says("");
  await page.getByRole("button", { name: "Send it" }).click();
  await page.waitForURL("**/sent*");
}

async function json() {
  await withElements('<label for="json">Entity</label><textarea id="json" data-json></textarea>');
  const state = page.locator(".json-state");
  const cases = [
    ['{"n": 123456789012345678901234567890.0, "a": [1e400, -0, "\\u00e9\\n"]}', ""],
    ["", ""],
    ['{"a": 1,\n "b": 01}', "Line 2, column 7: this is not a JSON value."],
    ['{"a": [1, 2}', "Line 1, column 12: “,” or “]” is missing."],
    ['{"a" 1}', "Line 1, column 6: “:” is missing."],
    ["{'a': 1}", "Line 1, column 2: expected a key in double quotes."],
    ['{"é🦀": tru}', "Line 1, column 8: this is not a JSON value."],
    ['{"a": "a\nb"}', "Line 1, column 9: strings cannot contain line breaks or control characters: write \\n."],
    ['{"a": "\\x"}', "Line 1, column 8: invalid escape sequence."],
    ['{"a": "\\ud83e\\udd80 \\uD83E\\uDD80"}', ""],
    ['{"a": "\\ud83e"}', "Line 1, column 8: unpaired surrogate."],
    ['{"a": "\\uDD80\\ud83e"}', "Line 1, column 8: unpaired surrogate."],
    ['{"a": [1,]}', "Line 1, column 10: this is not a JSON value."],
    ["{} 2", "Line 1, column 4: unexpected text after the value."],
    ["[1, 2]", "Line 1, column 1: an entity must be an object: “{” is missing."],
    [`{"a":${"[".repeat(128)}${"]".repeat(128)}}`, "Line 1, column 133: more than 128 nesting levels."],
    [`{"a":${"[".repeat(127)}1${"]".repeat(127)}}`, ""],
  ];
  for (const [text, expected] of cases) {
    await page.locator("#json").fill(text);
    await page.waitForFunction((wanted) => document.querySelector(".json-state").textContent === wanted, expected);
    assert.equal(await page.locator("#json").inputValue(), text);
    assert.equal(await page.locator("#json").getAttribute("aria-invalid"), String(expected !== ""));
  }
  assert.equal(await state.count(), 1);
  await page.unroute("**/ui/sign-in");
  // Where there may be several.
  await withElements('<label for="json">Entities</label><textarea id="json" data-json="several"></textarea>');
  for (const [text, expected] of [
    ["[{}, 1]", "Line 1, column 6: an entity must be an object: “{” is missing."],
    ['[{"a": 1}, {}]', ""],
    ["[[{}]]", "Line 1, column 2: an entity must be an object: “{” is missing."],
    ["[]", ""],
    ["[{},]", "Line 1, column 5: an entity must be an object: “{” is missing."],
    ["{}", ""],
  ]) {
    await page.locator("#json").fill(text);
    await page.waitForFunction((wanted) => document.querySelector(".json-state").textContent === wanted, expected);
  }
  await page.unroute("**/ui/sign-in");
}

async function events() {
  let opened = 0;
  let isShown;
  const shown = new Promise((resolve) => (isShown = resolve));
  await page.route("**/ui/events-of-a-test", async (route) => {
    opened += 1;
    // The next page replaces what the first event shows, so that it must have been seen.
    if (opened === 2) await shown;
    const progress = 'data: {"stage":"<b>new</b>","bytes":1234567,"entities":89,"written":1}\n\n';
    // A stream that ends is opened again by the browser. The last event opens the page again.
    const body = opened === 1 ? `retry: 200\n${progress}` : 'data: {"stage":"done","version":3}\n\n';
    await route.fulfill({ status: 200, headers: { "content-type": "text/event-stream" }, body });
  });
  const parts = ["stage", "bytes", "entities"].map((name) => `<p data-${name}></p>`).join("");
  const again = '<a href="/ui/sign-in?next=%2Fagain" data-again>Look again</a>';
  await withElements(`<div data-events="/ui/events-of-a-test">${parts}${again}</div>`);
  const expected = "<b>new</b>1.2 MB89Look again";
  await page.waitForFunction((text) => document.querySelector("[data-events]")?.textContent === text, expected);
  isShown();
  await page.waitForURL(/next=%2Fagain$/);
  await page.unroute("**/ui/sign-in");

  // So does a refusal, as there is none to follow any more.
  await page.route("**/ui/events-of-a-test", (route) => route.fulfill({ status: 204 }));
  await withElements(`<div data-events="/ui/events-of-a-test">${parts}${again}</div>`);
  await page.waitForURL(/next=%2Fagain$/);
  await page.unroute("**/ui/sign-in");
}

/** A form is sent once however often its button is pressed, and again when something is changed in it. */
async function once() {
  let sent = 0;
  await page.route("**/ui/sent-once", async (route) => {
    sent += 1;
    // No content: the page stays, as while an answer is on its way.
    await route.fulfill({ status: 204 });
  });
  await withElements(
    '<form id="once" method="post" action="/ui/sent-once"><label for="text">Text</label>' +
      '<input id="text" name="text"><button type="submit">Send it once</button></form>',
  );
  const button = page.getByRole("button", { name: "Send it once" });
  const answered = () => page.waitForResponse("**/ui/sent-once");
  await Promise.all([answered(), button.click()]);
  await button.click();
  await button.click();
  assert.equal(await page.locator("#once").getAttribute("data-sent"), "");
  await page.locator("#text").fill("more");
  await Promise.all([answered(), button.click()]);
  assert.equal(sent, 2);
  await page.unroute("**/ui/sent-once");
  await page.unroute("**/ui/sign-in");
}

for (const part of [keys, columns, fields, folded, lightness, counts, copying, tooLong, json, events, once]) await part();
await context.close();
await browser.end();
console.log("done");
