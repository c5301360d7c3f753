// Measures pages with Lighthouse, as on a slow phone, and prints a line for each.
//
//     node pages.mjs BASE_URL
//
// Fails if accessibility or best practices score below 100, if performance scores below 95, or if the first page takes
// more than 100 KB.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import lighthouse from "lighthouse";

const [baseUrl] = process.argv.slice(2);
const PAGES = ["/", "/ui/1/world-countries/active/", "/ui/1/world-countries/versions"];
const MIN_SCORES = { performance: 95, accessibility: 100, "best-practices": 100 };
const CATEGORIES = Object.keys(MIN_SCORES);
const MAX_FIRST_PAGE_BYTES = 100_000;

/** Returns an unused port of the loopback interface. */
async function freePort() {
  const server = createServer();
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const { port } = server.address();
  await new Promise((closed) => server.close(closed));
  return port;
}

const profile = mkdtempSync(join(tmpdir(), "strata-lighthouse-"));
const port = await freePort();
const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
const chromium = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
const own = [`--user-data-dir=${profile}`, `--remote-debugging-port=${port}`, "about:blank"];
const browser = spawn(chromium, [...flags, ...quiet, ...own], { stdio: "ignore" });
let failed = false;
try {
  for (let tries = 0; ; tries += 1) {
    const response = await fetch(`http://127.0.0.1:${port}/json/version`).catch(() => null);
    if (response?.ok) break;
    if (tries > 100) throw new Error("Chromium does not respond");
    await new Promise((later) => setTimeout(later, 100));
  }
  for (const path of PAGES) {
    const result = await lighthouse(baseUrl + path, { port, onlyCategories: CATEGORIES, logLevel: "error" });
    const { categories, audits } = result.lhr;
    const scores = CATEGORIES.map((name) => [name, Math.round(categories[name].score * 100)]);
    const bytes = audits["total-byte-weight"].numericValue;
    const shown = scores.map(([name, score]) => `${name} ${score}`).join(", ");
    console.log(`${path}: ${shown}, ${Math.round(bytes / 1000)} KB`);
    for (const [name, score] of scores) {
      if (score >= MIN_SCORES[name]) continue;
      failed = true;
      for (const { id } of categories[name].auditRefs) {
        const { score, title, displayValue = "" } = audits[id];
        if (score !== null && score < 0.9) console.log(`  ${id}: ${title} ${displayValue}`);
      }
    }
    if (path === "/" && bytes > MAX_FIRST_PAGE_BYTES) failed = true;
  }
} finally {
  browser.kill();
  await new Promise((ended) => browser.once("exit", ended));
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
process.exit(failed ? 1 : 0);
