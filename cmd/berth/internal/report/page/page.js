"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
// drawReport draws the charts of the report that the page has, and lists its attempts.
const drawReport = async () => {
  const unpack = async (id) => {
    const text = document.getElementById(id).textContent.trim().replaceAll("-", "+").replaceAll("_", "/");
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const element = (tag, text, attributes) => {
    const e = document.createElement(tag);
    if (text !== undefined && text !== null) e.textContent = text;
    for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
    return e;
  };
  // The policy of the page allows exactly these sources.
  for (const lib of document.querySelectorAll("script.lib")) {
    document.head.append(element("script", await unpack(lib.id)));
  }
  const data = JSON.parse(await unpack("data"));
  const config = () => {
    const [ink, soft, line] = dark.matches ? ["#e4e8ec", "#9aa5b1", "#353d47"] : ["#1b1f24", "#59636e", "#d5dbe1"];
    return {
      background: "transparent", font: "system-ui, sans-serif",
      axis: { labelColor: soft, titleColor: ink, gridColor: line, domainColor: line, tickColor: line, titleFontWeight: "normal" },
      legend: { labelColor: soft, titleColor: ink, titleFontWeight: "normal" },
      view: { stroke: null }, text: { color: ink }, rule: { color: dark.matches ? "#6cb0ff" : "#0a5fb4" },
      point: { color: dark.matches ? "#6cb0ff" : "#0a5fb4" }, line: { color: soft },
    };
  };
  const save = (name, type, text) => {
    const url = typeof text === "string" && text.startsWith("data:") ? text : URL.createObjectURL(new Blob([text], { type }));
    element("a", "", { href: url, download: name }).click();
    if (url.startsWith("blob:")) setTimeout(() => URL.revokeObjectURL(url), 60000);
  };
  const whole = (c) => ({ ...c.spec, data: { values: data.tables[c.data] } });
  const draw = async (c) => {
    const at = document.getElementById("chart-" + c.id);
    if (!at) return;
    const figure = at.parentElement;
    figure.querySelector(".save")?.remove();
    const { view } = await vegaEmbed(at, whole(c), {
      actions: false, ast: true, defaultStyle: false, logLevel: vega.Error, renderer: "canvas", config: config(),
      tooltip: { disableDefaultStyle: true },
      loader: { load: () => Promise.reject(new Error("a report loads nothing")) },
    });
    if (c.id === "heat") {
      view.addEventListener("click", (_, item) => {
        if (item?.datum?.task !== undefined) attempts(data.tasks.indexOf(item.datum.task), data.cells.indexOf(item.datum.cell), true);
      });
    }
    const bar = element("div", "", { class: "save" });
    const add = (label, run) => {
      const b = element("button", label, { type: "button" });
      b.addEventListener("click", run);
      bar.append(b);
    };
    add("Save as SVG", async () => save(c.id + ".svg", "image/svg+xml", await view.toSVG()));
    add("Save as PNG", async () => save(c.id + ".png", "image/png", await view.toImageURL("png", 2)));
    add("Save specification", () => save(c.id + ".vl.json", "application/json", JSON.stringify(whole(c), null, 1)));
    figure.append(bar);
  };

  const table = (caption, head, rows) => {
    const t = element("table");
    t.append(element("caption", caption));
    const tr = element("tr");
    for (const h of head) tr.append(element("th", h, { scope: "col" }));
    const thead = element("thead");
    thead.append(tr);
    const body = element("tbody");
    for (const r of rows) {
      const line = element("tr");
      r.forEach((v, i) => {
        const e = element(i === 0 ? "th" : "td", "", i === 0 ? { scope: "row" } : {});
        e.append(v);
        line.append(e);
      });
      body.append(line);
    }
    t.append(thead, body);
    return t;
  };
  const number = (v, digits) => (v === null || v === undefined ? "–" : v.toFixed(digits));
  const out = document.getElementById("attempts");
  const pickTask = document.getElementById("pick-task");
  const pickCell = document.getElementById("pick-cell");
  const where = (run, id, attempt) => { // the viewer has a page of each attempt
    if (!data.base) return "berth show " + data.runs[run] + " " + id;
    return attempt ? element("a", "attempt", { href: data.base + "trial/" + id + "/" + attempt + "/" }) : "–";
  };
  const attempts = (task, cell, move) => {
    if (!out || task < 0 || cell < 0 || !data.trials) return;
    pickTask.value = task;
    pickCell.value = cell;
    const rows = [];
    for (const [ofCell, ofTask, run, repetition, outcome, score, end, integrity, accepted, all, seconds, tokens, cost, id] of data.trials) {
      if (ofCell !== cell || ofTask !== task) continue;
      rows.push([
        String(repetition), outcome, number(score, 3), end || "–", integrity || "–", (accepted || "–") + " of " + all,
        number(seconds, 1), String(tokens), number(cost, 4), where(run, id, accepted || all),
      ]);
    }
    const caption = data.tasks[task] + " in " + data.cells[cell] + (rows.length ? "" : ": no trial was planned");
    out.replaceChildren(table(caption, ["repetition", "outcome", "score", "agent end", "integrity", "attempt", "agent s", "tokens", "USD", data.base ? "page" : "command"], rows));
    if (move) out.scrollIntoView({ block: "nearest" });
  };
  if (pickTask) {
    data.tasks.forEach((name, i) => pickTask.append(element("option", name, { value: i })));
    data.cells.forEach((name, i) => pickCell.append(element("option", name, { value: i })));
    pickTask.form.addEventListener("submit", (e) => {
      e.preventDefault();
      attempts(Number(pickTask.value), Number(pickCell.value), false);
    });
    const all = document.getElementById("heat-table");
    all?.addEventListener("toggle", () => {
      if (!all.open || all.querySelector("table")) return;
      const at = new Map(data.tables.heat.map((r) => [r.task + "\0" + r.cell, r.score]));
      const rows = data.tasks.map((task) => [task, ...data.cells.map((cell) => {
        const s = at.get(task + "\0" + cell);
        return s === undefined ? "" : s === null ? "–" : data.raw ? String(Number(s.toPrecision(4))) : (100 * s).toFixed(0);
      })]);
      const box = element("div", "", { class: "wide", tabindex: "0" });
      box.append(table(data.raw ? "Mean score; – means not measured" : "Mean score in percent; – means not measured", ["task", ...data.cells], rows));
      all.append(box);
    });
  }
  const drawAll = async () => {
    for (const c of data.charts) await draw(c);
    document.documentElement.dataset.drawn = "yes";
  };
  dark.onchange = drawAll;
  await drawAll();
};
if (document.querySelector("script.lib")) drawReport(); // the viewer calls it
