"use strict";
(() => {
  const parsed = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  // Parts of long things are loaded when their place is seen.
  const busy = new WeakSet();
  const load = async (at) => {
    if (busy.has(at)) return;
    busy.add(at);
    try {
      const page = await parsed(at.dataset.more);
      const from = at.dataset.inner ? page.querySelector("main") : page.body;
      const nodes = [...from.children].filter((n) => !at.dataset.inner || n.matches("pre, .more"));
      if (nodes.some((n) => n.matches("section"))) document.getElementById("nosteps")?.remove();
      at.replaceWith(...nodes.map((n) => document.importNode(n, true)));
      watch();
    } catch {
      busy.delete(at);
    }
  };
  const seen = new IntersectionObserver((all) => {
    for (const e of all) if (e.isIntersecting && e.target.dataset.count !== "0") load(e.target);
  }, { rootMargin: "600px" });
  const watch = () => document.querySelectorAll("[data-more]").forEach((e) => seen.observe(e));
  watch();

  // What goes on is shown again when the files have changed.
  const live = document.querySelector("[data-live]");
  if (live) {
    const source = new EventSource(live.dataset.live);
    let working = false, again = false;
    const renew = async () => {
      if (working) { again = true; return; }
      working = true;
      try {
        const page = await parsed(location.href);
        const fresh = page.getElementById("live");
        if (fresh) document.getElementById("live").replaceChildren(...[...fresh.childNodes].map((n) => document.importNode(n, true)));
        const last = document.querySelector("#steps > [data-more]");
        if (last && last.dataset.count === "0") load(last);
        if (fresh && !fresh.dataset.live) source.close();
      } catch { /* the next change tries again */ }
      working = false;
      if (again) { again = false; renew(); }
    };
    source.addEventListener("message", renew);
  }

  let first = "";
  document.addEventListener("click", (e) => {
    const key = e.target.dataset?.compare;
    if (!key) return;
    if (first && first !== key) {
      location.href = "/compare?" + new URLSearchParams({ a: first, b: key });
      return;
    }
    first = key;
    e.target.textContent = "picked";
  });

  const script = (name) => new Promise((done, failed) => {
    const s = document.createElement("script");
    s.src = "/assets/" + name + ".js";
    s.onload = done;
    s.onerror = failed;
    document.head.append(s);
  });
  const place = document.getElementById("charts");
  const draw = async () => {
    try {
      const data = await (await fetch(place.dataset.charts, { credentials: "same-origin" })).json();
      for (const name of ["vega", "vega-lite", "vega-embed"]) await script(name);
      place.replaceChildren();
      const ink = getComputedStyle(document.body).color;
      const config = {
        background: "transparent", font: "system-ui, sans-serif", view: { stroke: null }, text: { color: ink },
        axis: { labelColor: ink, titleColor: ink, titleFontWeight: "normal" }, legend: { labelColor: ink, titleColor: ink },
      };
      for (const c of data.charts) {
        const figure = document.createElement("figure"), caption = document.createElement("figcaption"), at = document.createElement("div");
        caption.textContent = c.spec.description;
        at.className = "chart";
        figure.append(caption, at);
        place.append(figure);
        await vegaEmbed(at, { ...c.spec, data: { values: data.tables[c.data] } }, {
          actions: false, ast: true, defaultStyle: false, logLevel: vega.Error, renderer: "canvas", config,
          tooltip: { disableDefaultStyle: true }, loader: { load: () => Promise.reject(new Error("nothing is loaded")) },
        });
      }
    } catch (e) {
      place.textContent = "The charts could not be drawn: " + e;
    }
    document.documentElement.dataset.drawn = "yes";
  };
  if (place) new IntersectionObserver((all, self) => {
    if (all.some((e) => e.isIntersecting)) { self.disconnect(); draw(); }
  }).observe(place);
})();
