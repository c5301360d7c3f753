// Shows the progress of a refresh. An element with `data-events="URL"` contains elements with `data-stage`,
// `data-bytes`, and `data-entities`, which show the server-sent events from that URL. Each event is a JSON object with
// a `stage` and optional `bytes` and `entities`. After the last event, the script opens the link with `data-again`.

interface Progress {
  stage?: string;
  bytes?: number;
  entities?: number;
}

/** The stages in words. */
const SENTENCES: Record<string, string> = {
  waiting: "Waiting for the source or a permit.",
  receiving: "Receiving data.",
  decoding: "Decoding the entities.",
  writing: "Writing the version.",
  publishing: "Publishing the version.",
  running: "The refresh is running on another node.",
  done: "The refresh created a version.",
  failed: "The refresh failed.",
};

/** Formats a size as the server does. */
function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let [value, unit] = [bytes / 1000, 0];
  while (value >= 999.5 && unit + 1 < units.length) [value, unit] = [value / 1000, unit + 1];
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${units[unit]}`;
}

/** The stages that end a refresh. */
const FINAL_STAGES = ["done", "failed"];

/** Milliseconds before the page is reloaded if the server refuses the stream: the refresh has ended, or the limit of
 * streams is reached. */
const RELOAD_DELAY_MS = 3000;

class Progression {
  private readonly source: EventSource;

  constructor(
    private readonly element: HTMLElement,
    url: URL,
  ) {
    this.source = new EventSource(url);
    this.source.addEventListener("message", (event: MessageEvent<string>) => this.told(event.data));
    this.source.addEventListener("error", () => {
      // The browser reconnects unless the server has refused the stream.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.again(), RELOAD_DELAY_MS);
    });
    addEventListener("pagehide", () => this.source.close());
  }

  private told(data: string): void {
    let progress: Progress;
    try {
      progress = JSON.parse(data) as Progress;
    } catch {
      // Invalid events are ignored.
      return;
    }
    const { stage, bytes, entities } = progress;
    if (stage !== undefined) this.show("[data-stage]", SENTENCES[stage] ?? stage);
    if (bytes !== undefined) this.show("[data-bytes]", size(bytes));
    if (entities !== undefined) this.show("[data-entities]", entities.toLocaleString("en"));
    if (stage !== undefined && FINAL_STAGES.includes(stage)) {
      this.source.close();
      this.again();
    }
  }

  private show(selector: string, text: string): void {
    const shown = this.element.querySelector(selector);
    // Screen readers would read an unchanged text again.
    if (shown && shown.textContent !== text) shown.textContent = text;
  }

  private again(): void {
    // Reloading the response to a form would submit the form again.
    location.assign(this.element.querySelector<HTMLAnchorElement>("a[data-again]")?.href ?? location.href);
  }
}

export function followEvents(): void {
  for (const element of document.querySelectorAll<HTMLElement>("[data-events]")) {
    const url = new URL(element.dataset["events"] ?? "", location.href);
    // Requests go to this server only.
    if (url.origin === location.origin) new Progression(element, url);
  }
}
