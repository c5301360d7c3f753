// Checks the JSON text in `textarea[data-json]` while the user types, and shows the line and column of the first error.
// With `data-json="several"`, the text can be an array of entities. Invalid texts can still be submitted, because the
// server decides. Texts with more bytes than `data-bytes` cannot, because the server would reject the request.

import { jsonError } from "./json";

/** Milliseconds without input before the text is checked. */
const CHECK_DELAY_MS = 200;

/** Longer texts are not checked, because checking would delay typing. */
const MAX_CHECKED_CHARACTERS = 1 << 19;

/** Returns an error text if the text is too long to be submitted; otherwise an empty string. */
function tooLong(field: HTMLTextAreaElement): string {
  const most = Number(field.dataset.bytes ?? "");
  // A UTF-16 code unit has at most three bytes in UTF-8.
  if (!most || field.value.length * 3 <= most) return "";
  const bytes = new TextEncoder().encode(field.value).length;
  const shown = (number: number) => number.toLocaleString("en");
  return bytes > most
    ? `The text is ${shown(bytes)} bytes long, but the editor accepts at most ${shown(most)}.`
    : "";
}

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

    const say = (problem: string) => {
      field.setAttribute("aria-invalid", String(problem !== ""));
      state.classList.toggle("failed", problem !== "");
      state.textContent = problem;
    };
    const look = () => {
      const isChecked = field.value.length <= MAX_CHECKED_CHARACTERS && field.value.trim() !== "";
      const error = isChecked ? jsonError(field.value, field.dataset.json === "several") : null;
      say(error ? `Line ${error.line}, column ${error.column}: ${error.text}.` : "");
    };
    let timer = 0;
    const changed = (pause: number) => {
      clearTimeout(timer);
      const problem = tooLong(field);
      // Browsers do not submit a form with an invalid field.
      field.setCustomValidity(problem);
      if (problem) say(problem);
      else if (pause) timer = setTimeout(look, pause);
      else look();
    };
    field.addEventListener("input", () => changed(CHECK_DELAY_MS));
    changed(0);
  }
}
