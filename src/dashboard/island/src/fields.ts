// The paths beside a page of entities, `details.fields`: open where they stand beside the entities, unless somebody has
// closed them in this browser. They are made when they are opened, and the paths that a field completes when it is used.
// The fields of the form that are folded away, `details.more`, are made once the page is there, or sooner if somebody
// unfolds them.

import { later } from "./later";
import { unfold } from "./unfold";

/** The width from which they do, as the style sheet has it. */
const BESIDE = "(min-width: 64rem)";

const KEY = "fields";

function remembered(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    // What cannot be read is not remembered.
    return null;
  }
}

function remember(state: string): void {
  try {
    localStorage.setItem(KEY, state);
  } catch {
    // It holds for this page alone.
  }
}

/** Opens them, if there is room. */
function open(fields: HTMLDetailsElement): void {
  if (matchMedia(BESIDE).matches && remembered() !== "closed") fields.open = true;
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
  // The entities are first.
  later(() => open(fields));
}
