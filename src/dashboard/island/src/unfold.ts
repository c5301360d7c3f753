// What a page has for browsers without scripts, `noscript`, put in its place when somebody wants to see it: until then
// it is text, and costs nothing to lay out.

export function unfold(within: Element): void {
  for (const kept of within.querySelectorAll("noscript")) {
    const made = document.createElement("template");
    made.innerHTML = kept.textContent ?? "";
    kept.replaceWith(made.content);
  }
}
