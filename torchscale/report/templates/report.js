"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft") };
    return {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  };
  const draw = () => {
    for (const plot of document.querySelectorAll(".plot")) {
      const chart = JSON.parse(document.getElementById(plot.id + "-data").textContent);
      Plotly.react(plot, chart.data, themed(chart.layout), { responsive: true, displaylogo: false, displayModeBar: false });
    }
  };
  if (window.Plotly) {
    draw();
    dark.addEventListener("change", draw);
  }

  const order = (a, b) => {
    const [x, y] = [a.dataset.sort ?? "", b.dataset.sort ?? ""];
    if (x === "" || y === "") return (x === "") - (y === "");
    const [m, n] = [Number(x), Number(y)];
    return Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
  };
  for (const table of document.querySelectorAll("table.searchable")) {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const rows = [...body.rows].sort((a, b) => {
          const [x, y] = [a.cells[column], b.cells[column]];
          const blank = (x.dataset.sort === "") - (y.dataset.sort === "");
          return blank || (down ? -1 : 1) * order(x, y);
        });
        body.append(...rows);
      });
    });
    const input = document.getElementById(table.id + "-filter");
    const count = document.getElementById(table.id + "-count");
    const texts = [...body.rows].map((row) => [row, row.textContent.toLowerCase()]);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const [row, text] of texts) {
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${texts.length} rows`;
    });
  }
})();
