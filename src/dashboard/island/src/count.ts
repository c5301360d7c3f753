// Loads the number of matches if counting would have delayed the page. `a[data-count]` links to a page with the count.
// `data-count` is the URL of the API call that counts, and `data-limit` is the number of entities per page.

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

/** Adds a link to the last page, which is known once the entities have been counted. */
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
  // Requests go to this server only.
  if (url.origin !== location.origin) return;
  const count = await counted(url);
  // If counting fails, the link remains.
  if (count === null) return;
  addLast(link, count);
  const entities = `${count.toLocaleString("en")} ${count === 1 ? "entity" : "entities"}`;
  // If the page shows no entities, the text before the link is a sentence.
  const isSentence = (link.parentElement?.textContent ?? "").includes(".");
  link.replaceWith(isSentence ? `${entities} in total` : `of ${entities}`);
}

export function fillCounts(): void {
  for (const link of document.querySelectorAll<HTMLAnchorElement>("a[data-count]")) void fill(link);
}
