// What a page has for browsers without scripts, `noscript`, put in its place when somebody wants to see it: until then
// it is one text, and costs nothing to lay out.

export function unfold(within: Element): void {
  const kept = within.querySelector("noscript");
  if (!kept) return;
  const made = document.createElement("template");
  made.innerHTML = kept.textContent ?? "";
  kept.replaceWith(made.content);
}
