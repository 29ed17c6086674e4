"use strict";
const dark = matchMedia("(prefers-color-scheme: dark)");
// colors of outcomes: results of the agent in green, yellow and red, the others in blue, violet
// and gray.
const colors = {
  passed: "#3d9a50", failed: "#c9504b", scored: "#c9a227", agent_error: "#e08a3c", environment_error: "#4c78a8", verifier_error: "#9467bd",
  judge_error: "#c5b0d5", model_error: "#72b7b2", user_error: "#b279a2", rate_limited: "#6fa8dc", plugin_crashed: "#2f4b7c", artifact_missing: "#b5838d",
  integrity_violation: "#7f1d1d", task_invalid: "#8c6d31", preempted: "#a0b8c8", cancelled: "#8a94a6", not_run: "#c2c8d0",
};
// chartsOf returns the charts as Vega-Lite specifications, without their data. Scores that are
// not fractions are written as they are, and their colors span what there is.
const chartsOf = ({ cells, tasks, outcomes, raw }) => {
  const whole = raw ? ".4~g" : ".0%", tenths = raw ? ".4~g" : ".1%";
  const part = (of, n, least, most) => Math.max(least, Math.min(most, Math.floor(of / Math.max(n, 1))));
  const shown = (field, title, format) => (format ? { field, title, type: "quantitative", format } : { field, title });
  const labelled = (sort) => ({ field: "cell", type: "nominal", sort, title: null, axis: { labelLimit: 220 } });
  const step = part(4800, tasks.length, 3, 18), labels = step >= 12; // a browser draws no larger picture than some 8,000 pixels
  return {
    leaderboard: {
      description: "Success rate of each cell with its 95 % interval", height: { step: part(800, cells.length, 16, 28) },
      encoding: {
        y: labelled({ field: "rate", order: "descending" }),
        tooltip: [shown("cell", "cell"), shown("rate", "success rate", tenths), shown("low", "from", tenths), shown("high", "to", tenths), shown("tasks", "tasks", "d")],
      },
      layer: [
        { mark: { type: "rule", strokeWidth: 2 }, encoding: {
          x: { field: "low", type: "quantitative", scale: { zero: true }, title: "success rate", axis: { format: whole, tickCount: 10, labelOverlap: true, labelSeparation: 4 } }, x2: { field: "high" },
        } },
        { mark: { type: "point", filled: true, size: 80, opacity: 1 }, encoding: { x: { field: "rate", type: "quantitative" } } },
      ],
    },
    heat: {
      description: "Mean score of each task in each cell", height: { step },
      padding: { left: 5, top: 5, bottom: 5, right: 40 }, // for the last label, which is slanted
      mark: { type: "rect", cursor: "pointer", invalid: "show" },
      encoding: {
        x: { field: "cell", type: "nominal", sort: null, title: null, axis: { orient: "top", labelAngle: cells.length <= 5 ? 0 : -60, labelLimit: 140, labels: cells.length <= 60 } },
        y: { field: "task", type: "nominal", sort: null, title: null, axis: { labelLimit: 140, labels, ticks: labels } },
        color: {
          field: "score", type: "quantitative", title: "mean score", scale: { scheme: "viridis", ...(!raw && { domain: [0, 1] }) },
          legend: { orient: "top", format: whole, gradientLength: 160 }, condition: { test: "datum.score === null", value: "#888" },
        },
        tooltip: [shown("task", "task"), shown("cell", "cell"), shown("score", "mean score", tenths), shown("measured", "measured", "d"), shown("planned", "planned", "d")],
      },
      config: { view: { stroke: null } },
    },
    pareto: {
      description: "Success rate against the mean cost of a trial", height: 300,
      encoding: {
        x: { field: "cost", type: "quantitative", title: "mean cost of a trial, in USD" },
        y: { field: "rate", type: "quantitative", title: "success rate", axis: { format: whole } },
        tooltip: [shown("cell", "cell"), shown("rate", "success rate", tenths), shown("cost", "USD a trial", ".4~f")],
      },
      layer: [
        { transform: [{ filter: "datum.front" }], mark: { type: "line", interpolate: "step-after", strokeDash: [4, 4] } },
        { mark: { type: "point", filled: true, size: 90, opacity: 1 }, encoding: { color: { condition: { test: "datum.front", value: "#d9730d" }, value: "#8a94a6" } } },
        { transform: [{ filter: "datum.front" }], mark: { type: "text", dy: -12, limit: 160 }, encoding: { text: { field: "cell" } } },
      ],
    },
    outcomes: {
      description: "Outcomes of the trials of each cell", height: { step: part(700, cells.length, 12, 24) }, mark: "bar",
      encoding: {
        y: labelled(null), x: { field: "trials", type: "quantitative", title: "trials", axis: { format: "d", tickMinStep: 1 } },
        color: { field: "outcome", type: "nominal", title: null, scale: { domain: outcomes, range: outcomes.map((o) => colors[o] || "#8a94a6") }, legend: { orient: "bottom", columns: 4 } },
        tooltip: [shown("cell", "cell"), shown("outcome", "outcome"), shown("trials", "trials", "d")],
      },
    },
  };
};
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
  const specs = chartsOf(data);
  const whole = (id) => ({ $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", autosize: { type: "fit-x", contains: "padding" }, ...specs[id], data: { values: data.tables[id] } });
  const draw = async (id) => {
    const at = document.getElementById("chart-" + id);
    if (!at) return;
    const figure = at.parentElement;
    figure.querySelector(".save")?.remove();
    const { view } = await vegaEmbed(at, whole(id), {
      actions: false, ast: true, defaultStyle: false, logLevel: vega.Error, renderer: "canvas", config: config(),
      tooltip: { disableDefaultStyle: true },
      loader: { load: () => Promise.reject(new Error("a report loads nothing")) },
    });
    if (id === "heat") {
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
    add("Save as SVG", async () => save(id + ".svg", "image/svg+xml", await view.toSVG()));
    add("Save as PNG", async () => save(id + ".png", "image/png", await view.toImageURL("png", 2)));
    add("Save specification", () => save(id + ".vl.json", "application/json", JSON.stringify(whole(id), null, 1)));
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
    for (const id in specs) if (data.tables[id]) await draw(id);
    document.documentElement.dataset.drawn = "yes";
  };
  dark.onchange = drawAll;
  await drawAll();
};
if (document.querySelector("script.lib")) drawReport(); // the viewer calls it
