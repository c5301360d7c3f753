// Fields for JSON, `textarea[data-json]`: while one types, the first error is said with its line and column. The form
// can still be sent: the service decides.

import { jsonError } from "./json";

/** Milliseconds without a key before a text is looked at. */
const PAUSE = 200;

export function checkJson(): void {
  let fields = 0;
  for (const field of document.querySelectorAll<HTMLTextAreaElement>("textarea[data-json]")) {
    const state = document.createElement("p");
    state.className = "json-state";
    state.id = `json-state-${(fields += 1)}`;
    state.setAttribute("role", "status");
    field.after(state);
    const described = field.getAttribute("aria-describedby");
    field.setAttribute("aria-describedby", described ? `${described} ${state.id}` : state.id);

    const look = () => {
      const error = field.value.trim() === "" ? null : jsonError(field.value);
      field.setAttribute("aria-invalid", String(error !== null));
      state.classList.toggle("failed", error !== null);
      state.textContent = error ? `Line ${error.line}, column ${error.column}: ${error.text}.` : "";
    };
    let timer = 0;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(look, PAUSE);
    });
    look();
  }
}
