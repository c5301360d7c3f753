// The paths beside a page of entities, `details.fields`: open where they stand beside the entities, unless somebody has
// closed them in this browser.

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

function open(fields: HTMLDetailsElement): void {
  if (matchMedia(BESIDE).matches && remembered() !== "closed") fields.open = true;
  fields
    .querySelector("summary")
    ?.addEventListener("click", () => remember(fields.open ? "closed" : "open"));
}

export function openFields(): void {
  const fields = document.querySelector<HTMLDetailsElement>("details.fields");
  if (!fields) return;
  // The entities are first.
  if (document.readyState === "complete") open(fields);
  else addEventListener("load", () => open(fields));
}
