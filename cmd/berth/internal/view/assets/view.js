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
      const nodes = [...from.children].filter((n) => !at.dataset.inner || n.matches(at.dataset.inner));
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

  // Libraries are loaded when they are needed, each once.
  const libraries = {};
  const library = (file, kind, attributes) => libraries[file] ||= new Promise((done, failed) => {
    const e = Object.assign(document.createElement(kind), attributes);
    e.onload = done;
    e.onerror = () => failed(new Error(file + " is missing"));
    document.head.append(e);
  });
  const script = (name) => library(name + ".js", "script", { src: "/assets/" + name + ".js" });
  const style = (name) => library(name + ".css", "link", { rel: "stylesheet", href: "/assets/" + name + ".css" });

  // Terminals are played, in step with the conversation.
  let play, played = false; // the recording that was played last, before that the first of the page
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
    play.at.scrollIntoView({ block: "nearest" });
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
  // playable is a recording without lines that the player does not understand, and without
  // changes of its size, which could be any number.
  const playable = (text) => {
    const read = (line) => { try { return JSON.parse(line); } catch { return null; } };
    const [head, ...lines] = text.split("\n").map(read);
    const size = (n, most) => Math.min(Math.max(Number(n) || 1, 1), most);
    const width = size(head.term?.cols ?? head.width, 500), height = size(head.term?.rows ?? head.height, 300);
    const events = lines.filter(Array.isArray).map(([at, kind, what]) => [Number(at) || 0, ...(["o", "m"].includes(kind) ? [kind, String(what)] : ["o", ""])]);
    return { begun: Number(head.timestamp) || 0, lines: [{ version: head.version, width, height, term: { cols: width, rows: height } }, ...events] };
  };
  const show = async (at) => {
    if (busy.has(at)) return;
    busy.add(at);
    try {
      await Promise.all([style("asciinema-player"), script("asciinema-player")]); // with its style: nothing jumps later
      const options = { fit: "width", controls: true, theme: "asciinema", terminalFontFamily: "monospace" };
      const answer = await fetch(at.dataset.cast, { credentials: "same-origin" });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      const { begun, lines } = playable(text);
      const player = AsciinemaPlayer.create({ data: lines.map((l) => JSON.stringify(l)).join("\n") }, at, { ...options, preload: true, poster: "npt:0:01" });
      const mine = { at, player, begun };
      player.addEventListener("play", () => { play = mine; played = true; });
      if (!play || !played && at.compareDocumentPosition(play.at) & Node.DOCUMENT_POSITION_FOLLOWING) play = mine;
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
    draw();
  };

  // called is equal for an element and its successor when its part of the page is
  // made anew, so that what had the focus keeps it.
  const called = (e) => [e.tagName, e.getAttribute("href"), e.dataset.compare, e.getAttribute("aria-label") || e.textContent].join(" ");

  // A page of something in progress asks for itself again.
  let following = document.body.dataset.live !== undefined;
  const before = new Map();
  document.querySelectorAll("[data-fresh]").forEach((e) => before.set(e.id, e.innerHTML));
  const renew = async () => {
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
        if (place) [...at.querySelectorAll("a, button, summary, [tabindex]")].find((e) => called(e) === place)?.focus();
      }
      document.querySelectorAll('[data-more][data-count="0"]').forEach(load);
      following = page.body.dataset.live !== undefined;
      await again();
      document.documentElement.dataset.renewed = String(Number(document.documentElement.dataset.renewed || 0) + 1);
      found();
    } catch { /* the next time tries again */ }
    if (following) setTimeout(renew, 1000);
  };
  if (following) setTimeout(renew, 1000);

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

  // The charts of a report are drawn once it is there, and again while its run is in
  // progress, unless somebody has opened a part of it.
  let drawn = 0;
  const draw = async () => {
    const at = document.getElementById("report");
    if (drawn || !document.getElementById("data")) return;
    drawn = Date.now();
    try {
      for (const name of ["vega", "vega-lite", "vega-embed"]) await script(name);
      await drawReport();
    } catch (e) {
      at.prepend("The charts could not be drawn: " + e.message);
      document.documentElement.dataset.drawn = "yes";
    }
  };
  const again = async () => {
    const at = document.getElementById("report");
    if (!at || Date.now() - drawn < 20000 || at.querySelector("#attempts table, details[open]") || at.contains(document.activeElement)) return;
    at.replaceWith(...copied([(await parsed(at.dataset.report)).getElementById("report")]));
    drawn = 0;
  };
  found();
})();
