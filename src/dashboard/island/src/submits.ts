// Prevents double submission of forms that change data.

// After this time, a second submission is intended: the user may have stopped the first one.
const AGAIN_MS = 10_000;
// File uploads take longer.
const FILE_AGAIN_MS = 120_000;

export function sendOnce(): void {
  // The listener is on the document, so that it runs after listeners that reject the input.
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
  // A page from the back-forward cache still has the mark.
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll<HTMLFormElement>("form[data-sent]")) delete form.dataset.sent;
  });
}
