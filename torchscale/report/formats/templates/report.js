"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const themed = (layout) => {
    const axis = { gridcolor: colour("--line"), zerolinecolor: colour("--line"), linecolor: colour("--soft") };
    return {
      ...layout,
      title: undefined, // stands above the plot, where it can be wrapped and selected
      margin: { ...layout.margin, t: layout.margin.t - 32 },
      height: layout.height - 32,
      dragmode: coarse.matches ? false : layout.dragmode, // a finger that scrolls the page must not zoom
      legend: { ...layout.legend, bgcolor: layout.legend?.bgcolor && colour("--veil") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
      xaxis: { ...layout.xaxis, ...axis },
      yaxis: { ...layout.yaxis, ...axis },
    };
  };
  const draw = (plot) => {
    const chart = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    Plotly.react(plot, chart.data, themed(chart.layout), { responsive: true, displaylogo: false, displayModeBar: false });
    plot.dataset.drawn = "";
  };
  const plots = [...document.querySelectorAll(".plot")];
  const library = document.getElementById("plotly");
  const load = () => {
    if (window.Plotly) return;
    const script = document.createElement("script");
    script.textContent = library.textContent;
    document.head.append(script);
  };
  if (library) {
    // Text and tables are there first; then the library is run, and each chart drawn when it comes near the window.
    // What is folded is not rendered, and so not near.
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (entry.isIntersecting) {
          near.unobserve(entry.target);
          draw(entry.target);
        }
      }
    }, { rootMargin: "600px" });
    const whenIdle = window.requestIdleCallback ?? setTimeout;
    addEventListener("load", () => whenIdle(() => {
      load();
      plots.forEach((plot) => near.observe(plot));
    }));
    dark.addEventListener("change", () => plots.filter((plot) => plot.dataset.drawn !== undefined).forEach(draw));
  }

  const folds = [...document.querySelectorAll("details")];
  const unfold = document.getElementById("unfold");
  if (folds.length) {
    const label = () => {
      unfold.textContent = folds.every((fold) => fold.open) ? "Fold all" : "Unfold all";
    };
    unfold.hidden = false;
    unfold.addEventListener("click", () => {
      const open = !folds.every((fold) => fold.open);
      folds.forEach((fold) => { fold.open = open; });
    });
    folds.forEach((fold) => fold.addEventListener("toggle", label));
  }
  const follow = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target?.closest("details");
    if (!fold) return;
    fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  follow();
  // Paper holds everything; afterwards the page is as it was.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = folds.filter((fold) => !fold.open);
    opened.forEach((fold) => { fold.open = true; });
    if (library) {
      load();
      plots.filter((plot) => plot.dataset.drawn === undefined).forEach(draw);
    }
  });
  addEventListener("afterprint", () => opened.forEach((fold) => { fold.open = false; }));

  const TONES = ["plain", "good", "caution", "bad", "dim"];
  const PAGE = 100;

  // A row is {keys, text, element()}: of the page where all rows are on it, else of the data beside the table.
  const rowsOfPage = (table) =>
    [...table.tBodies[0].rows].map((element) => ({
      cells: [...element.cells].map((cell) => cell.textContent),
      keys: [...element.cells].map((cell) => cell.dataset.sort ?? ""),
      element: () => element,
    }));
  const rowsOfData = (table, data) => {
    const headings = [...table.tHead.rows[0].cells];
    const numeric = headings.map((heading) => heading.classList.contains("number"));
    return JSON.parse(data.textContent).map((values) => {
      const parts = values.map((value) => (Array.isArray(value) ? value : [value]));
      const cells = parts.map(([text]) => text);
      let element;
      const make = () => {
        const row = document.createElement("tr");
        parts.forEach(([text, , tone], column) => {
          const cell = row.insertCell();
          cell.textContent = text;
          cell.className = TONES[tone ?? 0] + (numeric[column] ? " number" : "");
          cell.dataset.label = headings[column].textContent;
        });
        return row;
      };
      return {
        cells,
        keys: parts.map(([text, key]) => String(key ?? (text === "–" ? "" : text))),
        element: () => (element ??= make()),
      };
    });
  };

  const compare = (x, y) => {
    const [m, n] = [Number(x), Number(y)];
    return Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n;
  };
  // A column by its title or another name for it ("ranks" for "CPU ranks"), or by how either begins.
  const columnOf = (names, key) => {
    const exact = names.findIndex((all) => all.includes(key));
    return exact >= 0 ? exact : names.findIndex((all) => all.some((name) => name.startsWith(key)));
  };
  const namesOf = (heading) =>
    [heading.textContent.toLowerCase().replace(/\s/g, ""), ...(heading.dataset.aliases ?? "").split(" ")].filter(Boolean);
  const matcher = (headings, names, word) => {
    // "state:oom" asks one column: numbers must be equal, texts contain the word.
    const cut = word.indexOf(":");
    const column = cut > 0 ? columnOf(names, word.slice(0, cut)) : -1;
    if (column < 0) return (row) => (row.text ??= row.cells.join(" ").toLowerCase()).includes(word);
    const wanted = word.slice(cut + 1);
    const text = (row) => row.cells[column].toLowerCase().replace(/\u00a0/g, " ");
    if (!headings[column].classList.contains("number")) return (row) => text(row).includes(wanted);
    return (row) => {
      const number = text(row).replace(/,/g, "");
      return number === wanted || number.startsWith(wanted + " ");
    };
  };

  for (const table of document.querySelectorAll("table.searchable")) {
    const data = document.getElementById(table.id + "-data");
    const input = document.getElementById(table.id + "-filter");
    const count = document.getElementById(table.id + "-count");
    const pager = document.getElementById(table.id + "-pager");
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    let all;
    let order = { column: -1, down: false };
    let found = [];
    let first = 0;
    const names = headings.map(namesOf);
    // "CPU ranks:2" is one question: titles are joined before the words are taken apart.
    const words = () => headings
      .map((heading) => heading.textContent.toLowerCase())
      .filter((title) => title.includes(" "))
      .reduce((text, title) => text.replaceAll(`${title}:`, `${title.replace(/\s/g, "")}:`), input.value.toLowerCase())
      .split(/\s+/).filter(Boolean);
    const unknown = () => words().find((word) => /^[^:]+:/.test(word) && columnOf(names, word.split(":")[0]) < 0);
    const rows = () => (all ??= data ? rowsOfData(table, data) : rowsOfPage(table));
    const show = () => {
      const size = data ? PAGE : Math.max(1, found.length);
      first = Math.max(0, Math.min(first, Math.floor(Math.max(0, found.length - 1) / size) * size));
      body.replaceChildren(...found.slice(first, first + size).map((row) => row.element()));
      const stray = found.length ? undefined : unknown();
      count.textContent = `${found.length} of ${rows().length} rows` + (stray
        ? `; no column "${stray.split(":")[0]}" (there are: ${headings.map((heading) => heading.textContent).join(", ")})`
        : "");
      if (pager) {
        const last = Math.min(first + size, found.length);
        pager.querySelector(".place").textContent = found.length ? `rows ${first + 1} to ${last}` : "";
        pager.querySelector(".previous").disabled = first === 0;
        pager.querySelector(".next").disabled = last >= found.length;
      }
    };
    const update = () => {
      const matchers = words().map((word) => matcher(headings, names, word));
      found = rows().filter((row) => matchers.every((matches) => matches(row)));
      if (order.column >= 0) {
        const { column, down } = order;
        found.sort((a, b) => {
          const [x, y] = [a.keys[column], b.keys[column]];
          const blank = (x === "") - (y === "");
          return blank || (x === "" ? 0 : (down ? -1 : 1) * compare(x, y));
        });
      }
      first = 0;
      show();
    };
    headings.forEach((heading, column) => {
      heading.querySelector("button").addEventListener("click", () => {
        order = { column, down: heading.getAttribute("aria-sort") === "ascending" };
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", order.down ? "descending" : "ascending");
        update();
      });
    });
    input.addEventListener("input", update);
    if (pager) {
      const turn = (by) => () => {
        if (all === undefined) update();
        first += by * PAGE;
        show();
      };
      pager.querySelector(".previous").addEventListener("click", turn(-1));
      pager.querySelector(".next").addEventListener("click", turn(1));
      pager.hidden = false;
    }
  }
})();
