"use strict";
(() => {
  const banner = document.getElementById("live");
  const inputs = [...document.querySelectorAll("input[type=search]")];
  const KEY = "torchscale-filters";
  const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "{}");
  for (const input of inputs) {
    if (kept[input.id]) {
      input.value = kept[input.id];
      input.dispatchEvent(new Event("input"));
    }
  }
  const keep = () => {
    const values = inputs.filter((input) => input.value).map((input) => [input.id, input.value]);
    sessionStorage.setItem(KEY, JSON.stringify(Object.fromEntries(values)));
  };
  const ask = async () => {
    try {
      const state = await (await fetch("/state", { cache: "no-store" })).json();
      if (state.version !== banner.dataset.version) {
        keep();
        location.reload();
        return;
      }
      banner.textContent = state.running ? `Live. Running: ${state.running}` : "Live. Nothing runs at the moment.";
    } catch {
      banner.textContent = "Not live any more: the server does not answer.";
    }
    setTimeout(ask, 2000);
  };
  ask();
})();
