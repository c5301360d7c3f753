// Keyboard shortcuts: j and k focus the next and the previous entity, Enter opens it, n and p open the next and the
// previous page, and / focuses the search. Shortcuts are disabled in input fields.

const ROWS = "[data-columns] tbody th a, .scroll tbody th.position a, ol.json > li > p a";

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input, select, textarea"));
}

function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLAnchorElement>(ROWS)];
  const at = links.findIndex((link) => link === document.activeElement);
  const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function follow(selector: string): void {
  document.querySelector<HTMLAnchorElement>(selector)?.click();
}

const KEYS: Record<string, () => void> = {
  j: () => step(1),
  k: () => step(-1),
  n: () => follow("a[rel=next]"),
  p: () => follow("a[rel=prev]"),
  "/": () => document.querySelector<HTMLInputElement>("main input[type=search]")?.focus(),
};

export function listenToKeys(): void {
  document.addEventListener("keydown", (event) => {
    const act = KEYS[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    event.preventDefault();
    act();
  });
}
