// Keeps the column of positions visible once the user scrolls a table sideways. The column is not sticky before,
// because browsers create a layer for each sticky cell.

export function keepPositions(): void {
  const region = document.querySelector(".entities")?.parentElement;
  const moved = (): void => {
    if (!region?.scrollLeft) return;
    region.classList.add("moved");
    region.removeEventListener("scroll", moved);
  };
  region?.addEventListener("scroll", moved, { passive: true });
}
