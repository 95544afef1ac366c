// What a page does by itself: it draws its curves and takes up what changes. Without this program all but the curves works.
"use strict";
(() => {
  // The parts of a page that are taken from a newer copy of it.
  const parts = ["live", "rollouts", "groups", "books", "behaviour", "settings", "turns"];

  let asking = null;
  async function refresh() {
    if (asking || document.hidden || !live) return; // a page without live parts stays as it is
    asking = new AbortController();
    try {
      let text = final;
      if (text === null) {
        const answer = await fetch(location.href, { signal: asking.signal });
        if (answer.status === 401) location.reload(); // the link is another one now: the page says so
        if (!answer.ok) return;
        text = await answer.text();
      }
      const page = new DOMParser().parseFromString(text, "text/html");
      let stayed = false;
      for (const id of parts) {
        const now = document.getElementById(id), next = page.getElementById(id);
        // What somebody reads with the keyboard, or has folded otherwise than it came, stays until they leave it.
        if (!now || !next) continue;
        if (now.contains(document.activeElement) || now.querySelector("details[open]:not([data-open]), details[data-open]:not([open])")) {
          stayed = true;
          continue;
        }
        if (now.innerHTML !== next.innerHTML) now.replaceChildren(...next.childNodes);
      }
      const again = page.getElementById("live");
      if (beat && again && !again.dataset.every) { // nothing more comes: this copy is shown whole, and no other one is asked for
        final = stayed ? text : null;
        if (!stayed) {
          clearInterval(beat);
          beat = null;
          delete live.dataset.every;
        }
      }
      const slider = document.getElementById("at"), last = page.getElementById("at");
      if (slider && last && slider !== document.activeElement) {
        slider.max = last.max;
        slider.value = last.value;
        slider.previousElementSibling.replaceChildren(...last.previousElementSibling.childNodes);
      }
      await draw();
    } catch {
      // The plane is away; the next change, or the next beat, asks again.
    } finally {
      asking = null;
    }
  }

  // Curves.
  const charts = document.querySelector("[data-curves]");
  const drawn = new Map();
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Steps, versions and tokens are whole numbers: no tick stands between them.
  const wholes = [...Array(13).keys()].flatMap((n) => [1, 2, 5].map((m) => m * 10 ** n));
  const brief = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });

  function options(box, chart) {
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const up = { ...axis, values: (_, ticks) => ticks.map((v) => brief.format(v)) };
    // Of figures that are all the same the axis begins at 0.
    const range = (_, low, high) => low === null ? [0, 1] : low === high ? [Math.min(low, 0), Math.max(high, 0) || (low < 0 ? 0 : 1)] : uPlot.rangeNum(low, high, 0.1, true);
    const across = chart.time ? axis : { ...axis, incrs: wholes, values: (_, ticks) => ticks.map((v) => v < 1e4 ? String(v) : brief.format(v)) };
    return {
      width: Math.max(200, box.clientWidth), height: 190, scales: { x: { time: !!chart.time }, y: { range } }, axes: [across, up], legend: { live: true },
      series: [{ label: chart.time ? "time" : box.dataset.axis || "step" }, ...chart.series.map((s, i) => ({
        label: s.name, stroke: colour("--c" + (i % 5 + 1)), width: 2, dash: [[], [6, 3], [2, 3], [10, 4], [1, 2]][i % 5], points: { show: chart.x.length < 40 }, spanGaps: !!chart.joined,
      }))],
    };
  }

  let last = null;
  async function draw() {
    if (!charts || typeof uPlot === "undefined") return;
    const answer = await fetch(charts.dataset.curves);
    if (!answer.ok) return;
    last = await answer.json();
    show(false);
  }

  function show(anew) {
    if (!last) return;
    for (const box of charts.querySelectorAll("[data-chart]")) {
      const chart = last[box.dataset.chart];
      if (!chart) continue;
      if (!chart.x || !chart.x.length) {
        if (!drawn.has(box)) box.textContent = chart.why || "";
        continue;
      }
      const data = [chart.x, ...chart.series.map((s) => s.values)];
      const plot = drawn.get(box);
      if (plot && !anew) {
        plot.setData(data);
      } else {
        if (plot) plot.destroy();
        else box.textContent = "";
        drawn.set(box, new uPlot(options(box, chart), data, box));
      }
      box.dataset.points = chart.x.length;
    }
  }

  // What tells a page that there is something new.
  const live = document.getElementById("live");
  let source = null, beat = null, final = null;
  function listen() {
    if (live && live.dataset.live && !source) {
      source = new EventSource(live.dataset.live);
      source.addEventListener("change", refresh);
      source.addEventListener("over", () => { live.dataset.live = ""; source.close(); source = null; });
    }
  }
  // A page in the background lets go of its line.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      if (source) source.close();
      source = null;
    } else {
      listen();
      refresh();
    }
  });
  addEventListener("pagehide", () => { if (source) source.close(); source = null; });
  addEventListener("pageshow", listen);
  if (live && live.dataset.every) beat = setInterval(refresh, Number(live.dataset.every));

  // The slider shows where it would go, and goes there.
  const slider = document.getElementById("at");
  if (slider) {
    slider.addEventListener("input", () => { document.getElementById("at-value").textContent = slider.value; });
    slider.addEventListener("change", () => slider.form.requestSubmit());
  }

  // Light and dark: as the system says, until somebody says otherwise here.
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  function theme(name) {
    if (name) root.dataset.theme = name;
    button.textContent = dark() ? "Light" : "Dark";
    show(true);
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    const name = dark() ? "light" : "dark";
    try { localStorage.setItem("theme", name); } catch { /* it holds for this page */ }
    theme(name);
  });
  let stored = null;
  try { stored = localStorage.getItem("theme"); } catch { /* none is kept */ }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => theme());

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; show(true); } });

  theme(stored === "dark" || stored === "light" ? stored : "");
  listen();
  draw();
})();
