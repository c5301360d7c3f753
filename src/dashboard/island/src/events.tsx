// Live progress: an element with `data-events="URL"` shows the server-sent events of that URL, each of which is JSON
// with a `stage`, and with `bytes` and `entities` where they are known. The event `end` loads the page again.

import { render } from "preact";

interface Progress {
  stage?: string;
  bytes?: number;
  entities?: number;
}

function Shown({ stage, bytes, entities }: Progress) {
  return (
    <p class="progress">
      <span class="spinner" aria-hidden="true" />
      <strong>{stage ?? "waiting"}</strong>
      {bytes !== undefined && <span>{bytes.toLocaleString("en")} bytes</span>}
      {entities !== undefined && <span>{entities.toLocaleString("en")} entities</span>}
    </p>
  );
}

export function followEvents(): void {
  for (const element of document.querySelectorAll<HTMLElement>("[data-events]")) {
    const url = new URL(element.dataset["events"] ?? "", location.href);
    // Only the service itself is asked.
    if (url.origin !== location.origin) continue;
    const source = new EventSource(url);
    const show = (event: MessageEvent<string>) => {
      try {
        render(<Shown {...(JSON.parse(event.data) as Progress)} />, element);
      } catch {
        // One that cannot be read changes nothing.
      }
    };
    source.addEventListener("message", show);
    source.addEventListener("progress", show);
    source.addEventListener("end", () => {
      source.close();
      location.reload();
    });
    // The browser goes on trying unless the service has refused.
    addEventListener("pagehide", () => source.close());
  }
}
