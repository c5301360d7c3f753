// Lets users hide and reorder the columns of a table of entities, `[data-columns]`. The choice is stored in this
// browser for the dataset. A page with an explicit list of columns has no `data-columns` and no panel.

import { render } from "preact";

interface Choice {
  /** All columns that this browser has seen, in the chosen order. */
  order: string[];
  hidden: string[];
}

function isChoice(value: unknown): value is Choice {
  const { order, hidden } = (value ?? {}) as Partial<Choice>;
  return [order, hidden].every((list) => Array.isArray(list) && list.every((name) => typeof name === "string"));
}

class Columns {
  private readonly key: string;
  private readonly names: string[];
  private readonly places = new Map<string, number>();
  /** Column names as the server displays them, with code points instead of invisible characters. */
  private readonly shown = new Map<string, string>();
  private choice: Choice = { order: [], hidden: [] };
  /** Whether cells are hidden or have been moved. */
  private arranged = false;

  constructor(
    private readonly region: HTMLElement,
    private readonly panel: HTMLElement,
  ) {
    // The key is the same for all versions of a dataset.
    this.key = `columns:${(region.dataset["columns"] ?? "").split("/").slice(0, 4).join("/")}`;
    const heads = [...region.querySelectorAll<HTMLElement>("thead th")];
    heads.forEach((head, place) => {
      const name = head.dataset["column"];
      if (name === undefined) return;
      this.places.set(name, place);
      this.shown.set(name, head.querySelector("bdi")?.textContent ?? "");
    });
    this.names = [...this.places.keys()];
    // The first access to the storage waits for another process, which can take as long as the layout of a table.
    try {
      const kept: unknown = JSON.parse(localStorage.getItem(this.key) ?? "null");
      if (isChoice(kept)) this.choice = kept;
    } catch {
      // An unreadable choice is ignored.
    }
    this.show();
  }

  private isHidden(name: string): boolean {
    return this.choice.hidden.includes(name);
  }

  private isAsSent(): boolean {
    return this.ordered().every((name, at) => name === this.names[at] && !this.isHidden(name));
  }

  /** The columns of this table in the chosen order, followed by new columns. */
  private ordered(): string[] {
    const known = [...new Set(this.choice.order)].filter((name) => this.places.has(name));
    return [...known, ...this.names.filter((name) => !known.includes(name))];
  }

  private change(choice: Choice): void {
    this.choice = choice;
    try {
      localStorage.setItem(this.key, JSON.stringify(choice));
    } catch {
      // The choice applies to this page only.
    }
    this.show();
  }

  private toggle(name: string): void {
    const { order, hidden } = this.choice;
    const without = hidden.filter((other) => other !== name);
    this.change({ order, hidden: without.length < hidden.length ? without : [...hidden, name] });
  }

  private move(name: string, by: number): void {
    const order = this.ordered();
    const at = order.indexOf(name);
    const to = at + by;
    if (to < 0 || to >= order.length) return;
    order.splice(at, 1);
    order.splice(to, 0, name);
    // Columns of other tables are stored after the columns of this table.
    const others = this.choice.order.filter((other) => !this.places.has(other));
    const pressed = document.activeElement;
    this.change({ order: [...order, ...others], hidden: this.choice.hidden });
    // A moved element loses the focus. If the button is now disabled, its neighbor gets the focus.
    if (!(pressed instanceof HTMLButtonElement)) return;
    const beside = pressed.parentElement?.querySelector<HTMLElement>("button:not(:disabled)");
    (pressed.disabled ? beside : pressed)?.focus();
  }

  private arrange(order: string[]): void {
    for (const row of this.region.querySelectorAll("tr")) {
      const cells = cellsOf(row);
      for (const name of order) {
        const cell = cells[this.places.get(name) ?? -1];
        if (!cell) continue;
        cell.hidden = this.isHidden(name);
        row.append(cell);
      }
    }
  }

  private readonly show = (): void => {
    const order = this.ordered();
    const isAsSent = this.isAsSent();
    // Moving all cells takes most of the time of a page, so unchanged tables are skipped.
    if (this.arranged || !isAsSent) this.arrange(order);
    this.arranged = !isAsSent;
    const shown = order.filter((name) => !this.isHidden(name)).length;
    const isOpen = this.panel.querySelector("details")?.open ?? false;
    render(
      <details onToggle={this.show} onKeyDown={closeByKey}>
        <summary>
          Columns
          <span class="count">
            {shown === order.length ? shown : `${shown} of ${order.length}`}
          </span>
        </summary>
        {isOpen && (
          <div class="list">
            <p class="quiet">This browser remembers your choice for this dataset.</p>
            <ol>
              {order.map((name, at) => (
                <li key={name}>
                  <label class="check">
                    <input type="checkbox" checked={!this.isHidden(name)} onChange={() => this.toggle(name)} />
                    <bdi>{this.shown.get(name)}</bdi>
                  </label>
                  <button
                    type="button"
                    aria-label={`Move ${this.shown.get(name)} up`}
                    disabled={at === 0}
                    onClick={() => this.move(name, -1)}
                  >
                    ↑
                  </button>
                  <button
                    type="button"
                    aria-label={`Move ${this.shown.get(name)} down`}
                    disabled={at === order.length - 1}
                    onClick={() => this.move(name, 1)}
                  >
                    ↓
                  </button>
                </li>
              ))}
            </ol>
            <button type="button" onClick={() => this.change({ order: this.names, hidden: [] })}>
              Show all in the original order
            </button>
          </div>
        )}
      </details>,
      this.panel,
    );
  };
}

/** Closes the panel on Escape, as browsers close other popups. */
function closeByKey(event: KeyboardEvent): void {
  const panel = event.currentTarget;
  if (event.key !== "Escape" || !(panel instanceof HTMLDetailsElement)) return;
  panel.open = false;
  panel.querySelector("summary")?.focus();
}

/** The cells of each row in the original order. */
const sent = new WeakMap<Element, HTMLElement[]>();

function cellsOf(row: HTMLTableRowElement): HTMLElement[] {
  const cells = sent.get(row) ?? ([...row.children] as HTMLElement[]);
  sent.set(row, cells);
  return cells;
}

export function chooseColumns(): void {
  for (const region of document.querySelectorAll<HTMLElement>("[data-columns]")) {
    const panel = document.querySelector<HTMLElement>(".choice");
    if (panel) new Columns(region, panel);
  }
}
