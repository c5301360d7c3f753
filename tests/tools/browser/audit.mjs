// Looks at every page of `pages.mjs` as a visitor and as the owner: wide and light, narrow and dark. Nothing runs past
// the edge, axe finds nothing, the console has no error, and nothing is asked of another host. Looks at two pages as they
// are printed, too. Prints how many pages there were.
//
// axe takes longer than all else: it checks a page of both in one look for each of them, and a page of one in one look.
//
//     node audit.mjs BASE_URL EMAIL PASSWORD [DIRECTORY]
//
// DIRECTORY takes a picture of each in four looks, and axe checks each of them.

import assert from "node:assert/strict";
import { join } from "node:path";

import { Prepared } from "./demo.mjs";
import { PAGES, pagesOf } from "./pages.mjs";
import { Browser, NARROW, WIDE, overflow, signIn, violations } from "./support.mjs";

const [baseUrl, email, password, directory] = process.argv.slice(2);
const browser = await Browser.start(baseUrl);
const wrong = [];
const prepared = await Prepared.start(baseUrl, email, password);

const looks = [[WIDE, "light"], [NARROW, "dark"]];
if (directory) looks.push([WIDE, "dark"], [NARROW, "light"]);

for (const [user, who] of ["visitor", "owner"].entries()) {
  const context = await browser.session();
  const page = await context.newPage();
  if (who === "owner") await signIn(page, email, password);
  for (const { name, path, ready, status, act } of pagesOf(who)) {
    const place = PAGES.findIndex((page) => page.name === name);
    for (const [look, [viewport, colorScheme]] of looks.entries()) {
      const where = `${name} as ${who}, ${viewport.width} px, ${colorScheme}`;
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme });
      await browser.open(page, prepared.path(path), status);
      await page.locator(ready).first().waitFor();
      if (act) await act(page);
      const over = await overflow(page);
      if (over > 0) wrong.push(`${where}: ${over} px too wide`);
      if (directory || look === (place + user) % 2) {
        wrong.push(...(await violations(page)).map((text) => `${where}: ${text}`));
      }
      if (directory) {
        const file = `${who}-${name.replaceAll(/\W+/g, "-")}-${viewport.width}-${colorScheme}.png`;
        await page.screenshot({ path: join(directory, file), fullPage: true });
      }
    }
  }
  await context.close();
}
// On paper: within its width, what is in force and all of an entity, without the form and the call.
const context = await browser.session({ viewport: { width: 720, height: 1020 } });
const page = await context.newPage();
await page.emulateMedia({ media: "print" });
for (const [path, seen] of [
  ["/ui/1/world-countries/active/?filter_gt=area:100&sort=area:desc", [".parts a", "tbody tr:last-child .position"]],
  ["/ui/1/world-countries/v1/entity/60", [".tree .tree .tree dd"]],
]) {
  await browser.open(page, path);
  for (const selector of seen) await page.locator(selector).first().waitFor();
  for (const selector of ["button", "input", ".side", "section[aria-labelledby=call]"]) {
    if (await page.locator(`${selector}:visible`).count()) wrong.push(`${path}, printed: ${selector} is there`);
  }
  const over = await overflow(page);
  if (over > 0) wrong.push(`${path}, printed: ${over} px too wide`);
}
await context.close();
await prepared.end();
assert.equal(wrong.join("\n"), "");
await browser.end();
console.log(`${PAGES.length} pages`);
