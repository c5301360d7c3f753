// Adds a button to every element with `data-copy` that copies the text of the element.

/** Copies a text. Without HTTPS, browsers have no clipboard API, so the fallback selects the text in a hidden field. */
async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "hidden";
    document.body.append(field);
    field.select();
    const copied = document.execCommand("copy");
    field.remove();
    return copied;
  }
}

/** The text to copy: the value, link, or code of an element. */
function textOf(element: Element): string {
  if (element instanceof HTMLInputElement) return element.value;
  const code = element.querySelector("a, code") ?? element;
  return (code.textContent ?? "").trim();
}

export function addCopyButtons(): void {
  for (const element of document.querySelectorAll("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      const copied = await copy(textOf(element));
      button.textContent = copied ? "Copied" : "Press Ctrl+C";
      button.focus();
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    element.after(button);
  }
}
