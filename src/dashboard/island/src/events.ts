// Live progress: an element with `data-events="URL"` holds elements with `data-stage`, `data-bytes` and `data-entities`,
// which show the server-sent events of that URL. Each is JSON with a `stage`, and with `bytes` and `entities` where they
// are known. At the end, the page opens that the link with `data-again` leads to.

interface Progress {
  stage?: string;
  bytes?: number;
  entities?: number;
}

/** Stages, in the words of the page. */
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

/** A size as the page has it. */
function size(bytes: number): string {
  if (bytes < 1000) return `${bytes} ${bytes === 1 ? "byte" : "bytes"}`;
  const units = ["kB", "MB", "GB", "TB", "PB"];
  let [value, unit] = [bytes / 1000, 0];
  while (value >= 999.5 && unit + 1 < units.length) [value, unit] = [value / 1000, unit + 1];
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${units[unit]}`;
}

/** The stages after which nothing comes. */
const LAST = ["done", "failed"];

/** Milliseconds before a page opens again whose events are refused: its refresh has ended, or too many are watched. */
const PAUSE = 3000;

class Progression {
  private readonly source: EventSource;

  constructor(
    private readonly element: HTMLElement,
    url: URL,
  ) {
    this.source = new EventSource(url);
    this.source.addEventListener("message", (event: MessageEvent<string>) => this.told(event.data));
    this.source.addEventListener("error", () => {
      // The browser goes on trying unless the service has refused.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.again(), PAUSE);
    });
    addEventListener("pagehide", () => this.source.close());
  }

  private told(data: string): void {
    let progress: Progress;
    try {
      progress = JSON.parse(data) as Progress;
    } catch {
      // One that cannot be read changes nothing.
      return;
    }
    const { stage, bytes, entities } = progress;
    if (stage !== undefined) this.show("[data-stage]", SENTENCES[stage] ?? stage);
    if (bytes !== undefined) this.show("[data-bytes]", size(bytes));
    if (entities !== undefined) this.show("[data-entities]", entities.toLocaleString("en"));
    if (stage !== undefined && LAST.includes(stage)) {
      this.source.close();
      this.again();
    }
  }

  private show(selector: string, text: string): void {
    const shown = this.element.querySelector(selector);
    // What is the same is not read out once more.
    if (shown && shown.textContent !== text) shown.textContent = text;
  }

  private again(): void {
    // A page that answers a form would be sent once more if it were loaded again.
    location.assign(this.element.querySelector<HTMLAnchorElement>("a[data-again]")?.href ?? location.href);
  }
}

export function followEvents(): void {
  for (const element of document.querySelectorAll<HTMLElement>("[data-events]")) {
    const url = new URL(element.dataset["events"] ?? "", location.href);
    // Only the service itself is asked.
    if (url.origin === location.origin) new Progression(element, url);
  }
}
