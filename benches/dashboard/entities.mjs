// Measures when pages with many entities are ready in a browser, compared with the responses to the corresponding API
// calls in the same browser. Prints a line for each page.
//
//     node entities.mjs BINARY ENTITIES
//
// The API call is the one that the page shows. `fetch` on a page of the same server reads the response to its last
// byte. A page is ready when its load event has ended: its entities are laid out, and its links and forms work. Copy
// buttons and the column selection work right after that. The browser has cached the style sheet and the script of the
// previous page, as when users navigate. It has not cached anything of the dataset.
//
// The browser has shown pages before, but none with this server's data. One line is about new windows that have shown
// only a page without data, after the browser has finished its own initialization of the window.
//
// "API" is the time until the last byte of the API response, "body" the time until the last byte of the page, and
// "ready" the time until the page is ready. "extra" is the difference between "ready" and "API". The first line is a
// page without data, as a lower limit.
//
// "first" uses a new server for each request, and "repeated" uses a server that has responded to the same request
// before. Both are medians of several rounds, in which page and API call alternate. "extra" should be at most 50 ms.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import puppeteer from "puppeteer-core";

const [binary, number] = process.argv.slice(2);
const entities = Number(number);
const FIRSTS = 15;
const ROUNDS = 15;
/** The milliseconds in which a browser finishes the initialization of a new window. */
const SETTLE_TIME = 2500;
const HOME = "/ui/1/many/active/";
const PAGES = [
  ["a page without data", null],
  ["the first page", ""],
  ["first page, new window", "", { inNewWindows: true }],
  ["the last page", `?offset=${entities - 50}`],
  ["a filter, one in ten", "?filter=group:group+3"],
  ["a filter, one entity", `?filter=name:name+${entities - 1}`],
  ["last page of a filter", `?filter=group:group+3&offset=${entities / 10 - 50}`],
  ["a sort", "?sort=score:desc"],
  ["a filter and a sort", "?filter=group:group+3&sort=score:desc"],
  ["a range", `?filter_gte=score:${entities / 4}&filter_lt=score:${entities / 2}`],
  ["a keyword", `?keywords=name+${entities - 1}`],
  ["a substring", "?filter_contains=name:99"],
];

const work = mkdtempSync(join(tmpdir(), "strata-entities-"));
const environment = { ...process.env, STRATA_LIMITS__PUBLIC_PER_MINUTE: "0" };
const options = { cwd: work, env: environment };

/** Runs a command to its end. */
async function run(input, ...words) {
  const child = spawn(binary, words, { ...options, stdio: ["pipe", "ignore", "inherit"] });
  child.stdin.end(input);
  const [code] = await once(child, "exit");
  if (code !== 0) throw new Error(`${words[0]} ends with ${code}`);
}

async function prepare() {
  await run("the password of Ada\n", "user", "add", "ada@example.test", "--plan", "free");
  const file = createWriteStream(join(work, "many.jsonl"));
  for (let n = 0; n < entities; n += 1) {
    const line = { n, group: `group ${n % 10}`, score: (n * 7919) % entities, name: `name ${n}`, at: { x: n % 360 } };
    if (!file.write(`${JSON.stringify(line)}\n`)) await once(file, "drain");
  }
  file.end();
  await once(file, "finish");
  await run("", "import", "many.jsonl", "--name", "Many", "--owner", "ada@example.test");
  rmSync(join(work, "many.jsonl"));
}

/** Starts a server, passes its URL to `use`, and stops it. */
async function withServer(use) {
  const stdio = ["ignore", "pipe", "ignore"];
  const child = spawn(binary, ["serve", "--listen", "127.0.0.1:0"], { ...options, stdio });
  try {
    for await (const line of createInterface({ input: child.stdout })) {
      if (line.startsWith("listening on ")) return await use(line.slice("listening on ".length));
    }
    throw new Error("the server has ended");
  } finally {
    child.kill();
    await once(child, "exit");
  }
}

/** Opens a window and waits until the browser has initialized it. */
async function openWindow(browser) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  await new Promise((resolve) => setTimeout(resolve, SETTLE_TIME));
  return page;
}

/** Opens a page without data and passes functions that measure other pages to `use`. */
async function visit(page, baseUrl, use) {
  const openWithoutData = () => page.goto(`${baseUrl}/ui/sign-in`, { waitUntil: "load" });
  await openWithoutData();
  /** Returns the milliseconds until the last byte of a page, and until the page is ready. */
  const open = async (path) => {
    await openWithoutData();
    const response = await page.goto(baseUrl + path, { waitUntil: "load" });
    if (response.status() !== 200) throw new Error(`${path}: ${response.status()}`);
    await page.waitForFunction(() => performance.getEntriesByType("navigation")[0].loadEventEnd > 0);
    return page.evaluate(() => {
      const { responseEnd, loadEventEnd } = performance.getEntriesByType("navigation")[0];
      return { body: responseEnd, ready: loadEventEnd };
    });
  };
  /** Returns the milliseconds until the last byte of the response to an API call. */
  const callApi = async (path) => {
    await openWithoutData();
    return page.evaluate(async (path) => {
      const begun = performance.now();
      const response = await fetch(path, { cache: "no-store" });
      await response.text();
      if (!response.ok) throw new Error(`${path}: ${response.status}`);
      return performance.now() - begun;
    }, path);
  };
  const shownCall = () => page.$eval(".call a", (link) => link.getAttribute("href"));
  return use({ open, callApi, shownCall });
}

const median = (values) => values.toSorted((one, other) => one - other)[Math.floor(values.length / 2)];
const milliseconds = (value) => value.toFixed(1).padStart(8);

await prepare();
const chromium = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
const browser = await puppeteer.launch({ executablePath: chromium, args });
try {
  const known = await openWindow(browser);
  const inKnown = (use) => withServer((baseUrl) => visit(known, baseUrl, use));
  const inNew = (use) =>
    withServer(async (baseUrl) => {
      const page = await openWindow(browser);
      const result = await visit(page, baseUrl, use);
      await page.browserContext().close();
      return result;
    });
  // The browser's one-time initialization, such as reading fonts, happens here.
  await inKnown(({ open }) => open(HOME));
  console.log(`${entities.toLocaleString("en-US")} entities, milliseconds`);
  const heads = ["API", "body", "ready", "extra"].map((head) => head.padStart(8)).join("");
  console.log(`${"".padEnd(24)}${"first".padStart(32)}     ${"repeated".padStart(32)}`);
  console.log(`${"".padEnd(24)}${heads}     ${heads}`);
  for (const [name, query, { inNewWindows = false } = {}] of PAGES) {
    const first = inNewWindows ? inNew : inKnown;
    const path = query === null ? "/ui/sign-in?next=/" : HOME + query;
    const api = await first(async ({ open, shownCall }) => {
      await open(path);
      return query === null ? "/healthz" : shownCall();
    });
    const firsts = { api: [], page: [] };
    for (let round = 0; round < FIRSTS; round += 1) {
      firsts.api.push(await first(({ callApi }) => callApi(api)));
      firsts.page.push(await first(({ open }) => open(path)));
    }
    const repeated = inNewWindows ? null : await inKnown(async ({ callApi, open }) => {
      const times = { api: [], page: [] };
      await callApi(api);
      await open(path);
      for (let round = 0; round < ROUNDS; round += 1) {
        times.api.push(await callApi(api));
        times.page.push(await open(path));
      }
      return times;
    });
    const shown = [firsts, repeated].filter(Boolean).map(({ api, page }) => {
      const call = median(api);
      const body = median(page.map((times) => times.body));
      const ready = median(page.map((times) => times.ready));
      return [call, body, ready, ready - call].map(milliseconds).join("");
    });
    console.log(`${name.padEnd(24)}${shown.join("     ")}`);
  }
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
