// The positions of entities stay in sight once a table is moved sideways. Browsers make a layer of each that stays, so
// none does before that.

export function keepPositions(): void {
  const region = document.querySelector(".entities")?.parentElement;
  const moved = (): void => {
    if (!region?.scrollLeft) return;
    region.classList.add("moved");
    region.removeEventListener("scroll", moved);
  };
  region?.addEventListener("scroll", moved, { passive: true });
}
