// A form that changes something is sent once: a second press while the answer is on its way would do it twice.

// After so long the press is meant: the browser may have been stopped.
const AGAIN_MS = 10_000;
// A file may take as long as it likes.
const FILE_AGAIN_MS = 120_000;

export function sendOnce(): void {
  // At the document, after those who refuse what was typed.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (event.defaultPrevented || !(form instanceof HTMLFormElement) || form.method !== "post") return;
    if (form.dataset.sent !== undefined) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "";
    const again = form.enctype === "multipart/form-data" ? FILE_AGAIN_MS : AGAIN_MS;
    setTimeout(() => delete form.dataset.sent, again);
  });
  document.addEventListener("input", (event) => {
    const form = event.target instanceof Element ? event.target.closest("form") : null;
    if (form) delete form.dataset.sent;
  });
  // A page that the browser kept is as it was left.
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll<HTMLFormElement>("form[data-sent]")) delete form.dataset.sent;
  });
}
