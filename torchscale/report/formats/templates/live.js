"use strict";
(() => {
  const banner = document.getElementById("live");
  const KEY = "torchscale-tables";
  const tables = [...document.querySelectorAll("table.searchable")].map((table) => ({
    caption: table.caption.textContent.split(" (")[0], // what all rows share, which follows, changes
    headings: [...table.tHead.rows[0].cells],
    filter: document.getElementById(table.id + "-filter"),
  }));

  // A reload keeps what the reader chose in each table: its order, its filter, and whether they were typing there.
  const keep = () => {
    const chosen = tables.map(({ caption, headings, filter }) => {
      const sorted = headings.find((heading) => heading.hasAttribute("aria-sort"));
      return [caption, {
        column: sorted?.textContent,
        down: sorted?.getAttribute("aria-sort") === "descending",
        words: filter.value,
        typing: document.activeElement === filter,
      }];
    });
    sessionStorage.setItem(KEY, JSON.stringify(Object.fromEntries(chosen)));
  };
  const restore = () => {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
    for (const { caption, headings, filter } of tables) {
      const { column, down, words, typing } = kept[caption] ?? {};
      const sorted = headings.find((heading) => heading.textContent === column)?.querySelector("button");
      sorted?.click();
      if (down) sorted?.click();
      if (words) {
        filter.value = words;
        filter.dispatchEvent(new Event("input"));
      }
      if (typing) filter.focus({ preventScroll: true });
    }
  };
  // So do the parts that were unfolded.
  const OPEN = "torchscale-open";
  const folds = [...document.querySelectorAll("details.fold")];
  const anchor = (fold) => fold.querySelector("h3").id;
  const keepOpen = () => {
    sessionStorage.setItem(OPEN, JSON.stringify(folds.filter((fold) => fold.open).map(anchor)));
  };
  const restoreOpen = () => {
    const open = JSON.parse(sessionStorage.getItem(OPEN) ?? "[]");
    folds.filter((fold) => open.includes(anchor(fold))).forEach((fold) => { fold.open = true; });
  };
  const ask = async () => {
    try {
      const state = await (await fetch("/state", { cache: "no-store" })).json();
      if (state.version !== banner.dataset.version) {
        location.reload();
        return;
      }
      banner.textContent = state.running ? `Live: ${state.running}` : "Live. Nothing is being measured.";
    } catch {
      banner.textContent = "Not live: the server does not answer.";
    }
    setTimeout(ask, 2000);
  };
  restoreOpen();
  restore();
  addEventListener("pagehide", () => {
    keep();
    keepOpen();
  });
  ask();
})();
