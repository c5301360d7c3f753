// Work that nobody waits for: what is done once the page is there and its entities are in sight.

export function later(work: () => void): void {
  const begin = () => setTimeout(work);
  if (document.readyState === "complete") begin();
  else addEventListener("load", begin, { once: true });
}
