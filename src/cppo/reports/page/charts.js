// Line, scatter and interval charts as SVG, drawn at the width that there is and redrawn when it changes.
// Ours, since each page holds all that it needs: these 13 kB, where a small chart library alone is 50 kB (uPlot 1.6),
// has no intervals, and would still want most of the code below around it.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

function shape(parent, name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 0.095 || size === 0) return value.toFixed(2);
  return value.toPrecision(2);
}

function tick(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(6)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(6)}k`;
  return `${+value.toPrecision(6)}`;
}

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * power).find((k) => k >= raw * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found.length < 2 && count < 9 ? ticks(low, high, Math.max(1, count) + 1) : found; // one number is no scale
}

function extent(values, include = []) {
  const known = [...values.filter((x) => x !== null && Number.isFinite(x)), ...include];
  if (!known.length) return [0, 1];
  const low = Math.min(...known), high = Math.max(...known);
  const pad = high > low ? 0.06 * (high - low) : Math.abs(high) * 0.1 || 1;
  return [low - pad, high + pad];
}

// The value of a line at a step up to its last. A point is the mean of the stretch up to it, so the first holds before it, too.
function valueAt(steps, line, step) {
  const next = steps.findIndex((other) => other >= step), before = line[next - 1], after = line[next];
  if (next === 0 || steps[next] === step) return after;
  if (before === null || after === null) return null;
  return before + ((after - before) * (step - steps[next - 1])) / (steps[next] - steps[next - 1]);
}

// Lines of several seeds at the same steps: those of the seed that ends first.
function together(steps, lines) {
  const x = steps.reduce((a, b) => (b.at(-1) < a.at(-1) || (b.at(-1) === a.at(-1) && b.length > a.length) ? b : a));
  return { x, lines: lines.map((line, i) => x.map((step) => valueAt(steps[i], line, step))) };
}

// Mean and standard deviation over seeds at each point.
function meanAndSpread(curves) {
  const mean = [], spread = [];
  for (let i = 0; i < curves[0].length; i++) {
    const known = curves.map((curve) => curve[i]).filter((x) => x !== null);
    const m = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    const v = known.length > 1 ? known.reduce((a, b) => a + (b - m) ** 2, 0) / (known.length - 1) : 0;
    mean.push(m);
    spread.push(m === null ? null : Math.sqrt(v));
  }
  return { mean, spread };
}

function path(points) {
  let text = "", pen = false;
  for (const [x, y] of points) {
    if (y === null || Number.isNaN(y)) { pen = false; continue; }
    text += `${pen ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = true;
  }
  return text;
}

// draw() paints a chart of the box's present width; it is called again whenever the width or the page's state changes.
const drawings = [];
const watcher = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const width = Math.round(entry.contentRect.width);
    const drawing = drawings.find((one) => one.box === entry.target);
    if (drawing && drawing.width !== width && width > 0) { drawing.width = width; drawing.draw(width); }
  }
});

function responsive(box, draw) {
  drawings.push({ box, draw, width: 0 });
  watcher.observe(box);
  return box;
}

function redraw() {
  for (const drawing of drawings) if (drawing.width > 0 && drawing.box.isConnected) drawing.draw(drawing.width);
}

// series: [{name, colour, x, lines: [[...]], band: bool, points: bool}]; options: title, height, limit, xlabel, ylabel, diagonal
function chart(series, options) {
  const box = element("div", { class: "chart" });
  return responsive(box, (width) => {
    box.replaceChildren();
    const shown = typeof series === "function" ? series() : series;
    const height = options.height || 210, left = 46, right = 10, top = options.title ? 24 : 10, bottom = options.xlabel ? 38 : 22;
    const svg = shape(box, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.title || "" });
    const drawn = shown.map((one) => ({ ...one, ...(one.lines.length && one.band ? meanAndSpread(one.lines) : {}) }));
    const [least, most] = options.within || [-Infinity, Infinity];
    const edge = (one, i, sign) => (one.mean[i] === null ? null : Math.min(most, Math.max(least, one.mean[i] + sign * one.spread[i])));
    const values = drawn.flatMap((one) => one.band ? one.mean.flatMap((m, i) => (m === null ? [] : [edge(one, i, -1), edge(one, i, 1)])) : one.lines.flat());
    const [yLow, yHigh] = extent(values, [...(options.limit ?? null) === null ? [] : [options.limit], ...(options.zero ? [0] : []), ...[least, most].filter(Number.isFinite)]);
    const xs = drawn.flatMap((one) => one.x);
    const [xLow, xHigh] = options.tightX ? extent(xs) : [Math.min(0, ...xs), Math.max(1, ...xs)];
    const X = (x) => left + ((x - xLow) / (xHigh - xLow)) * (width - left - right);
    const Y = (y) => height - bottom - ((y - yLow) / (yHigh - yLow)) * (height - top - bottom);
    for (const y of ticks(yLow, yHigh, height / 45)) {
      shape(svg, "line", { x1: left, x2: width - right, y1: Y(y), y2: Y(y), class: "gridline" });
      shape(svg, "text", { x: left - 7, y: Y(y) + 4, "text-anchor": "end" }, tick(y));
    }
    for (const x of ticks(xLow, xHigh, width / 90)) shape(svg, "text", { x: X(x), y: height - bottom + 16, "text-anchor": "middle" }, tick(x));
    shape(svg, "line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
    if (options.title) shape(svg, "text", { x: 0, y: 12, class: "label" }, options.title);
    if (options.xlabel) shape(svg, "text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, options.xlabel);
    if (options.diagonal) {
      const low = Math.max(xLow, yLow), high = Math.min(xHigh, yHigh);
      shape(svg, "line", { x1: X(low), y1: Y(low), x2: X(high), y2: Y(high), class: "limit" });
    }
    for (const one of drawn) {
      if (one.points) {
        one.lines[0].forEach((y, i) => y === null || one.x[i] === null || shape(svg, "circle", { cx: X(one.x[i]), cy: Y(y), r: one.radius || 2.6, fill: one.colour, "fill-opacity": one.opacity || 0.45 }));
        if (!one.joined) continue;
      }
      if (one.band) {
        const side = (sign) => one.x.map((x, i) => [X(x), edge(one, i, sign)]).filter(([, y]) => y !== null).map(([x, y]) => [x, Y(y)]);
        const up = side(1), down = side(-1);
        if (up.length > 1 && one.lines.length > 1) shape(svg, "path", { d: path([...up, ...down.reverse()]) + "Z", fill: one.colour, "fill-opacity": 0.14, stroke: "none" });
        shape(svg, "path", { d: path(one.x.map((x, i) => [X(x), one.mean[i] === null ? null : Y(one.mean[i])])), fill: "none", stroke: one.colour, "stroke-width": 2.1, "stroke-linejoin": "round", "stroke-dasharray": one.dash || "none" });
      } else for (const line of one.lines) shape(svg, "path", { d: path(line.map((y, i) => [X(one.x[i]), y === null ? null : Y(y)])), fill: "none", stroke: one.colour, "stroke-width": one.width || 1.3, "stroke-opacity": one.opacity || 0.85, "stroke-dasharray": one.dash || "none" });
    }
    if ((options.limit ?? null) !== null) {
      shape(svg, "line", { x1: left, x2: width - right, y1: Y(options.limit), y2: Y(options.limit), class: "limit" });
      shape(svg, "text", { x: width - right, y: Y(options.limit) - 5, "text-anchor": "end", class: "limit-text" }, options.limitLabel || `limit ${tick(options.limit)}`);
    }
    if (options.keys) box.append(element("div", { class: "keys small-keys" }, ...drawn.map((one) => {
      const dot = element("span", { class: "dot" });
      dot.style.background = one.colour;
      return element("span", {}, dot, one.name);
    })));
    if (options.hover !== false) hover(box, svg, drawn.filter((one) => one.band), { X, Y, left, right, top, bottom, width, height, xLow, xHigh });
  });
}

function hover(box, svg, drawn, at) {
  if (!drawn.length) return;
  const line = shape(svg, "line", { y1: at.top, y2: at.height - at.bottom, class: "axis", visibility: "hidden" });
  const tip = element("div", { class: "tip", hidden: "" });
  box.append(tip);
  const hide = () => { tip.hidden = true; line.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect();
    const px = event.clientX - bounds.left;
    if (px < at.left || px > at.width - at.right) return hide();
    const x = at.xLow + ((px - at.left) / (at.width - at.left - at.right)) * (at.xHigh - at.xLow);
    line.setAttribute("x1", px); line.setAttribute("x2", px); line.setAttribute("visibility", "visible");
    const rows = drawn.map((one) => {
      const i = one.x.reduce((best, value, k) => (Math.abs(value - x) < Math.abs(one.x[best] - x) ? k : best), 0);
      return [one, one.mean[i], one.spread[i]];
    }).filter(([, m]) => m !== null).sort((a, b) => b[1] - a[1]);
    tip.replaceChildren(element("div", { class: "faint", text: `${short(x)} steps` }), ...rows.map(([one, m, s]) => {
      const dot = element("span", { class: "dot" });
      dot.style.background = one.colour;
      return element("div", {}, dot, ` ${one.name} ${short(m)}` + (one.lines.length > 1 ? ` ± ${short(s)}` : ""));
    }));
    tip.hidden = false;
    const beside = px + 14 + tip.offsetWidth > at.width ? px - 14 - tip.offsetWidth : px + 14;
    tip.style.left = `${Math.max(0, beside)}px`;
    tip.style.top = `${at.top + 4}px`;
  });
}

// rows: [{name, colour, value, low, high, limit}]: a dot with its interval on a line each, and the limit where there is one.
function intervals(rows, options) {
  const box = element("div", { class: "chart" });
  return responsive(box, (width) => {
    box.replaceChildren();
    const left = Math.min(170, width * 0.4), right = 54, top = 24, step = 28, height = top + rows.length * step + 26;
    const svg = shape(box, "svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": options.title });
    const limits = rows.flatMap((row) => row.limit ?? []), oneLimit = new Set(limits).size === 1;
    const [low, high] = extent(rows.flatMap((row) => [row.value, row.low, row.high]), [0, ...limits]);
    const X = (x) => left + ((x - low) / (high - low)) * (width - left - right);
    shape(svg, "text", { x: 0, y: 12, class: "label" }, options.title);
    for (const x of ticks(low, high, (width - left) / 80)) {
      shape(svg, "line", { x1: X(x), x2: X(x), y1: top, y2: height - 24, class: "gridline" });
      shape(svg, "text", { x: X(x), y: height - 8, "text-anchor": "middle" }, tick(x));
    }
    const limit = (value, from, to) => shape(svg, "line", { x1: X(value), x2: X(value), y1: from, y2: to, class: "limit" });
    if (oneLimit) limit(limits[0], top - 4, height - 24);
    rows.forEach((row, i) => {
      const y = top + (i + 0.5) * step;
      shape(svg, "text", { x: left - 10, y: y + 4, "text-anchor": "end" }, row.name);
      if (row.low !== null && row.high !== null) shape(svg, "line", { x1: X(row.low), x2: X(row.high), y1: y, y2: y, stroke: row.colour, "stroke-width": 5, "stroke-opacity": 0.3, "stroke-linecap": "round" });
      if (!oneLimit && (row.limit ?? null) !== null) limit(row.limit, y - step / 2 + 2, y + step / 2 - 2);
      if (row.value !== null) shape(svg, "circle", { cx: X(row.value), cy: y, r: 5, fill: row.colour });
      shape(svg, "text", { x: width, y: y + 4, "text-anchor": "end" }, short(row.value));
    });
  });
}
