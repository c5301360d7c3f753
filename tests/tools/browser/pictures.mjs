// Takes the pictures of docs/pictures: of the pages of `pages.mjs` with a `picture`, as the owner of the demo.
//
//     node pictures.mjs BASE_URL EMAIL PASSWORD DIRECTORY

import { statSync } from "node:fs";
import { join } from "node:path";

import { Prepared } from "./demo.mjs";
import { PAGES } from "./pages.mjs";
import { Browser, signIn } from "./support.mjs";

/** Most bytes of a picture. */
const MAX_PICTURE_BYTES = 150_000;

const [baseUrl, email, password, directory] = process.argv.slice(2);
const browser = await Browser.start(baseUrl);
const context = await browser.session({ viewport: { width: 1200, height: 860 }, colorScheme: "light" });
const page = await context.newPage();
const prepared = await Prepared.start(baseUrl, email, password);
await signIn(page, email, password);
for (const { path, ready, picture, shows, act } of PAGES.filter(({ picture }) => picture)) {
  await browser.open(page, prepared.path(path));
  await page.locator(ready).first().waitFor();
  if (act) await act(page);
  // What the picture is about is in it.
  if (shows) await page.locator(shows).first().scrollIntoViewIfNeeded();
  const file = join(directory, `${picture}.png`);
  await page.screenshot({ path: file });
  const { size } = statSync(file);
  if (size > MAX_PICTURE_BYTES) throw new Error(`${file} has ${size} bytes`);
}
await prepared.end();
await browser.end();
