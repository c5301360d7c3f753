// Opens the list of paths, `details.fields`, if there is space for it next to the entities, unless the user has closed
// it in this browser. The contents are inserted when the list is opened, and path suggestions when a field is used. The
// folded fields of the form, `details.more`, are inserted after the page has loaded or when the user unfolds them.

import { later } from "./later";
import { unfold } from "./unfold";

/** The minimum width for the list next to the entities, as in the style sheet. */
const WIDE_WINDOW = "(min-width: 64rem)";

const KEY = "fields";

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    // Without storage, nothing is remembered.
    return null;
  }
}

function remember(state: string): void {
  try {
    localStorage.setItem(KEY, state);
  } catch {
    // The choice applies to this page only.
  }
}

/** Opens the list in a wide window. */
function open(fields: HTMLDetailsElement): void {
  if (matchMedia(WIDE_WINDOW).matches && remembered() !== "closed") fields.open = true;
  fields
    .querySelector("summary")
    ?.addEventListener("click", () => remember(fields.open ? "closed" : "open"));
}

export function openFields(): void {
  const more = document.querySelector("details.more");
  if (more) {
    const completions = document.querySelector("div.completions");
    more.addEventListener("focusin", ({ target }) => {
      if (completions && target instanceof HTMLInputElement && target.hasAttribute("list")) unfold(completions);
    });
    const make = () => unfold(more);
    more.addEventListener("click", make, { once: true });
    later(make);
  }
  const fields = document.querySelector<HTMLDetailsElement>("details.fields");
  if (!fields) return;
  fields.addEventListener("toggle", () => unfold(fields));
  // The entities are rendered first.
  later(() => open(fields));
}
