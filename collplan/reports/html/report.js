"use strict";
const at = (id) => document.getElementById(id);
const state = { theme: "light", range: null, zoom: null };
let data;
// Pixels between the margins of an A4 page.
const PAPER = 700;
// Least pixels per point of a picture whose texts have 8 points.
const READABLE = 1.1;

function time(ns) {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]])
    if (ns >= scale) return `${+(ns / scale).toPrecision(4)} ${unit}`;
  return `${+ns.toPrecision(4)} ns`;
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < 4; i++) n /= 1024;
  return `${+n.toPrecision(4)} ${units[i]}`;
}

function make(tag, text, children = []) {
  const element = document.createElement(tag);
  element.textContent = text;
  element.append(...children);
  return element;
}

async function unpack() {
  const packed = Uint8Array.from(atob(at("data").textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

const viewsOf = (size) => data.views.filter((view) => view.size === size);
const view = (id) => data.views[Number(at(id).value)];

function fillPlans(plan, beside) {
  const size = Number(at("size").value);
  const there = viewsOf(size);
  const find = (name) => there.find((one) => one.name === name);
  const leading = data.leading?.[size];
  const first = find(plan) || find(leading) || there[0];
  const other = find(beside) || find(data.call) || there.find((one) => one !== first) || first;
  for (const [id, chosen] of [["plan", first], ["beside", other]]) {
    const options = there.map((one) => {
      const option = make("option", one.name + (one.name === leading ? " (best)" : ""));
      option.value = data.views.indexOf(one);
      option.selected = one === chosen;
      return option;
    });
    at(id).replaceChildren(...options);
  }
}

function layout(more) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), automargin: true };
  return {
    font: { color: color("--ink"), family: "system-ui, sans-serif", size: 13 },
    paper_bgcolor: color("--paper"), plot_bgcolor: color("--paper"),
    margin: { l: 60, r: 16, t: 24, b: 48 }, hoverlabel: { align: "left" },
    legend: { orientation: "h", yref: "container", y: 0, yanchor: "bottom", font: { size: 12 } }, ...more(axis),
  };
}

// Names break where lines of a narrow page end.
function wrap(text, length) {
  const lines = [""];
  for (const word of text.split(" "))
    if (lines.at(-1).length + word.length >= length) lines.push(word);
    else lines.push(`${lines.pop()} ${word}`.trim());
  return lines.filter(Boolean).join("<br>");
}

function plot(id, traces, layoutOf) {
  const config = { displayModeBar: false, responsive: true };
  return Plotly.react(at(id), traces, layout(layoutOf), config);
}

function timeTicks(seconds) {
  const decades = Array.from({ length: 14 }, (_, i) => 10 ** (i - 10));
  const wide = Math.max(...seconds) / Math.min(...seconds) > 1000;
  const tickvals = decades.flatMap((one) => (wide ? [one] : [one, 2 * one, 5 * one]));
  return { tickvals, ticktext: tickvals.map((one) => time(one * 1e9)) };
}

function drawSizes() {
  if (!at("sizes")) return;
  const size = Number(at("size").value);
  const rows = data.comparison.rows.filter((row) => row.bytes > 0 && row.makespan_s > 0);
  const traces = data.curves.map((name) => {
    const own = rows.filter((row) => row.candidate === name);
    const text = own.map((row) => `${name}<br>${data.labels[row.bytes]}: ${time(row.makespan_s * 1e9)}`);
    return { name, x: own.map((row) => row.bytes), y: own.map((row) => row.makespan_s), text,
      hovertemplate: "%{text}<extra></extra>", mode: "lines+markers",
      marker: { size: 9 }, line: { dash: name === data.call ? "dash" : "solid" } };
  });
  for (const [name, rows] of Object.entries(data.comparison.libraries)) {
    const own = rows.map((row) => ({ ...row, s: row.makespan_s ?? row.estimate_s })).filter((row) => row.bytes > 0 && row.s > 0);
    traces.push({ name, x: own.map((row) => row.bytes), y: own.map((row) => row.s), text: own.map((row) => `${name}: ${row.runs}<br>${time(row.s * 1e9)}`),
      hovertemplate: "%{text}<extra></extra>", mode: "lines+markers", marker: { size: 7, symbol: "square" }, line: { dash: "dashdot", width: 1.5 } });
  }
  const bounds = Object.entries(data.comparison.bounds).filter(([, one]) => one.time_s > 0);
  traces.push({ name: "lower bound", x: bounds.map(([one]) => Number(one)), mode: "lines",
    y: bounds.map(([, one]) => one.time_s), text: bounds.map(([, one]) => time(one.time_s * 1e9)),
    hovertemplate: "lower bound: %{text}<extra></extra>", line: { dash: "dot", color: "#888888" } });
  const vertical = (x, look) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: look });
  const shapes = data.comparison.crossovers.map((one) =>
    vertical(Math.sqrt(one.low_bytes * one.high_bytes), { dash: "dot", color: "#888888", width: 1 }));
  if (size > 0) shapes.push(vertical(size, { color: "#c8102e", width: 1 }));
  const ticks = data.sizes.filter((one) => one > 0);
  plot("sizes", traces, (axis) => ({
    height: 440, shapes, hovermode: "closest",
    xaxis: { ...axis, type: "log", tickvals: ticks, ticktext: ticks.map((one) => data.labels[one]) },
    yaxis: { ...axis, type: "log", ...timeTicks(traces.flatMap((one) => one.y)) },
  }));
}

const look = (kind) => data.colors[kind] || (kind === "lane" ? { fillcolor: "#dfe4ea", color: "#8a94a3" } : { fillcolor: "#b9c6d6", color: "#5f6b7a" });
const PATH = "#c8102e";

// One legend for all plans that are shown; a click hides a kind in all of them.
function legendOf(shown) {
  const kinds = new Set(shown.flatMap((one) => one.timeline.kind));
  const entries = [...kinds].map((kind) => ({ type: "bar", name: kind, legendgroup: kind, x: [null], y: [null],
    marker: { color: look(kind).fillcolor, line: { color: look(kind).color, width: 1 } } }));
  if (shown.some((one) => one.timeline.path[0].length))
    entries.push({ name: "critical path", legendgroup: "path", mode: "lines", x: [null], y: [null], line: { color: PATH, width: 2 } });
  return entries;
}

// Ticks at 1, 2 or 5 times a power of ten; fewer where the chart is narrow.
function roundTicks(low, high, most) {
  const least = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= least);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, i) => (first + i) * step);
}

function bars(one, yaxis, range) {
  const line = one.timeline;
  const kinds = [...new Set(line.kind)];
  // A border on a bar of few pixels would hide the bar.
  const short = (range[1] - range[0]) / 200;
  const traces = kinds.map((kind) => {
    const rows = line.kind.flatMap((other, i) => (other === kind ? [i] : []));
    const own = look(kind);
    const isRed = (i) => line.critical[i] && line.length[i] > short;
    const text = rows.map((i) => {
      const what = line.n[i] > 1 ? `${line.n[i]} × ${kind}` : `${kind} #${line.task[i]}`;
      return `${line.labels[line.row[i]]}: ${what}, ${bytes(line.bytes[i])}<br>` +
        `${time(line.begin[i])} to ${time(line.begin[i] + line.length[i])}` + (line.critical[i] ? "<br>critical path" : "");
    });
    return { type: "bar", orientation: "h", name: kind, legendgroup: kind, showlegend: false, yaxis, text, textposition: "none",
      hovertemplate: "%{text}<extra></extra>", customdata: rows.map((i) => line.task[i]), width: 0.8,
      base: rows.map((i) => line.begin[i]), x: rows.map((i) => line.length[i]), y: rows.map((i) => line.row[i]),
      marker: { color: own.fillcolor, line: { color: rows.map((i) => (isRed(i) ? "#a50d25" : own.color)), width: rows.map((i) => (isRed(i) ? 2 : 0.5)) } } };
  });
  const [rows, begins, ends] = line.path;
  const path = { legendgroup: "path", showlegend: false, yaxis, mode: "lines", hoverinfo: "skip" };
  traces.push({ ...path, x: rows.flatMap((_, i) => [begins[i], ends[i], null]), y: rows.flatMap((row) => [row, row, null]), line: { color: PATH, width: 1.5 } });
  // Lines between rows are thin where there are many in what is shown.
  const jumps = rows.flatMap((row, i) => (i > 0 && row !== rows[i - 1] && begins[i] >= range[0] && ends[i - 1] <= range[1] ? [i] : []));
  traces.push({ ...path, x: jumps.flatMap((i) => [ends[i - 1], begins[i], null]), y: jumps.flatMap((i) => [rows[i - 1], rows[i], null]),
    line: { color: PATH, width: Math.min(1.5, Math.max(0.5, 40 / jumps.length)) } });
  return traces;
}

function drawTimeline() {
  const shown = [view("plan")];
  if (view("beside") !== shown[0]) shown.push(view("beside"));
  const end = Math.max(...shown.map((one) => one.makespan_s * 1e9), 1) * 1.01;
  const [low, high] = state.range || [0, end];
  state.end = end;
  const weights = shown.map((one) => Math.max(one.timeline.labels.length, 4));
  const total = weights.reduce((a, b) => a + b, 0);
  const width = at("timeline").clientWidth;
  const height = Math.min(1400, Math.max(420, 14 * total + 160));
  const share = weights.length > 1 ? 1 - weights[0] / total : 0;
  const titles = shown.map((one) => {
    const line = one.timeline;
    const of = line.n_nodes < line.of_nodes ? `, ${line.n_nodes} of ${line.of_nodes} nodes` : "";
    return wrap(`<b>${one.name}</b>: ${time(one.makespan_s * 1e9)}${of}`, Math.max(24, width / 9));
  });
  const rowsOf = (text) => text.split("<br>").length;
  const top = 16 + 18 * rowsOf(titles[0]);
  // Between two timelines there is room for the title of the second one.
  const gap = shown.length > 1 ? (10 + 18 * rowsOf(titles[1])) / (height - 150) : 0;
  const domains = shown.length > 1 ? [[share + gap / 2, 1], [0, share - gap / 2]] : [[0, 1]];
  const ticks = roundTicks(low, high, Math.max(2, Math.min(10, (width - 90) / 80)));
  plot("timeline", [...shown.flatMap((one, i) => bars(one, i ? "y2" : "y", [low, high])), ...legendOf(shown)], (axis) => {
    const vertical = shown.map((one, i) => {
      const labels = one.timeline.labels;
      const every = Math.ceil(labels.length / Math.max(2, (height * (domains[i][1] - domains[i][0])) / 16));
      const rows = labels.map((_, k) => k).filter((k) => k % every === 0);
      return { ...axis, domain: domains[i], range: [labels.length - 0.5, -0.5], fixedrange: true,
        tickvals: rows, ticktext: rows.map((k) => labels[k]), tickfont: { size: 11 } };
    });
    const annotations = titles.map((text, i) => ({ text, align: "left", showarrow: false, xref: "paper", yref: "paper", x: 0, xanchor: "left", y: domains[i][1], yanchor: "bottom" }));
    return { height, annotations, barmode: "overlay", hovermode: "closest", dragmode: "zoom",
      margin: { l: 60, r: 16, t: top, b: 48 },
      xaxis: { ...axis, range: [low, high], tickangle: 0, tickvals: ticks, ticktext: ticks.map(time), anchor: shown.length > 1 ? "y2" : "y" },
      yaxis: vertical[0], ...(shown.length > 1 ? { yaxis2: vertical[1] } : {}) };
  });
}

function zoomTime(factor, shift = 0) {
  const [low, high] = state.range || [0, state.end];
  const half = ((high - low) * factor) / 2;
  const middle = (low + high) / 2 + shift * (high - low);
  state.range = [Math.max(0, middle - half), Math.min(state.end, middle + half)];
  drawTimeline();
}

function drawGraph() {
  if (state.zoom) state.zoom.destroy();
  const one = view("plan");
  at("graph").innerHTML = one.svg;
  const svg = at("graph").querySelector("svg");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Graph of ${one.name}: ${one.n_tasks} tasks, ${one.n_messages} messages`);
  const { width, height } = svg.viewBox.baseVal; // svgPanZoom removes it
  state.zoom = svgPanZoom(svg, { minZoom: 0.5, maxZoom: 40, mouseWheelZoomEnabled: true, zoomScaleSensitivity: 0.3 });
  showReadable(svg, width, height);
  at("task").textContent = "Click a box to see what it does.";
}

// Where all of a picture would be too small to read, its upper left corner is shown first.
function showReadable(svg, width, height) {
  const fit = Math.min(svg.clientWidth / width, svg.clientHeight / height);
  if (fit >= READABLE) return;
  state.zoom.zoom(READABLE / fit);
  const isWide = width * READABLE > svg.clientWidth;
  state.zoom.pan({ x: isWide ? 0 : (svg.clientWidth - width * READABLE) / 2, y: 0 });
}

function fitGraph(width) {
  if (!state.zoom) return;
  at("graph").style.width = width;
  state.zoom.resize().fit().center();
}

function boxes() {
  return [...at("graph").querySelectorAll("g.node, g.cluster")].map((g) => [g.querySelector("title").textContent, g]);
}

function goTo(name) {
  at("graph").querySelectorAll(".found").forEach((g) => g.classList.remove("found"));
  const found = boxes().find(([title]) => title === name || title === `cluster_${name}`);
  if (!found) return false;
  const [, box] = found;
  box.classList.add("found");
  const frame = at("graph").getBoundingClientRect();
  const place = box.getBoundingClientRect();
  state.zoom.panBy({ x: frame.x + frame.width / 2 - place.x - place.width / 2, y: frame.y + frame.height / 2 - place.y - place.height / 2 });
  return true;
}

function showTask(row) {
  const task = view("plan").tasks[row];
  if (!task) return;
  const lines = [make("div", "", [make("strong", task.text)])];
  const lane = task.lane >= 0 ? `, lane ${task.lane}` : "";
  lines.push(make("div", `rank ${task.rank}, ${bytes(task.bytes)}${lane}, phase ${task.phase || "only"}` + (task.critical ? ", on the critical path" : "")));
  lines.push(make("div", `runs from ${time(task.start_ns)} to ${time(task.end_ns)}, ${time(task.end_ns - task.start_ns)}`));
  const waits = make("div", task.waits.length ? "waits for " : "waits for nothing");
  for (const other of task.waits) {
    const button = make("button", `#${other}` + (other === task.message_of ? " (its message)" : ""));
    button.type = "button";
    button.onclick = () => showTask(other);
    waits.append(button);
  }
  at("task").replaceChildren(...lines, waits);
  goTo(`t${row}`);
}

function find(event) {
  event.preventDefault();
  const text = at("search").value.trim();
  const number = Number(text.replace(/^(rank|task|#)\s*/i, ""));
  const isTask = /^(#|task)/i.test(text);
  if (isTask && view("plan").tasks[number]) return showTask(number);
  const one = view("plan");
  const found = text !== "" && !isTask && goTo(`rank_${number}`);
  at("task").textContent = found ? `rank ${number}` : `${text || "nothing"}: not in this picture; ` +
    (one.tasks.length ? "give a rank, or # and a task" : "it is collapsed, as the plan is large");
}

function drawCosts() {
  const all = [...new Set([view("plan"), view("beside")])];
  const priced = all.filter((one) => Object.keys(one.breakdown).length);
  const shown = priced.length ? priced : all;
  const kinds = ["latency", "bandwidth", "overhead", "copy", "reduce", "compute", "waiting"];
  const colors = ["#56b4e9", "#0072b2", "#e69f00", "#8a94a3", "#009e73", "#cc79a7", "#d55e00"];
  const isNarrow = at("costs").clientWidth < 600;
  const names = shown.map((one) => (isNarrow ? wrap(one.name.replaceAll("=", "= "), 16) : one.name));
  const traces = kinds.map((kind, k) => ({
    type: "bar", orientation: "h", name: kind, y: names, x: shown.map((one) => (one.breakdown[kind] || 0) * 1e6),
    text: shown.map((one) => `${kind}: ${time((one.breakdown[kind] || 0) * 1e9)}, ${(100 * (one.breakdown[kind] || 0) / (one.makespan_s || 1)).toFixed(1)} %`),
    textposition: "none", hovertemplate: "%{text}<extra></extra>", marker: { color: colors[k] },
  })).filter((trace) => trace.x.some((one) => one > 0));
  plot("costs", traces, (axis) => ({ height: (isNarrow ? 190 : 140) + 70 * shown.length, barmode: "stack",
    xaxis: { ...axis, nticks: isNarrow ? 4 : 8, tickangle: 0, title: { text: "µs of the critical path" } }, yaxis: { ...axis, autorange: "reversed" } }));
  at("lanes").innerHTML = shown.map((one) => one.lanes).join("");
  at("path").innerHTML = (shown.find((one) => one.path) || { path: "" }).path;
}

function drawTuned() {
  const sweep = data.sweeps[Number(at("sweep").value)];
  at("times").innerHTML = sweep.table;
  const names = [...new Set(sweep.points.flatMap((point) => Object.keys(point.times)))];
  const score = (name) => Math.min(...sweep.points.map((point) =>
    name in point.times ? point.times[name][0] / point.times[point.winner][0] : Infinity));
  const best = [...names].sort((a, b) => score(a) - score(b)).slice(0, 10);
  const traces = [...new Set([...best, "native"])].map((name) => {
    const own = sweep.points.filter((point) => name in point.times);
    const of = (i) => own.map((point) => point.times[name][i]);
    const medians = of(0);
    const text = own.map((point) => `${name}<br>${point.label}: ${point.times[name].map((one) => time(one * 1e9)).join(", ")}`);
    return { name, x: own.map((point) => Math.max(point.bytes, 1)), y: medians, text, hovertemplate: "%{text}<extra></extra>", mode: "lines+markers",
      error_y: { type: "data", symmetric: false, array: of(2).map((one, i) => one - medians[i]), arrayminus: of(1).map((one, i) => medians[i] - one) },
      marker: { size: own.map((point) => (point.winner === name ? 12 : 6)), symbol: own.map((point) => (point.winner === name ? "circle-open" : "circle")), line: { width: own.map((point) => (point.winner === name ? 3 : 0)) } },
      line: { dash: name === "native" ? "dash" : "solid" } };
  });
  plot("tuned", traces, (axis) => ({
    height: 520, hovermode: "closest",
    xaxis: { ...axis, type: "log", tickvals: sweep.points.map((point) => Math.max(point.bytes, 1)), ticktext: sweep.points.map((point) => point.label) },
    yaxis: { ...axis, type: "log", ...timeTicks(traces.flatMap((one) => one.y)) },
  }));
}

function drawAll() {
  state.range = null;
  drawSizes();
  drawTimeline();
  drawGraph();
  drawCosts();
}

function changeSize(plan) {
  const size = Number(at("size").value);
  fillPlans(plan, at("beside").selectedOptions[0]?.textContent);
  at("answer").replaceChildren(...data.answers[size].map((line) => make("p", line)));
  drawAll();
}

function setTheme(theme) {
  state.theme = theme;
  document.documentElement.dataset.theme = theme;
  at("theme").textContent = `Switch to ${theme === "dark" ? "light" : "dark"} colors`;
}

function beginPlans() {
  const sizes = data.sizes.filter((size) => viewsOf(size).length);
  at("size").replaceChildren(...sizes.map((size) => new Option(data.labels[size], size, false, size === data.size)));
  fillPlans();
  drawAll();
  state.redraw = () => { drawSizes(); drawTimeline(); drawCosts(); };
  at("size").onchange = () => changeSize();
  at("plan").onchange = at("beside").onchange = drawAll;
  at("time-in").onclick = () => zoomTime(0.5);
  at("time-out").onclick = () => zoomTime(2);
  at("time-earlier").onclick = () => zoomTime(1, -0.25);
  at("time-later").onclick = () => zoomTime(1, 0.25);
  at("time-all").onclick = () => { state.range = null; drawTimeline(); };
  at("graph-in").onclick = () => state.zoom.zoomIn();
  at("graph-out").onclick = () => state.zoom.zoomOut();
  at("graph-all").onclick = () => state.zoom.resize().fit().center();
  at("find").onsubmit = find;
  at("graph").onclick = (event) => {
    const box = event.target.closest("g.node");
    if (!box) return;
    const name = box.querySelector("title").textContent;
    if (/^t\d+$/.test(name)) showTask(Number(name.slice(1)));
    else at("task").textContent = box.textContent.trim().replace(/\s+/g, " ");
  };
  at("timeline").on("plotly_relayout", (change) => {
    if ("xaxis.range[0]" in change) { state.range = [change["xaxis.range[0]"], change["xaxis.range[1]"]]; drawTimeline(); }
    else if (change["xaxis.autorange"]) { state.range = null; drawTimeline(); }
  });
  at("timeline").on("plotly_click", (event) => showTask(event.points[0].customdata));
  at("sizes")?.on("plotly_click", (event) => {
    const point = event.points[0];
    at("size").value = String(point.x);
    if (at("size").value === String(point.x)) changeSize(point.data.name);
  });
}

function beginSweeps() {
  at("sweep").replaceChildren(...data.sweeps.map((sweep, i) => new Option(sweep.name, i)));
  state.redraw = drawTuned;
  at("sweep").onchange = drawTuned;
  if (data.sweeps.length) drawTuned();
}

async function begin() {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  data = await unpack();
  if (at("sweep")) beginSweeps();
  else beginPlans();
  // Paper has no switches: it is light, narrower, and shows what is folded.
  addEventListener("beforeprint", () => {
    state.before = { theme: state.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    state.before.closed.forEach((one) => { one.open = true; });
    setTheme("light");
    state.redraw();
    document.querySelectorAll(".chart").forEach((one) => Plotly.relayout(one, { width: Math.min(one.clientWidth, PAPER) }));
    fitGraph(`${Math.min(document.body.clientWidth, PAPER)}px`);
  });
  addEventListener("afterprint", () => {
    state.before.closed.forEach((one) => { one.open = false; });
    setTheme(state.before.theme);
    state.redraw();
    fitGraph("");
  });
  at("theme").onclick = () => { setTheme(state.theme === "dark" ? "light" : "dark"); state.redraw(); };
  document.body.dataset.ready = "yes";
}

begin();
