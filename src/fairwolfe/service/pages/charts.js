// Charts as SVG: lines with a band, Lorenz curves, one bar. No styles here: classes, see style.css.

const SPACE = "http://www.w3.org/2000/svg";
const SPANS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200,
  86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000];
let clips = 0;

/** A number with four significant digits; a dash for none. */
export function number(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x && Math.abs(x) < 1e-6) return x.toPrecision(4);
  return x.toLocaleString("en", { maximumSignificantDigits: 4 });
}

/** A number of an axis, with as many digits as its step needs. */
function tick(x, step) {
  const digits = Math.min(Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), 8);
  return (Math.abs(x) < step / 1e6 ? 0 : x).toLocaleString("en", {
    minimumFractionDigits: digits, maximumFractionDigits: digits,
  });
}

/** How long ago, in a word and a half. */
export function ago(seconds) {
  if (seconds < 0.5) return "now";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= size) return `${number(Math.round((10 * seconds) / size) / 10)} ${unit}`;
  }
  return `${Math.round(seconds)} s`;
}

function element(name, attributes = {}, text = "") {
  const one = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
  one.textContent = text;
  return one;
}

/** A round step that divides a span into about n parts. */
function step(span, n) {
  const rough = span / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((one) => one * power >= rough * 0.999);
}

function steps(low, high, n) {
  const size = step(high - low, n);
  const levels = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k += 1) {
    levels.push(k * size);
  }
  return [levels, size];
}

/** Times of an axis that ends now: how many seconds ago. */
function times(span, n) {
  const size = SPANS.find((one) => span / one <= n) ?? span;
  const places = [];
  for (let k = 0; k * size <= span; k += 1) places.push(k * size);
  return places;
}

function canvas(figure, height, label) {
  const plot = figure.querySelector(".plot");
  const width = Math.max(Math.floor(plot.clientWidth), 240);
  const svg = element("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label,
  });
  plot.replaceChildren(svg);
  return [svg, width];
}

function path(points) {
  return points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

/** Pieces of a series without holes. */
function pieces(points) {
  const parts = [[]];
  for (const [x, y] of points) {
    if (y === null || y === undefined || !Number.isFinite(y)) parts.push([]);
    else parts[parts.length - 1].push([x, y]);
  }
  return parts.filter((piece) => piece.length);
}

/**
 * Lines over time, or over another axis.
 * series: {name, points: [[x, y]], look: "a" | "b" | "c", marked}; band: [[x, low, high]];
 * range: [low, high] of y; over: what is along x, whose places 0, 1, ... have the names of labels;
 * without it the time, which ends now. marks: places along x.
 */
export function lines(figure, { label, series, band = [], range, over, labels = [], marks = [] }) {
  const [svg, width] = canvas(figure, 224, label);
  const xs = series.flatMap((one) => one.points.map(([x]) => x));
  if (!xs.length) {
    svg.append(element("text", { x: width / 2, y: 110, class: "quiet middle" }, "nothing yet"));
    return;
  }
  const first = Math.min(...xs);
  const last = Math.max(...xs);
  let [low, high] = range;
  if (low === 0 && high === 0) high = 1;
  // Numbers that differ by rounding only are equal: steps between them would never end.
  if (!(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)))) [low, high] = [low - 0.5 * (Math.abs(low) || 1), high + 0.5 * (Math.abs(high) || 1)];
  const room = 0.06 * (high - low);
  [low, high] = [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
  const [levels, size] = steps(low, high, 4);
  const names = levels.map((y) => tick(y, size));
  const left = 12 + 7 * Math.max(...names.map((name) => name.length));
  const box = { left, right: width - 14, top: 10, bottom: 184 };
  const x = (value) => box.left + ((value - first) / (last - first || 1)) * (box.right - box.left);
  const y = (value) => box.bottom - ((value - low) / (high - low)) * (box.bottom - box.top);
  levels.forEach((level, i) => {
    svg.append(element("line", { x1: box.left, x2: box.right, y1: y(level), y2: y(level), class: "grid" }));
    svg.append(element("text", { x: box.left - 6, y: y(level) + 4, class: "quiet end" }, names[i]));
  });
  if (over === undefined) {
    for (const back of times(last - first, width < 480 ? 3 : 6)) {
      const end = back === 0 ? " end" : " middle";
      svg.append(element("text", { x: x(last - back), y: 202, class: `quiet${end}` }, ago(back)));
    }
  } else {
    const every = Math.ceil((44 * labels.length) / (box.right - box.left));
    labels.forEach((text, i) => {
      if (i % every) return;
      const end = i && i === labels.length - 1 ? "end" : "middle";
      svg.append(element("text", { x: x(i), y: 202, class: `quiet ${end}` }, text));
    });
  }
  const name = over ?? "ago, in time that the service was up";
  svg.append(element("text", { x: (box.left + box.right) / 2, y: 219, class: "quiet middle" }, name));
  clips += 1;
  const clip = element("clipPath", { id: `clip-${clips}` });
  clip.append(element("rect", { x: box.left - 4, y: box.top - 4, width: box.right - box.left + 8, height: box.bottom - box.top + 8 }));
  const inside = element("g", { "clip-path": `url(#clip-${clips})` });
  svg.append(clip, inside);
  const edge = (place) => pieces(band.map((one) => [x(one[0]), one[place] === null ? null : y(one[place])]));
  const lows = edge(1);
  edge(2).forEach((piece, i) => {
    const back = lows[i].slice().reverse();
    inside.append(element("path", { d: `${path(piece)}${path(back).replace("M", "L")}Z`, class: "band" }));
  });
  for (const one of series) {
    const runs = pieces(one.points.map(([a, b]) => [x(a), b === null || b === undefined ? null : y(b)]));
    for (const piece of runs) {
      inside.append(element("path", { d: path(piece), class: `line look-${one.look}` }));
    }
    for (const [a, b] of one.marked ? runs.flat() : runs.flat().slice(-1)) {
      inside.append(element("circle", { cx: a, cy: b, r: 3, class: `dot look-${one.look}` }));
    }
  }
  for (const place of marks) {
    inside.append(element("line", { x1: x(place), x2: x(place), y1: box.top, y2: box.bottom, class: "mark" }));
  }
}

/** Lorenz curves; curves: {points: shares of the exposure in equal parts, look}. */
export function lorenz(figure, { label, curves }) {
  const plot = figure.querySelector(".plot");
  const side = Math.min(Math.max(plot.clientWidth, 240), 440);
  const height = side * 0.9;
  const [svg, width] = canvas(figure, height, label);
  const box = { left: 46, right: Math.min(width, side) - 10, top: 8, bottom: height - 40 };
  const x = (share) => box.left + share * (box.right - box.left);
  const y = (share) => box.bottom - share * (box.bottom - box.top);
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    svg.append(element("line", { x1: x(0), x2: x(1), y1: y(part), y2: y(part), class: "grid" }));
    svg.append(element("text", { x: x(0) - 6, y: y(part) + 4, class: "quiet end" }, `${100 * part} %`));
    const end = part === 1 ? "end" : "middle";
    svg.append(element("text", { x: x(part), y: y(0) + 17, class: `quiet ${end}` }, `${100 * part} %`));
  }
  svg.append(element("text", { x: x(0.5), y: y(0) + 34, class: "quiet middle" }, "of the items, the least shown first"));
  svg.append(element("line", { x1: x(0), x2: x(1), y1: y(0), y2: y(1), class: "equal" }));
  for (const { points, look } of curves) {
    const n = points.length - 1;
    if (n < 1) continue;
    svg.append(element("path", { d: path(points.map((share, i) => [x(i / n), y(share)])), class: `line look-${look}` }));
  }
}

/** One bar of parts; parts: {name, value, look}. */
export function bar(figure, { label, parts }) {
  const [svg, width] = canvas(figure, 34, label);
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  let at = 0;
  for (const { value, look } of parts) {
    const share = total ? (value / total) * width : 0;
    if (share > 0) {
      svg.append(element("rect", { x: at, y: 2, width: Math.max(share - 1, 0.5), height: 30, class: `part part-${look}` }));
    }
    at += share;
  }
  if (!total) svg.append(element("text", { x: width / 2, y: 22, class: "quiet middle" }, "nothing yet"));
}
