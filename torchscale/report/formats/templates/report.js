"use strict";
(() => {
  // The value next to the pointer or finger. A chart's data are read when it is first pointed at.
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
  const NEAR = 30; // pixels
  const share = (value, [low, high], log) =>
    log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const readChart = (plot) => {
    const { frame, x, y, log, points, boxes } = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    const [left, right, bottom, top] = frame;
    const across = (value) => left + (right - left) * share(value, x, log[0]);
    const down = (value) => bottom + (top - bottom) * share(value, y, log[1]);
    const marks = points.flatMap(({ name, x: xs, y: ys, low, high, at }) => xs.map((value, place) => {
      const ends = low && low[place] !== high[place]
        ? ` (${number.format(low[place])} to ${high[place] === null ? "∞" : number.format(high[place])})` : "";
      const where = at?.[place] ?? number.format(value);
      const [h, v] = [across(value), down(ys[place])];
      return { box: [h, h, v, v], text: `${name}: ${number.format(ys[place])}${ends} at ${where}` };
    }));
    const bars = boxes.flatMap(({ name, left: starts, right: ends, low, high, texts }) => starts.map((start, place) => {
      const text = texts?.[place] ?? `from ${number.format(start)}, ${number.format(ends[place] - start)} long`;
      return { box: [across(start), across(ends[place]), down(low[place]), down(high[place])], text: `${name}: ${text}` };
    }));
    return [...marks, ...bars];
  };
  const beyond = (value, a, b) => Math.max(Math.min(a, b) - value, 0, value - Math.max(a, b));
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  for (const plot of document.querySelectorAll(".plot")) {
    let marks;
    const svg = plot.querySelector("svg");
    const point = (event) => {
      marks ??= readChart(plot);
      const area = svg.getBoundingClientRect();
      let found;
      let least = NEAR;
      for (const mark of marks) {
        const [left, right, low, high] = mark.box;
        const far = Math.hypot(
          beyond(event.clientX - area.left, left * area.width, right * area.width),
          beyond(event.clientY - area.top, low * area.height, high * area.height),
        );
        if (far < least) [least, found] = [far, mark];
      }
      tip.hidden = !found;
      if (!found) return;
      plot.append(tip);
      tip.textContent = found.text;
      const outer = plot.getBoundingClientRect();
      const middle = area.left - outer.left + (found.box[0] + found.box[1]) / 2 * area.width;
      const room = outer.width - tip.offsetWidth;
      tip.style.left = `${plot.scrollLeft + Math.max(0, Math.min(room, middle - tip.offsetWidth / 2))}px`;
      const above = Math.min(found.box[2], found.box[3]) * area.height - tip.offsetHeight - 8;
      tip.style.top = `${above > 0 ? above : Math.max(found.box[2], found.box[3]) * area.height + 8}px`;
    };
    plot.addEventListener("pointermove", point);
    plot.addEventListener("pointerdown", point);
    // A finger leaves when it is lifted; its value stays until something else is touched.
    plot.addEventListener("pointerleave", (event) => { tip.hidden ||= event.pointerType === "mouse"; });
  }
  addEventListener("pointerdown", (event) => { tip.hidden ||= !event.target.closest?.(".plot"); });

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
    tip.hidden = true;
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
