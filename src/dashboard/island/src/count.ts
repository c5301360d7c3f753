// The number of all that match, where counting is so much work that the page did not wait for it. `a[data-count]` leads to
// a page that does; its `data-count` is the call that counts, its `data-limit` the entities of a page.

async function counted(url: URL): Promise<number | null> {
  try {
    const answer = await fetch(url);
    if (!answer.ok) return null;
    const { count } = (await answer.json()) as { count?: unknown };
    return typeof count === "number" ? count : null;
  } catch {
    return null;
  }
}

/** Leads to the last page, which is known now. */
function addLast(link: HTMLAnchorElement, count: number): void {
  const limit = Number(link.dataset["limit"]);
  const offset = Math.floor((count - 1) / limit) * limit;
  const last = new URL(link.href);
  if (!(offset > Number(last.searchParams.get("offset") ?? 0))) return;
  last.searchParams.delete("total");
  last.searchParams.set("offset", String(offset));
  for (const pages of document.querySelectorAll("nav.pages:has(a[rel=next])")) {
    const button = document.createElement("a");
    button.className = "button";
    button.href = last.href;
    button.textContent = "Last";
    pages.append(button);
  }
}

async function fill(link: HTMLAnchorElement): Promise<void> {
  const url = new URL(link.dataset["count"] ?? "", location.href);
  // Only the service itself is asked.
  if (url.origin !== location.origin) return;
  const count = await counted(url);
  // What cannot be had now is still behind the link.
  if (count === null) return;
  addLast(link, count);
  const entities = `${count.toLocaleString("en")} ${count === 1 ? "entity" : "entities"}`;
  // Where none are shown, the words before are a sentence.
  const isSentence = (link.parentElement?.textContent ?? "").includes(".");
  link.replaceWith(isSentence ? `${entities} in total` : `of ${entities}`);
}

export function fillCounts(): void {
  for (const link of document.querySelectorAll<HTMLAnchorElement>("a[data-count]")) void fill(link);
}
