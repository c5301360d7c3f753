// Fields for an entity as JSON, `textarea[data-json]`, or for several, `data-json="several"`: while one types, the first
// error is said with its line and column. The form can still be sent: the service decides. A text of more bytes than
// `data-bytes` is not sent, because the service would not read it.

import { jsonError } from "./json";

/** Milliseconds without a key before a text is looked at. */
const PAUSE = 200;

/** Characters of a text that is looked at. A longer one would hold up who types. */
const LOOKED_AT = 1 << 19;

/** What is said of a text that is too long to be sent; nothing of any other. */
function tooLong(field: HTMLTextAreaElement): string {
  const most = Number(field.dataset.bytes ?? "");
  // No character of a script's text has more than three bytes.
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
      const isLookedAt = field.value.length <= LOOKED_AT && field.value.trim() !== "";
      const error = isLookedAt ? jsonError(field.value, field.dataset.json === "several") : null;
      say(error ? `Line ${error.line}, column ${error.column}: ${error.text}.` : "");
    };
    let timer = 0;
    const changed = (pause: number) => {
      clearTimeout(timer);
      const problem = tooLong(field);
      // The browser sends no form with a field that is not valid.
      field.setCustomValidity(problem);
      if (problem) say(problem);
      else if (pause) timer = setTimeout(look, pause);
      else look();
    };
    field.addEventListener("input", () => changed(PAUSE));
    changed(0);
  }
}
