"use strict";
(() => {
  const parsed = async (url) => {
    const answer = await fetch(url, { credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  };
  const copied = (nodes) => [...nodes].map((n) => document.importNode(n, true));
  // What scrolls can be reached with the keyboard.
  const reach = () => document.querySelectorAll("pre:not([tabindex])").forEach((e) => {
    if (e.scrollHeight > e.clientHeight + 1) e.tabIndex = 0;
  });

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
      const film = at.closest(".film"), last = film && film.scrollLeft + film.clientWidth > film.scrollWidth - 40;
      at.replaceWith(...copied(nodes));
      if (last && following) film.scrollLeft = film.scrollWidth;
      found();
    } catch {
      at.dataset.count = "0"; // the next change tries again
      busy.delete(at);
    }
  };
  const seen = new IntersectionObserver((all) => {
    for (const e of all) if (e.isIntersecting && e.target.dataset.count !== "0") load(e.target);
  }, { rootMargin: "600px" });
  document.addEventListener("toggle", async (e) => {
    const at = e.target;
    if (!at.dataset?.src || !at.open) return;
    const url = at.dataset.src, inner = at.dataset.inner !== undefined;
    delete at.dataset.src;
    try {
      const page = await parsed(url);
      const main = page.querySelector("main"), nodes = [...(main || page.body).children].filter((n) => !n.matches("h1, .terminal"));
      [...at.children].slice(inner ? 2 : 1).forEach((n) => n.remove());
      at.append(...copied(nodes));
    } catch (err) {
      at.append("It could not be loaded: " + err.message);
    }
    found();
  }, true);

  const scripts = {};
  const script = (name) => scripts[name] ||= new Promise((done, failed) => {
    const s = document.createElement("script");
    s.src = "/assets/" + name + ".js";
    s.onload = done;
    s.onerror = () => failed(new Error("its script is missing"));
    document.head.append(s);
  });

  // Terminals are played, in step with the conversation.
  let play; // the recording that was played last
  const step = () => {
    if (!play || !document.getElementById("follow")?.checked) return;
    const now = (play.begun + play.player.getCurrentTime()) * 1000;
    const all = [...document.querySelectorAll("#steps > .step[data-at]")];
    const at = all.find((s) => Number(s.dataset.at) >= now) || all.at(-1);
    if (!at || at.classList.contains("now")) return;
    document.querySelectorAll(".step.now").forEach((s) => { s.classList.remove("now"); s.removeAttribute("aria-current"); });
    at.classList.add("now");
    at.setAttribute("aria-current", "step");
  };
  const seek = (section) => {
    const before = section.previousElementSibling?.dataset?.at || section.dataset.at;
    play.player.seek(Math.max(0, Number(before) / 1000 - play.begun));
    document.querySelector(".terminal").scrollIntoView({ block: "nearest" });
  };
  const buttons = () => {
    if (!play) return;
    for (const section of document.querySelectorAll("#steps > .step[data-at]")) {
      const h = section.querySelector("h3");
      if (!h || h.querySelector("button") || section.dataset.at === "0") continue;
      const b = document.createElement("button");
      b.type = "button";
      b.textContent = "▶ terminal";
      b.addEventListener("click", () => seek(section));
      h.append(" ", b);
    }
  };
  const show = async (at) => {
    if (busy.has(at)) return;
    busy.add(at);
    try {
      if (!document.querySelector("link[data-player]")) {
        const l = document.createElement("link");
        l.rel = "stylesheet";
        l.href = "/assets/asciinema-player.css";
        l.dataset.player = "";
        document.head.append(l);
      }
      await script("asciinema-player");
      const options = { fit: "width", controls: true, theme: "asciinema", terminalFontFamily: "monospace" };
      if (at.dataset.watch) {
        const player = AsciinemaPlayer.create({ driver: "eventsource", url: at.dataset.watch }, at, { ...options, autoPlay: true });
        player.addEventListener("playing", () => { at.dataset.drawn = "yes"; });
        return;
      }
      const answer = await fetch(at.dataset.cast, { credentials: "same-origin" });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      const player = AsciinemaPlayer.create({ data: text }, at, { ...options, preload: true, poster: "npt:0:01" });
      const mine = { player, begun: JSON.parse(text.slice(0, text.indexOf("\n"))).timestamp };
      player.addEventListener("play", () => { play = mine; });
      play ||= mine;
      setInterval(step, 250);
      buttons();
      at.dataset.drawn = "yes";
    } catch (err) {
      at.textContent = "The recording cannot be played. " + err.message;
    }
  };
  const terminals = new IntersectionObserver((all) => {
    for (const e of all) if (e.isIntersecting) { terminals.unobserve(e.target); show(e.target); }
  });

  // found looks after what has come into the page.
  const found = () => {
    document.querySelectorAll("[data-more]").forEach((e) => seen.observe(e));
    document.querySelectorAll(".terminal:empty").forEach((e) => terminals.observe(e));
    buttons();
    reach();
  };

  // called is equal for an element and its successor when its part of the page is
  // made anew: links, buttons and summaries keep the focus.
  const called = (e) => [e.tagName, e.getAttribute("href"), e.dataset.compare, e.getAttribute("aria-label"), e.textContent].join(" ");

  // What happens is shown again when the files have changed.
  const following = document.body.dataset.live;
  const before = new Map();
  document.querySelectorAll("[data-fresh]").forEach((e) => before.set(e.id, e.innerHTML));
  if (following) {
    let source, working = false, again = false;
    const renew = async () => {
      if (working) { again = true; return; }
      working = true;
      try {
        const page = await parsed(location.href);
        for (const fresh of page.querySelectorAll("[data-fresh]")) {
          const at = document.getElementById(fresh.id);
          if (!at || before.get(fresh.id) === fresh.innerHTML) continue;
          before.set(fresh.id, fresh.innerHTML);
          const open = new Map([...at.querySelectorAll("details")].map((d) => [d.querySelector("summary").textContent, d.open]));
          const kept = document.activeElement, place = at.contains(kept) && called(kept);
          at.replaceChildren(...copied(fresh.childNodes));
          at.querySelectorAll("details").forEach((d) => { if (open.get(d.querySelector("summary").textContent)) d.open = true; });
          if (place) [...at.querySelectorAll("a, button, summary")].find((e) => called(e) === place)?.focus();
        }
        document.querySelectorAll('[data-more][data-count="0"]').forEach(load);
        if (drawn && Date.now() - drawn > 20000) draw();
        if (!page.body.dataset.live) source.close();
        document.documentElement.dataset.renewed = String(Number(document.documentElement.dataset.renewed || 0) + 1);
        found();
      } catch { /* the next change tries again */ }
      working = false;
      if (again) { again = false; renew(); }
    };
    source = new EventSource(following);
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
    e.target.setAttribute("aria-pressed", "true");
  });

  const place = document.getElementById("charts");
  let drawn = 0;
  const draw = async () => {
    try {
      drawn = Date.now();
      for (const name of ["vega", "vega-lite", "vega-embed"]) await script(name);
      const ink = getComputedStyle(document.body).color;
      const config = {
        background: "transparent", font: "system-ui, sans-serif", view: { stroke: null }, text: { color: ink },
        axis: { labelColor: ink, titleColor: ink, titleFontWeight: "normal" }, legend: { labelColor: ink, titleColor: ink },
      };
      const known = new Set();
      for (const url of place.dataset.charts.split(" ")) {
        const answer = await fetch(url, { credentials: "same-origin" });
        if (!answer.ok) throw new Error(await answer.text());
        const data = await answer.json();
        for (const c of data.charts) {
          let figure = document.getElementById("chart-" + c.id);
          if (!figure) {
            figure = document.createElement("figure");
            figure.id = "chart-" + c.id;
            const caption = document.createElement("figcaption"), at = document.createElement("div");
            caption.textContent = c.spec.description;
            at.className = "chart";
            at.setAttribute("role", "img");
            at.setAttribute("aria-label", c.spec.description);
            figure.append(caption, at);
            if (!known.size) place.querySelector("p")?.remove();
            place.append(figure);
          }
          known.add(figure.id);
          await vegaEmbed(figure.querySelector(".chart"), { ...c.spec, data: { values: data.tables[c.data] } }, {
            actions: false, ast: true, defaultStyle: false, logLevel: vega.Error, renderer: "canvas", config,
            tooltip: { disableDefaultStyle: true }, loader: { load: () => Promise.reject(new Error("nothing is loaded")) },
          });
        }
      }
    } catch (e) {
      place.textContent = "The charts could not be drawn: " + e.message;
    }
    document.documentElement.dataset.drawn = "yes";
  };
  if (place) new IntersectionObserver((all, self) => {
    if (all.some((e) => e.isIntersecting)) { self.disconnect(); draw(); }
  }).observe(place);
  found();
})();
