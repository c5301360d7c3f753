// Runs work after the page has loaded and its entities are visible.

export function later(work: () => void): void {
  const begin = () => setTimeout(work);
  if (document.readyState === "complete") begin();
  else addEventListener("load", begin, { once: true });
}
