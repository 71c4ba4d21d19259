"use strict";
(() => {
  const banner = document.getElementById("live");
  const KEY = "torchscale-tables";
  const tables = [...document.querySelectorAll("table.searchable")].map((table) => ({
    caption: table.caption.textContent,
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
  const ask = async () => {
    try {
      const state = await (await fetch("/state", { cache: "no-store" })).json();
      if (state.version !== banner.dataset.version) {
        location.reload();
        return;
      }
      banner.textContent = state.running ? `Live. Running: ${state.running}` : "Live. Nothing is running.";
    } catch {
      banner.textContent = "Not live: the server does not answer.";
    }
    setTimeout(ask, 2000);
  };
  restore();
  addEventListener("pagehide", keep);
  ask();
})();
