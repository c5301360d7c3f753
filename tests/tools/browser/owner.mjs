// What an owner does with a dataset, from signing in to signing out, with scripts and without.
//
//     node owner.mjs BASE_URL EMAIL PASSWORD TOKEN

import assert from "node:assert/strict";

import { Browser, openFields, openQuery, operations, signIn } from "./support.mjs";

const [baseUrl, email, firstPassword, token] = process.argv.slice(2);

const call = operations(baseUrl, token);

/** A dataset with two versions. */
async function dataset(name) {
  const { dataset } = await call("POST", "/dataset/create", { name, source: "push" });
  const { dataset_id } = dataset;
  const entity = (n) => ({ n, city: n % 2 ? "Köln" : "Paris", at: { x: n / 10 }, note: null });
  const entities = Array.from({ length: 120 }, (_, n) => entity(n));
  await call("POST", "/dataset/refresh", { dataset_id, entities: entities.slice(0, 60) });
  await call("POST", "/dataset/refresh", { dataset_id, entities });
  return `/ui/${dataset_id}/${dataset.name_slug}`;
}

async function browse(page, home) {
  const result = page.locator("#result");
  await page.goto(`${home}/active/`);
  assert.equal(await result.innerText(), "1 to 50 of 120 entities");
  await page.getByRole("link", { name: "Last" }).first().click();
  assert.equal(await result.innerText(), "101 to 120 of 120 entities");

  // A search, a condition, an order.
  await page.getByLabel("Keywords, separated by commas").fill("köln");
  await openQuery(page);
  await page.getByLabel("Field", { exact: true }).fill("n");
  await page.getByLabel("Comparison").selectOption("is at least");
  await page.getByLabel("Value", { exact: true }).fill("100");
  await page.getByLabel("Sort by").fill("n:desc");
  await page.getByRole("button", { name: "Apply" }).click();
  await page.waitForURL(/filter_gte=n:100/);
  assert.equal(await result.innerText(), "1 to 10 of 10 entities");
  assert.equal(await page.locator("tbody mark").count(), 10);
  assert.equal(await page.locator("tbody mark").first().innerText(), "Köln");
  await page.getByRole("link", { name: "Remove: n is at least 100" }).click();
  await page.waitForURL((url) => !url.search.includes("filter_gte"));
  assert.equal(await result.innerText(), "1 to 50 of 60 entities");
  await page.goBack();

  await page.getByRole("link", { name: "JSON", exact: true }).click();
  assert.equal(await page.locator(".json pre").count(), 10);
  await page.getByRole("link", { name: "Table" }).click();
  await page.locator("tbody th a").first().click();
  await page.waitForURL(/entity\/119$/);
  await page.getByRole("link", { name: "Previous" }).click();
  assert.match(await page.locator(".entity").innerText(), /118/);

  // A field of the tree leads to a condition.
  await page.goto(`${home}/v2/`);
  await openFields(page);
  await page.locator(".fields summary", { hasText: "city" }).click();
  await page.locator(".fields").getByRole("link", { name: "Paris" }).click();
  await page.waitForURL(/filter=city:Paris/);
  assert.equal(await result.innerText(), "1 to 50 of 60 entities");
  await openFields(page);
  await page.locator(".fields summary", { hasText: "city" }).click();
  await page.locator(".fields").getByRole("link", { name: "contains…" }).first().click();
  assert.equal(await page.getByLabel("Field", { exact: true }).inputValue(), "city");
  await page.getByLabel("Value", { exact: true }).fill("AR");
  await page.getByRole("button", { name: "Search" }).click();
  await page.waitForURL(/filter_contains=city:AR/);
  assert.equal(await result.innerText(), "1 to 50 of 60 entities");

  await page.getByRole("link", { name: "Explain this query" }).click();
  await page.getByRole("heading", { name: "Stages" }).waitFor();
  assert.ok((await page.locator(".stages tbody tr").count()) >= 4);
  await page.getByRole("link", { name: "Back to the entities" }).click();
  await page.waitForURL(/filter_contains=city:AR/);

  await page.getByRole("navigation", { name: "Pages of this dataset" }).getByRole("link", { name: "Profile" }).click();
  await page.getByLabel("Search paths").fill("at.x");
  await page.getByRole("button", { name: "Search" }).click();
  assert.equal(await page.locator(".path").count(), 1);
}

async function versions(page, home) {
  await page.goto(`${home}/versions`);
  assert.equal(await page.locator(".timeline > li").count(), 2);
  const act = async (link, button, done) => {
    await page.getByRole("link", { name: link }).click();
    await page.getByRole("button", { name: button }).click();
    await page.waitForURL(new RegExp(`done=${done}`));
    await page.locator(".done").waitFor();
  };
  await act("Pin version 1", "Pin version 1", "pin");
  assert.match(await page.locator(".timeline li.active").innerText(), /Version 1/);
  await act("Unpin version…", "Unpin version", "unpin");
  await act("Freeze at version 2", "Freeze dataset", "freeze");
  assert.equal((await fetch(baseUrl + home.replace("/ui/", "/api/") + "/active/")).status, 410);
  await act("Unfreeze dataset…", "Unfreeze dataset", "unfreeze");
  // A page that says what would happen can be left.
  await page.getByRole("link", { name: "Freeze at version 1" }).click();
  await page.getByRole("link", { name: "Cancel" }).click();
  assert.equal((await fetch(baseUrl + home.replace("/ui/", "/api/") + "/active/")).status, 200);
}

async function settings(page, home) {
  await page.goto(`${home}/settings`);
  await page.getByLabel("Description").fill("Cities & <others>");
  await page.getByLabel("Private: only users with the key can query the dataset").check();
  await page.getByRole("button", { name: "Save settings", exact: true }).click();
  await page.locator(".done").waitFor();
  assert.match(await page.locator(".heading").innerText(), /Cities & <others>/);
  const api = baseUrl + home.replace("/ui/", "/api/");
  const read = (key) => fetch(`${api}/active/?limit=1`, { headers: { Authorization: `Bearer ${key}` } });
  await page.getByRole("button", { name: "Show key" }).click();
  const key = await page.locator("#private-key").inputValue();
  assert.equal((await read(key)).status, 200);
  await page.locator("section[aria-labelledby=key] summary").click();
  await page.getByRole("button", { name: "Replace key" }).click();
  await page.locator(".done").waitFor();
  assert.equal((await read(key)).status, 403);

  // The index, and a source whose query is shown when it is asked for.
  await page.getByLabel("Always index (one path per line)").fill("at.x\ncity");
  await page.getByRole("button", { name: "Save index" }).click();
  await page.locator(".done").waitFor();
  assert.equal(await page.getByLabel("Always index (one path per line)").inputValue(), "at.x\ncity");
}

async function account(page, password, next) {
  await page.goto("/ui/account");
  await page.getByLabel("New token").fill("from a browser");
  await page.getByRole("button", { name: "Create token" }).click();
  const made = await page.locator(".done input").inputValue();
  const list = await fetch(`${baseUrl}/dataset/list`, { headers: { Authorization: `Bearer ${made.trim()}` } });
  assert.equal(list.status, 200);
  await page.getByRole("link", { name: "Delete token from a browser" }).click();
  await page.getByRole("button", { name: "Delete token" }).click();
  await page.locator(".done").waitFor();
  await page.getByRole("button", { name: /^End session/ }).first().click();
  await page.locator(".done").waitFor();
  await page.getByLabel("Current password").fill(password);
  await page.getByLabel("New password", { exact: true }).fill(next);
  await page.getByLabel("Confirm new password").fill(next);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.locator(".done").waitFor();
}

const browser = await Browser.start(baseUrl);
let password = firstPassword;
for (const javaScriptEnabled of [true, false]) {
  const name = javaScriptEnabled ? "With scripts" : "Without scripts";
  const home = await dataset(name);
  const other = await browser.session();
  await signIn(await other.newPage(), email, password);
  await other.close();

  const context = await browser.session({ javaScriptEnabled });
  const page = await context.newPage();
  await signIn(page, email, password);
  await page.getByRole("link", { name, exact: true }).click();
  await page.waitForURL(`${baseUrl}${home}/active/`);
  await browse(page, home);
  await versions(page, home);
  await settings(page, home);
  await account(page, password, `${password} more`);
  password = `${password} more`;
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByRole("link", { name: "Sign in" }).waitFor();
  browser.check(name);
  await context.close();
}
await browser.end();
console.log("done twice");
