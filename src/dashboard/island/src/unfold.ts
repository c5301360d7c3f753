// Inserts the contents of `noscript` elements when the user needs them. Until then, they are text without layout costs.

export function unfold(within: Element): void {
  for (const kept of within.querySelectorAll("noscript")) {
    const made = document.createElement("template");
    made.innerHTML = kept.textContent ?? "";
    kept.replaceWith(made.content);
  }
}
