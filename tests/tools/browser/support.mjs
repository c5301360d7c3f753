// A Chromium of its own for each program, and what is watched in it: errors of pages, and requests to other hosts.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { chromium } from "playwright-core";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

export const NARROW = { width: 360, height: 740 };
export const WIDE = { width: 1200, height: 900 };

export class Browser {
  /** Starts Chromium for pages of this service. */
  static async start(baseUrl) {
    const profile = mkdtempSync(join(tmpdir(), "strata-chromium-"));
    const executablePath = process.env["CHROMIUM"] ?? "/usr/bin/chromium";
    const chrome = await chromium.launch({ executablePath, args: [...FLAGS, `--disk-cache-dir=${profile}`] });
    return new Browser(chrome, baseUrl, profile);
  }

  constructor(chrome, baseUrl, profile) {
    Object.assign(this, { chrome, baseUrl, profile, wrong: [], failing: new Set() });
  }

  /** A session of its own, with nothing kept of others. */
  async session(options = {}) {
    const usual = { baseURL: this.baseUrl, viewport: WIDE, reducedMotion: "reduce" };
    const context = await this.chrome.newContext({ ...usual, ...options });
    context.setDefaultTimeout(60_000);
    const wrong = (text) => this.wrong.push(text);
    context.on("request", (request) => {
      const { origin, protocol } = new URL(request.url());
      if (origin !== this.baseUrl && protocol !== "data:") wrong(`a request to ${request.url()}`);
    });
    context.on("console", (message) => {
      // Browsers log each answer that is an error, also where that is what was asked for.
      const isAnswer = message.text().startsWith("Failed to load resource: the server responded with a status of ");
      if (message.type() === "error" && !(isAnswer && this.failing.has(message.page()))) {
        wrong(`the console of ${message.page()?.url()}: ${message.text()}`);
      }
    });
    context.on("weberror", (error) => wrong(`${error.page()?.url()}: ${error.error()}`));
    context.on("dialog", (dialog) => {
      wrong(`a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    return context;
  }

  /** Opens a page, which is answered with a status. */
  async open(page, path, status = 200) {
    this.failing[status < 400 ? "delete" : "add"](page);
    const answer = await page.goto(path);
    assert.equal(answer?.status(), status, path);
    const names = Object.keys(answer.headers());
    assert.ok(names.includes("content-security-policy"), path);
  }

  /** Says that answers to a page may be errors. */
  expectErrors(page) {
    this.failing.add(page);
  }

  /** Fails if anything was wrong since the start. */
  check(where) {
    assert.deepEqual(this.wrong, [], where);
  }

  async end() {
    this.check("at the end");
    await this.chrome.close();
    rmSync(this.profile, { recursive: true, force: true });
  }
}

/** Signs a user in by the form. */
export async function signIn(page, email, password) {
  await page.goto("/");
  await page.getByRole("link", { name: "Sign in" }).click();
  await page.getByLabel("Email address").fill(email);
  await page.getByLabel("Password").fill(password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Sign out" }).waitFor();
}

/** Opens the paths beside the entities, as far as the script has not. */
export async function openFields(page) {
  // A click would close them again where the script opens them at the same time.
  await page.locator("details.fields").evaluate((fields) => (fields.open = true));
}

/** Unfolds the conditions, the order and the fields of a query. */
export async function openQuery(page) {
  const query = page.locator("details.more");
  if ((await query.getAttribute("open")) === null) await query.locator("> summary").click();
}

/** Calls operations with a token: `(method, path, body)`. */
export function operations(baseUrl, token) {
  return async (method, path, body) => {
    const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
    const answer = await fetch(baseUrl + path, { method, headers, ...(body && { body: JSON.stringify(body) }) });
    assert.ok(answer.ok, `${path}: ${answer.status} ${await answer.clone().text()}`);
    return answer.json();
  };
}

/** A token of a user. */
export async function tokenOf(baseUrl, email, password, name) {
  const post = (path, body, cookie) => {
    const headers = { "Content-Type": "application/json", ...(cookie && { Cookie: cookie }) };
    return fetch(baseUrl + path, { method: "POST", headers, body: JSON.stringify(body) });
  };
  const session = await post("/session/login", { email, password });
  const [cookie] = session.headers.get("set-cookie").split(";");
  const made = await post("/token/create", { name, scope: "write" }, cookie);
  assert.ok(made.ok, await made.clone().text());
  return (await made.json()).token;
}

/** An HTTP server of this program: of sources, and of receivers of webhooks. */
export async function listen(answer) {
  const server = createServer((request, response) => {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => answer({ request, response, body: Buffer.concat(parts) }));
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { base: `http://127.0.0.1:${server.address().port}`, close };
}

/** Waits until a function gives something. */
export async function until(given) {
  for (;;) {
    const value = await given();
    if (value) return value;
    await new Promise((ready) => setTimeout(ready, 100));
  }
}

/** What axe finds wrong with a page, in words. It also checks that targets of fingers have 24 px. */
export async function violations(page) {
  await page.evaluate(AXE);
  const found = await page.evaluate(async () => {
    const rules = { "target-size": { enabled: true } };
    return (await globalThis.axe.run(document, { rules })).violations;
  });
  const shown = ({ html, any }) => `${html.replaceAll(/\s+/g, " ").slice(0, 300)} ${any[0]?.message ?? ""}`;
  return found.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map(shown).join(" | ")}`);
}

/** Pixels by which a page is wider than its window. */
export const overflow = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
